"""Codecs in shared libraries that cannot be loaded, have another version, or report errors: an
error that names plugin, hook and library. (A working one is in examples/plugins.)"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geomx
from geomx.errors import PluginError
from geomx.runner import execute
from geomx.testing.codecs import made, others_are_refused
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


REFUSES = """
#include <geomx/codec.h>
#include <cmath>
#include <cstring>
struct Picky {
  static constexpr uint32_t kFlags = GEOMX_SURVIVES_HOLES | GEOMX_FIXED_SIZE;
  Picky(const geomx::plugin::Options&, uint64_t) {}
  void Layout(uint64_t, geomx_layout* layout) const { geomx::plugin::AddPart(layout, "v", 32); }
  void Encode(uint64_t, const float* values, uint64_t count, void* const* parts) {
    std::memcpy(parts[0], values, 4 * count);
  }
  void Decode(uint64_t, uint64_t, const void* const* parts, float* values, uint64_t count) const {
    std::memcpy(values, parts[0], 4 * count);
    for (uint64_t i = 0; i < count; ++i) {
      if (std::isnan(values[i])) throw geomx::plugin::Refused("a value is no number");
      if (std::isinf(values[i])) throw std::out_of_range("a mistake of its own");
    }
  }
};
GEOMX_CODEC(Picky)
"""


def library(folder: Path, source: str, name: str = "codec.c", **words: Any) -> Path:
    """Compile a shared library from C or C++."""
    (folder / name).write_text(source, encoding="utf-8")
    words = {"ABI": "GEOMX_CODEC_ABI", "BITS": 32, "NOTHING": 0, **words}
    defined = [f"-D{name}={value}" for name, value in words.items()]
    made = folder / "codec.so"
    compiler = ["c++", "-std=c++17"] if name.endswith(".cc") else ["cc"]
    command = [*compiler, "-shared", "-fPIC", f"-I{geomx.include_dir()}", *defined]
    subprocess.run([*command, name, "-o", made.name], check=True, cwd=folder, timeout=60)
    return made


def refused(path: Path, words: str, folder: Path) -> None:
    class Plugin:
        """A codec on WAN links."""

        @geomx.hookimpl
        def geomx_codec(self, link: Any) -> Any:
            up = link.kind == "wan" and link.direction == "push"
            return geomx.Native("codec", "mine", {}, library=str(path)) if up else None

    registry = registry_with(bad=("accel", Plugin()))
    with pytest.raises(PluginError, match=f"accel bad: geomx_codec.*{words}"):
        execute(build(registry, accel=[("bad", {})], network=SMALLEST, iterations=2), folder)


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    refused(tmp_path / "gone.so", "gone.so.*cannot open", tmp_path / "run")


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        ("int nothing;", {}, "codec.so has no geomx_codec_table"),
        (SOURCE, {"ABI": 7}, "built for codec interface 7, this geomx has 2: build it again"),
        (SOURCE, {"NOTHING": 1}, "make: levels=0 is too few"),
        (SOURCE, {"BITS": 3}, "layout: part values has an impossible size"),
        (SOURCE, {}, "encode: the device is gone"),
    ],
    ids=["no-table", "other-version", "make", "layout", "encode"],
)
def test_errors_of_a_library_name_its_plugin(
    source: str, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    refused(library(tmp_path, source, **options), words, tmp_path / "run")


class Picky:
    """The same codec in Python."""

    whole = frozenset[str]()
    survives_holes = True

    def layout(self, spec: Any) -> Any:
        return {"v": (spec["values"][0], "u4")}

    def encode(self, parts: Any) -> Any:
        return {"v": parts["values"].view("u4")}

    def decode(self, parts: Any, length: int) -> Any:
        values = parts["v"].view("f4")
        if np.isnan(values).any():
            raise geomx.Refused("a value is no number")
        if np.isinf(values).any():
            raise ValueError("a mistake of its own")
        return {"values": values}


@pytest.mark.slow
@pytest.mark.parametrize("language", ["C++", "Python"])
def test_only_the_documented_error_refuses_bytes(language: str, tmp_path: Path, seed: int) -> None:
    codec: Any = Picky()
    if language == "C++":
        built = library(tmp_path, REFUSES, "codec.cc")
        codec = geomx.Native("codec", "picky", {}, library=str(built))
    chain = made([codec], 8, "accel mine: geomx_codec")
    good = np.arange(8, dtype="f4")
    assert np.array_equal(chain.decode(good.tobytes(), 0, 8, 8), good)
    name = "accel mine: geomx_codec: (picky|Picky).decode"
    with pytest.raises(geomx.Refused, match=f"^{name} refused the bytes: a value is no number$"):
        chain.decode(np.full(8, np.nan, "f4").tobytes(), 0, 8, 8)
    with pytest.raises(PluginError, match=f"^{name}: .*a mistake of its own"):
        chain.decode(np.full(8, np.inf, "f4").tobytes(), 0, 8, 8)


class Refusing(Picky):
    """Refuses bytes by `geomx.Refused`."""

    def decode(self, parts: Any, length: int) -> Any:
        values = parts["v"].view("f4")
        if not (np.abs(values) < 100).all():
            raise geomx.Refused("a value is larger than any that is sent")
        return {"values": values}


def test_refusing_bytes_satisfies_the_law_of_any_bytes(seed: int) -> None:
    others_are_refused([Refusing()], 999, seed)


PARTS = """
#include <geomx/codec.h>
#include <string>
struct Many {
  static constexpr uint32_t kFlags = GEOMX_SURVIVES_HOLES | GEOMX_FIXED_SIZE;
  Many(const geomx::plugin::Options&, uint64_t) {}
  void Layout(uint64_t, geomx_layout* layout) const {
    for (int i = 0; i < COUNT; ++i) {
      geomx::plugin::AddPart(layout, (NAME + std::to_string(i)).c_str(), 32);
    }
  }
  void Encode(uint64_t, const float*, uint64_t, void* const*) {}
  void Decode(uint64_t, uint64_t, const void* const*, float*, uint64_t) const {}
};
GEOMX_CODEC(Many)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "name", "words"),
    [
        (9, "part", "part part8 is one too many: a layout has at most 8"),
        (1, "a_name_too_long", "part a_name_too_long0 needs a name of at most 15 letters"),
    ],
)
def test_a_layout_has_room_for_its_parts(parts: int, name: str, words: str, tmp_path: Path) -> None:
    """Both libraries, in one process, have a class of the same name."""
    built = library(tmp_path, PARTS, "codec.cc", COUNT=parts, NAME=f'std::string("{name}")')
    codec = geomx.Native("codec", "many", {}, library=str(built))
    chain = made([codec], 8, "accel mine: geomx_codec")
    with pytest.raises(PluginError, match=f"^accel mine: geomx_codec.*layout: {words}$"):
        chain.layout(1)
