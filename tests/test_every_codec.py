"""Laws of every codec on every link, third-party too: the size that was promised, nothing lost,
slices that fit together again, and bytes that are no such slice refused with a reason.

What an accelerator puts on a link is asked for as an experiment does, so a plugin that is installed
is held to these laws without being named here. Two codecs in Python stand for strangers'.
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
    """Every kind of link that a plugin may be asked about."""
    return [
        replace(CLUSTER.link(source, target, direction, cargo), exchange=exchange)  # type: ignore[arg-type]
        for source, target, direction, cargoes in HOPS
        for cargo, exchange in product(cargoes, ("gradients", "parameters"))
    ]


def chains() -> dict[str, Chain]:
    """What every accelerator answers, by where it serves; those that are alike once."""
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
# A sign for every value never comes to rest: what is owed goes back and forth.
SETTLING = {n: chain for n, chain in CHAINS.items() if "pull" not in n and n != "python/sign"}
SIZES = (1, 7, 64, 999, 1000, 3001)
every_codec = pytest.mark.parametrize("codecs", CHAINS.values(), ids=CHAINS)


def made(codecs: Chain, elements: int) -> Any:
    """The core's chain for a shard of that many elements."""
    return _core.CodecChain([part(codec, "codec") for codec in codecs], elements)


def values(draw: np.random.Generator, elements: int) -> np.ndarray:
    return draw.standard_normal(elements, dtype=np.float32)


def decode(chain: Any, slices: Sequence[Any], total: int, number: int) -> np.ndarray:
    parts = [chain.decode(payload, first, rows, total, number) for first, rows, payload in slices]
    return np.sum(parts, axis=0, dtype=np.float64)


@every_codec
@pytest.mark.parametrize("elements", SIZES)
def test_the_size_is_the_promised_one(codecs: Chain, elements: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    chain = made(codecs, elements)
    for number in range(1, 6):
        rows, size = chain.layout(number)
        ((first, count, payload),) = chain.encode(values(draw, elements), number)
        assert (first, count, len(payload)) == (0, rows, size)


@every_codec
@pytest.mark.parametrize("elements", SIZES)
def test_slices_in_any_order_are_the_whole(codecs: Chain, elements: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    whole, cut = (made(codecs, elements) for _ in range(2))
    if not whole.survives_holes:
        pytest.skip("is never cut")
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
    """After enough rounds of nothing new, everything that was put in has come out."""
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
def test_what_is_no_slice_is_refused(codecs: Chain, elements: int, seed: int) -> None:
    """A wrong length or place is an error; any bytes of the right length are a vector or one."""
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
    if rows:  # else it has whole parts alone
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


def test_every_installed_codec_is_here() -> None:
    """A native codec that no link gets is one that these laws do not reach."""
    reached = {name.split("/")[0] for name in CHAINS}
    assert {name.split("_")[0] for name in _core.natives()["codec"]} <= reached
