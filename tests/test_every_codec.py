"""Laws of every installed codec on every link: sizes equal those of the layout, nothing is lost,
slices can be decoded in any order, and invalid bytes are refused with a reason.

The codecs of each accelerator are found by its hooks, as in an experiment, so no plugin is named
here. Two codecs in Python represent third-party ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest

from geomx import _core
from geomx.cluster import Cargo, Link
from geomx.experiment.native_parts import part
from geomx.network.files import read_network
from geomx.plugin.registry import Registry
from tests.laws import short_form
from tests.test_python_parts import HalfCodec, SignCodec

Chain = list[Any]
CLUSTER = read_network(short_form(2, 1, 1))
SERVER, WORKER = CLUSTER.parties[0].server, CLUSTER.parties[0].workers[0]
HOPS = [
    (SERVER, CLUSTER.global_servers[0], "push", ("contributions",)),
    (CLUSTER.global_servers[0], SERVER, "pull", get_args(Cargo)[1:]),
    (WORKER, SERVER, "push", ("contributions",)),
    (SERVER, WORKER, "pull", get_args(Cargo)[1:]),
]


def links() -> list[Link]:
    """Return links of every kind that is passed to plugins."""
    return [
        replace(CLUSTER.link(source, target, direction, cargo), exchange=exchange)  # type: ignore[arg-type]
        for source, target, direction, cargoes in HOPS
        for cargo, exchange in product(cargoes, ("gradients", "parameters"))
    ]


def chains() -> dict[str, Chain]:
    """Return the codecs of every accelerator by kind of link, without duplicates."""
    found: dict[str, Chain] = {"python/half": [HalfCodec()], "python/sign": [SignCodec()]}
    registry = Registry.discover()
    for plugin in registry.plugins("accel"):
        selection = registry.select(None, [(plugin.name, {})])
        seen: list[Any] = []
        for link in links():
            answer = list(selection.codecs(link))
            if answer and answer not in seen:
                seen.append(answer)
                place = f"{link.kind}-{link.direction}-{link.carries}-{link.exchange}"
                found[f"{plugin.name}/{place}"] = answer
    return found


CHAINS = chains()
# The residual of sign codecs never becomes zero, but oscillates.
SETTLING = {n: chain for n, chain in CHAINS.items() if "pull" not in n and n != "python/sign"}
SIZES = (1, 7, 64, 999, 1000, 3001)
every_codec = pytest.mark.parametrize("codecs", CHAINS.values(), ids=CHAINS)


def made(codecs: Chain, elements: int) -> Any:
    """Return the core's codec chain for a shard of that many elements."""
    return _core.CodecChain([part(codec, "codec") for codec in codecs], elements)


def values(draw: np.random.Generator, elements: int) -> np.ndarray:
    return draw.standard_normal(elements, dtype=np.float32)


def decode(chain: Any, slices: Sequence[Any], total: int, number: int) -> np.ndarray:
    parts = [chain.decode(payload, first, rows, total, number) for first, rows, payload in slices]
    return np.sum(parts, axis=0, dtype=np.float64)


@every_codec
@pytest.mark.parametrize("elements", SIZES)
def test_sizes_equal_the_layout(codecs: Chain, elements: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    chain = made(codecs, elements)
    for number in range(1, 6):
        rows, size = chain.layout(number)
        ((first, count, payload),) = chain.encode(values(draw, elements), number)
        assert (first, count, len(payload)) == (0, rows, size)


@every_codec
@pytest.mark.parametrize("elements", SIZES)
def test_slices_can_be_decoded_in_any_order(codecs: Chain, elements: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    whole, cut = (made(codecs, elements) for _ in range(2))
    if not whole.survives_holes:
        pytest.skip("has whole parts only")
    for number in range(1, 4):
        value = values(draw, elements)
        rows, _ = whole.layout(number)
        expected = decode(whole, whole.encode(value, number), rows, number)
        slices = cut.encode(value, number, 8 * int(draw.integers(1, 40)))
        draw.shuffle(slices)  # type: ignore[arg-type]
        assert np.array_equal(decode(cut, slices, rows, number), expected)


@pytest.mark.parametrize("codecs", SETTLING.values(), ids=SETTLING)
@pytest.mark.parametrize("elements", [7, 1500])
def test_nothing_is_lost(codecs: Chain, elements: int, seed: int) -> None:
    """After enough rounds without new values, the sum of the output equals that of the input."""
    draw = np.random.default_rng(seed)
    chain = made(codecs, elements)
    total = np.zeros(elements)
    arrived = np.zeros(elements)
    for number in range(1, 300):
        value = values(draw, elements) if number <= 20 else np.zeros(elements, np.float32)
        total += value
        rows, _ = chain.layout(number)
        arrived += decode(chain, chain.encode(value, number), rows, number)
    assert np.abs(arrived - total).max() < 0.05 * np.abs(total).max()


@every_codec
@pytest.mark.parametrize("elements", SIZES)
def test_invalid_slices_are_refused(codecs: Chain, elements: int, seed: int) -> None:
    """A wrong length or position is an error; other bytes decode to a vector or are an error."""
    draw = np.random.default_rng(seed)
    chain = made(codecs, elements)
    rows, _ = chain.layout()
    ((_, _, payload),) = chain.encode(values(draw, elements))
    lengths = {0, 1, len(payload) - 1, *draw.integers(0, len(payload), 20).tolist()}
    for length in lengths - {len(payload)}:
        with pytest.raises(ValueError, match="slice"):
            chain.decode(payload[:length], 0, rows, rows)
    with pytest.raises(ValueError, match="slice"):
        chain.decode(payload + b"\0", 0, rows, rows)
    if rows:  # 0: whole parts only
        for count, total in ((rows, rows + 1), (rows + 1, rows)):
            with pytest.raises(ValueError, match=r"rows|slice"):
                chain.decode(payload, 0, count, total)
    for _ in range(30):
        bad = bytearray(payload)
        for at in draw.integers(0, len(bad), draw.integers(1, 9)):
            bad[at] = draw.integers(256)
        try:
            decoded = chain.decode(bytes(bad), 0, rows, rows)
        except ValueError:
            continue
        assert decoded.shape == (elements,)


def test_every_native_codec_is_used_by_a_link() -> None:
    """A native codec without a link would not be tested here."""
    reached = {name.split("/")[0] for name in CHAINS}
    assert {name.split("_")[0] for name in _core.natives()["codec"]} <= reached
