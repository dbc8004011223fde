"""Packed codecs, whose parts have an item per chunk of rows: cut between chunks by any slicer and
by P3, summed after decoding, the same bytes in simulations of sizes alone; wrong layouts are named.
And the ones that come with geomx: bytes by the formula, and everything kept equals no codec."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geomx
from geomx.calibrate.codecs import general
from geomx.config.compose import compose
from geomx.errors import ConfigError, PluginError
from geomx.plugin.registry import Registry
from geomx.runner import execute
from geomx.testing import codecs as laws
from geomx.testing.worlds import SMALLEST, build
from geomx.workload import Workload
from tests.guide import documented
from tests.laws import FRAME_BYTES, Build, close, registry_with, same
from tests.test_library_codecs import library

HEADER = 80

# The mean of every 16 values, which all of them become.
MEANS = """
#include <geomx/codec.h>
#include <algorithm>
namespace {
struct Means {
  static constexpr uint32_t kFlags = GEOMX_SURVIVES_HOLES | GEOMX_FIXED_SIZE;
  Means(const geomx::plugin::Options&, uint64_t) {}
  void Layout(uint64_t, geomx_layout* layout) const {
    geomx::plugin::AddPart(layout, "means", 32, 0, 0, SPAN);
  }
  void Encode(uint64_t, const float* values, uint64_t count, void* const* parts) {
    for (uint64_t at = 0; at < count; at += 16) {
      float sum = 0;
      const uint64_t end = std::min<uint64_t>(count, at + 16);
      for (uint64_t i = at; i < end; ++i) sum += values[i];
      static_cast<float*>(parts[0])[at / 16] = sum / (end - at);
    }
  }
  void Decode(uint64_t, uint64_t, const void* const* parts, float* values, uint64_t count) const {
    for (uint64_t i = 0; i < count; ++i) values[i] = static_cast<const float*>(parts[0])[i / 16];
  }
};
}
GEOMX_CODEC(Means)
"""


def of_the_page() -> Any:
    """Return a codec of the class in docs/write_a_plugin.md."""
    return documented("TwoOfSixteen")()


class Blocks:
    """Cuts 24 rows at a time, within chunks too."""

    def cut(self, slices: Any, row_bytes: float, round_number: int) -> Any:
        return [
            (at, min(24, first + rows - at), priority, channel)
            for first, rows, priority, channel in slices
            for at in range(first, first + rows, 24)
        ]


class Packed:
    """A packed codec on the way up, and a slicer."""

    def __init__(self, codec: Any) -> None:
        self.codec = codec

    @geomx.hookimpl
    def geomx_codec(self, link: Any) -> Any:
        return self.codec if link.kind == "wan" and link.direction == "push" else None

    @geomx.hookimpl
    def geomx_slicer(self, link: Any) -> Any:
        return Blocks() if link.kind == "wan" else None


def test_the_codec_of_the_page_keeps_the_laws(seed: int) -> None:
    for elements in (1, 7, 64, 999, 3001):
        laws.size_is_promised([of_the_page()], elements, seed)
        laws.slices_are_the_whole([of_the_page()], elements, seed)
        laws.others_are_refused([of_the_page()], elements, seed)
    codec = laws.made([of_the_page()], 20)
    ((_, _, payload),) = codec.encode(np.arange(20, dtype="f4"))
    assert len(payload) == 2 * 9
    expected = np.where(np.isin(np.arange(20), [14, 15, 18, 19]), np.arange(20), 0)
    assert np.array_equal(codec.decode(payload, 0, 20, 20), expected)


@given(st.data())
def test_bits_are_packed_from_the_lowest(data: st.DataObject) -> None:
    bits, count = data.draw(st.integers(1, 32)), data.draw(st.integers(0, 20))
    row = st.lists(st.integers(0, 2**bits - 1), min_size=count, max_size=count)
    rows = np.array([data.draw(row), data.draw(row)], dtype=np.int64)
    packed = geomx.pack_bits(rows, bits)
    for numbers, made in zip(rows.tolist(), packed, strict=True):
        whole = sum(number << bits * place for place, number in enumerate(numbers))
        assert made.tobytes() == whole.to_bytes(math.ceil(count * bits / 8), "little")
    assert np.array_equal(geomx.unpack_bits(packed, count, bits), rows)


def test_numbers_that_do_not_fit_are_refused() -> None:
    for numbers, bits in (([16], 4), ([-1], 4), ([0], 33)):
        with pytest.raises(ValueError, match=r"0 to 15|1 to 32"):
            geomx.pack_bits(numbers, bits)
    with pytest.raises(ValueError, match="1 bytes are too few for 3 numbers"):
        geomx.unpack_bits(np.zeros(1, np.uint8), 3, 4)


@pytest.mark.slow
def test_a_codec_in_a_library_may_pack(tmp_path: Path, seed: int) -> None:
    built = library(tmp_path, MEANS, "means.cc", SPAN=16)
    means = geomx.Native("codec", "means", {}, library=str(built))
    for elements in (1, 16, 999):
        laws.size_is_promised([means], elements, seed)
        laws.slices_are_the_whole([means], elements, seed)
    assert laws.made([means], 33).layout(1) == (33, 12)
    (tmp_path / "bad").mkdir()
    built = library(tmp_path / "bad", MEANS, "means.cc", SPAN=5)
    bad = geomx.Native("codec", "bad", {}, library=str(built))
    with pytest.raises(PluginError, match="part means has an impossible span"):
        laws.made([bad], 33).layout(1)


@pytest.mark.slow
def test_slicers_and_slices_of_p3_keep_chunks_whole(tmp_path: Path) -> None:
    """Servers sum what was decoded; the same bytes without numbers, and with cuts elsewhere."""
    registry = registry_with(packed=("accel", Packed(of_the_page())))
    runs = [
        execute(
            build(registry, accel=accel, network=SMALLEST, numerics=numerics),
            tmp_path / f"{len(accel)}-{numerics}",
        )
        for accel in ([("packed", {})], [("packed", {}), ("p3", {"slice_elements": 1000})])
        for numerics in (True, False)
    ]
    for with_numbers, without in (runs[:2], runs[2:]):
        assert with_numbers.summary["bytes"] == without.summary["bytes"]
        assert all(np.isfinite(value).all() for value in with_numbers.parameters().values())


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ((2, "u1", 12), "item per 12 rows, no multiple of 8"),
        ((3, "u1", 16), "promises 3 items of .*, not one per 16 rows of 32"),
        ((2, "u1", 16), "bytes, layout promised|bits, which layout did not promise"),
    ],
)
def test_a_wrong_layout_is_named(layout: tuple[Any, ...], words: str) -> None:
    codec = of_the_page()
    codec.layout = lambda spec: {"chunks": layout}
    with pytest.raises(PluginError, match=words):
        laws.made([codec], 32, "accel bad: geomx_codec").encode(np.ones(32, "f4"))


@pytest.mark.parametrize("made", ["u1", "i1", "?"])
def test_arrays_are_of_the_type_that_the_layout_promised(made: str) -> None:
    """Others of the same width would be decoded as other numbers."""

    class Whole:
        whole, survives_holes = frozenset[str](), True

        def layout(self, spec: Any) -> Any:
            return {"steps": (spec["values"][0], np.int8)}

        def encode(self, parts: Any) -> Any:
            return {"steps": parts["values"].astype(made)}

    codec = laws.made([Whole()], 8, "accel bad: geomx_codec")
    if made == "i1":
        assert codec.encode(np.full(8, -3, "f4"))
        return
    with pytest.raises(PluginError, match=r'produced "steps" of .*, which layout did not promise'):
        codec.encode(np.full(8, -3, "f4"))


# ---- lowbit, sparseloco, demo ----

SIZES = (40, 400, 999, 12_800, 131_072, 1_000_003)


def messages(elements: int, chunk: int, bits: int, item: int) -> int:
    """Return the bytes of messages with `bits` per element and `item` bytes per chunk."""
    most = FRAME_BYTES // (chunk * bits // 8 + item) * chunk
    sizes = [min(most, elements - first) for first in range(0, elements, most)]
    return sum(HEADER + math.ceil(n * bits / 8) + math.ceil(n / chunk) * item for n in sizes)


def selected(elements: int, times: int = 1) -> int:
    """Return SparseLoCo's bytes: equal chunks of up to 4,096, of which 64 in 4,096 are sent."""
    chunks = math.ceil(elements / 4096)
    span = math.ceil(math.ceil(elements / chunks) / 8) * 8
    kept = min(span, max(1, span * 64 // 4096) * times)
    width = (span - 1).bit_length()
    return messages(elements, span, 0, 4 + math.ceil(kept * 2 / 8) + math.ceil(kept * width / 8))


@pytest.mark.needs("lowbit")
@pytest.mark.parametrize(
    ("name", "options", "bits"),
    [("lowbit", {}, 8), ("lowbit", {"bits": 4}, 4), ("int8", {}, 8), ("int4", {}, 4)],
)
def test_bytes_of_lowbit(
    name: str,
    options: dict[str, Any],
    bits: int,
    network: Build,
    sized: Build,
    simulate: Build,
) -> None:
    run = simulate(network(2, 1), sized(*SIZES), accel=[(name, options)], iterations=2)
    expected = 2 * 2 * sum(messages(n, 256, bits, 4) for n in SIZES)
    assert run.bytes["wan_push"] == run.bytes["wan_pull"] == expected


@pytest.mark.needs("lowbit")
def test_another_name_of_a_plugin_is_the_same_plugin() -> None:
    def chosen(*words: str) -> Any:
        return compose(["workload=tiny", *words])[0].selection.accel

    assert chosen("+accel=[int4]") == (("int4", {"bits": 4, "chunk": 256, "pull": True}),)
    assert chosen("+accel=[int8]", "accel.int8.chunk=64")[0][1]["chunk"] == 64
    for words in ("+accel=[int8,int4]", "+accel=[lowbit,int8]"):
        with pytest.raises(ConfigError, match=r"accel=\[.*\]: lowbit is listed twice"):
            chosen(words)
    names = [plugin.name for plugin in Registry.discover().plugins("accel")]
    assert not {"int8", "int4"} & set(names)  # studies would try the same twice


@pytest.mark.needs("sparseloco")
def test_bytes_of_sparseloco(network: Build, sized: Build, simulate: Build) -> None:
    run = simulate(network(2, 1), sized(*SIZES), accel=[("sparseloco", {})], iterations=2)
    assert run.bytes["wan_push"] == 2 * 2 * sum(map(selected, SIZES))
    assert run.bytes["wan_pull"] == 2 * 2 * sum(selected(n, 2) for n in SIZES)
    headers = HEADER * 2 * 2 * len(SIZES)
    assert 8 * (run.bytes["wan_push"] - headers) / (2 * 2 * sum(SIZES)) < 0.23


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize(
    ("name", "all_values"),
    [
        pytest.param(
            "sparseloco", {"top": 4096, "bits": 32}, marks=pytest.mark.needs("sparseloco")
        ),
        pytest.param("demo", {"kept": 4096, "bits": 32}, marks=pytest.mark.needs("demo")),
    ],
)
def test_everything_kept_equals_no_codec(
    name: str,
    all_values: dict[str, Any],
    steps: bool,
    network: Build,
    tiny: Workload,
    simulate: Build,
) -> None:
    options = {"steps": steps, **all_values}
    plain, everything = (
        simulate(network(1, 3), tiny, accel=accel) for accel in ([], [(name, options)])
    )
    check = partial(close, tolerance=1e-5) if steps else same
    assert check(plain.parameters, everything.parameters)
    assert everything.bytes["wan_push"] == plain.bytes["wan_push"]


def transformed(elements: int, times: int = 1) -> int:
    """Return DeMo's bytes: equal chunks of up to 4,096, of which 32 coefficients are sent."""
    chunks = math.ceil(elements / 4096)
    span = math.ceil(math.ceil(elements / chunks) / 8) * 8
    kept = min(span, max(1, span * 32 // 4096) * times)
    width = 6 + (math.ceil(span / 64) - 1).bit_length()
    return messages(elements, span, 0, 2 * kept + math.ceil(kept * width / 8))


@pytest.mark.needs("demo")
def test_bytes_of_demo(network: Build, sized: Build, simulate: Build) -> None:
    run = simulate(network(2, 1), sized(*SIZES), accel=[("demo", {})], iterations=2)
    assert run.bytes["wan_push"] == 2 * 2 * sum(map(transformed, SIZES))
    assert run.bytes["wan_pull"] == 2 * 2 * sum(transformed(n, 2) for n in SIZES)


@pytest.mark.needs("demo", "mixedsync")
@pytest.mark.parametrize("steps", [False, True])
def test_demo_encodes_steps_of_parties_or_nothing(
    steps: bool, network: Build, sized: Build, simulate: Build
) -> None:
    """Under mixedsync, parties have gradients only, which are encoded if that is asked for."""
    accel = [("demo", {"steps": steps})]
    arguments = {"sync": ("mixedsync", {}), "accel": accel, "iterations": 2}
    run = simulate(network(2, 1), sized(4096), **arguments)
    payload = 4 * 4096 if steps else 112
    assert run.bytes["wan_push"] == 2 * 2 * (HEADER + payload)


@pytest.mark.needs("demo")
@pytest.mark.parametrize("factors", [{}, {0: 0.5, 1: 2.0}], ids=str)
def test_signs_move_every_weight_by_the_learning_rate(
    factors: dict[int, float], network: Build, tiny: Workload, simulate: Build
) -> None:
    """With everything kept nothing is encoded: the step is the sign of the dense gradient.

    The sign of a gradient that rounds to nothing differs between two runs.
    """
    dense = {"kept": 4096, "bits": 32, "steps": False}
    multipliers = {f"lr_mult.{key}": factor for key, factor in factors.items()}
    workload = replace(tiny, optimizer={**tiny.optimizer, **multipliers})
    plain, signs = (
        simulate(network(1, 2), workload, accel=[("demo", dense | {"signs": on})], iterations=1)
        for on in (False, True)
    )
    before = tiny.model(plain.simulation.experiment.seed).parameters
    rate = np.float32(tiny.optimizer["learning_rate"])
    ends = zip(before, plain.parameters, signs.parameters, strict=True)
    for key, (start, moved, signed) in enumerate(ends):
        step = np.float32(factors.get(key, 1.0)) * rate * np.sign(moved - start)
        clear = np.abs(moved - start) > 1e-6
        assert clear.mean() > 0.9
        assert np.allclose(signed[clear], (start + step)[clear], atol=1e-7)


@pytest.mark.needs("lowbit")
def test_general_costs_count_a_codec_of_several_names_once() -> None:
    names = [f"{work}_{per}_s" for work in ("encode", "decode") for per in ("message", "byte")]
    costs = {name: dict.fromkeys(names, cost) for name, cost in (("lowbit", 1.0), ("x", 4.0))}
    assert general(costs | {"int8": dict.fromkeys(names, 9.0)}) == dict.fromkeys(names, 2.0)
