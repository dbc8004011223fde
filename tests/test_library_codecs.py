"""Codecs in shared libraries that cannot be had, are of another version, or say what is wrong:
one sentence that names plugin, hook and library. (One that works is in examples/plugins.)"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

import geomx
from geomx.errors import PluginError
from geomx.experiment import execute
from geomx.testing.worlds import SMALLEST, build
from tests.laws import registry_with

SOURCE = """
#include <geomx/codec.h>
#include <string.h>

static void *make(const geomx_option *o, size_t n, uint64_t elements, char *error, size_t bytes) {
  if (NOTHING) strncpy(error, "levels=0 is too few", bytes);
  return NOTHING ? NULL : (void *)"a codec";
}
static void drop(void *codec) {}
static const char *layout(const void *codec, uint64_t round, geomx_layout *layout) {
  layout->count = 1;
  strcpy(layout->parts[0].name, "values");
  layout->parts[0].bits = BITS;
  return NULL;
}
static const char *encode(void *c, uint64_t r, const float *v, uint64_t n, void *const *parts) {
  return "the device is gone";
}
static const geomx_codec table = {ABI, GEOMX_FIXED_SIZE, make, drop, layout, encode, 0, 0};
const geomx_codec *geomx_codec_table(void) { return &table; }
"""


def library(folder: Path, source: str, **words: Any) -> Path:
    """A shared library from C, as any compiler makes it."""
    (folder / "codec.c").write_text(source, encoding="utf-8")
    words = {"ABI": "GEOMX_CODEC_ABI", "BITS": 32, "NOTHING": 0, **words}
    defined = [f"-D{name}={value}" for name, value in words.items()]
    made = folder / "codec.so"
    command = ["cc", "-shared", "-fPIC", f"-I{geomx.include_dir()}", *defined]
    subprocess.run([*command, "codec.c", "-o", made.name], check=True, cwd=folder, timeout=60)
    return made


def refused(path: Path, words: str, folder: Path) -> None:
    class Plugin:
        """A codec of this test, over the WAN."""

        @geomx.hookimpl
        def geomx_codec(self, link: Any) -> Any:
            up = link.kind == "wan" and link.direction == "push"
            return geomx.Native("codec", "mine", {}, library=str(path)) if up else None

    registry = registry_with(bad=("accel", Plugin()))
    with pytest.raises(PluginError, match=f"accel bad: geomx_codec.*{words}"):
        execute(build(registry, accel=[("bad", {})], network=SMALLEST, iterations=2), folder)


def test_a_library_that_is_not_there(tmp_path: Path) -> None:
    refused(tmp_path / "gone.so", "gone.so.*cannot open", tmp_path / "run")


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        ("int nothing;", {}, "codec.so has no geomx_codec_table"),
        (SOURCE, {"ABI": 7}, "built for codec interface 7, this geomx has 1: build it again"),
        (SOURCE, {"NOTHING": 1}, "make: levels=0 is too few"),
        (SOURCE, {"BITS": 3}, "layout: part values has an impossible size"),
        (SOURCE, {}, "encode: the device is gone"),
    ],
    ids=["no-table", "other-version", "make", "layout", "encode"],
)
def test_what_a_library_says_is_said_of_its_plugin(
    source: str, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    refused(library(tmp_path, source, **options), words, tmp_path / "run")
