"""Laws of codecs on one link.

They cover the promised size, no permanent loss, no lasting infinity or NaN, slices that can be
joined, state per shard and link, and refusal of invalid bytes with a reason.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx import _core
from geomx.errors import PluginError
from geomx.experiment.native_parts import part
from geomx.testing.finding import Broken, Laws

Chain = Sequence[Any]
Vector = NDArray[np.float32]
SIZES = (1, 7, 64, 999, 1000, 3001)


def made(codecs: Chain, elements: int, label: str = "") -> Any:
    """Return the core's chain for one shard, with state of its own.

    Args:
        codecs: The plugin's codecs.
        elements: Number of elements of the shard.
        label: Name of the plugin in error messages.
    """
    return _core.CodecChain([part(codec, "codec", label) for codec in codecs], elements)


def values(draw: np.random.Generator, elements: int) -> Vector:
    """Return a vector of standard normal values.

    Args:
        draw: Source of randomness.
        elements: Length of the vector.
    """
    return draw.standard_normal(elements, dtype=np.float32)


def decode(chain: Any, slices: Sequence[Any], total: int, number: int = 1) -> NDArray[np.float64]:
    """Decode slices.

    Args:
        chain: The receiver's chain.
        slices: (first row, rows, payload) of each slice.
        total: Number of rows of the shard.
        number: Number of the round.

    Returns:
        The sum of the decoded slices.
    """
    parts = [chain.decode(payload, first, rows, total, number) for first, rows, payload in slices]
    decoded: NDArray[np.float64] = np.sum(parts, axis=0, dtype=np.float64)
    return decoded


def size_is_promised(codecs: Chain, elements: int, seed: int) -> None:
    """Encoded data has the promised number of rows and bytes in every round."""
    draw = np.random.default_rng(seed)
    chain = made(codecs, elements)
    for number in range(1, 6):
        rows, size = chain.layout(number)
        ((first, count, payload),) = chain.encode(values(draw, elements), number)
        if (first, count, len(payload)) != (0, rows, size):
            where = f"{elements} elements, round {number}"
            raise Broken(
                where, f"{rows} rows in {size} bytes", f"{count} rows in {len(payload)} bytes"
            )


def slices_are_the_whole(codecs: Chain, elements: int, seed: int) -> None:
    """Slices decode one by one, in any order, to the same values as the whole."""
    draw = np.random.default_rng(seed)
    whole, cut = (made(codecs, elements) for _ in range(2))
    if not whole.survives_holes:
        return  # is never cut
    for number in range(1, 4):
        value = values(draw, elements)
        rows, _ = whole.layout(number)
        expected = decode(whole, whole.encode(value, number), rows, number)
        slices = cut.encode(value, number, 8 * int(draw.integers(1, 40)))
        draw.shuffle(slices)
        _same(f"{elements} elements in {len(slices)} slices", expected, cut, slices, rows, number)


def _same(
    where: str,
    expected: NDArray[np.float64],
    chain: Any,
    slices: Sequence[Any],
    rows: int,
    number: int,
) -> None:
    got = decode(chain, slices, rows, number)
    wrong = np.flatnonzero(got != expected)
    if len(wrong):
        at = int(wrong[0])
        raise Broken(where, f"{expected[at]:.6g} at {at}", f"{got[at]:.6g} at {at}")


def shape_comes_back(codecs: Chain, elements: int, seed: int) -> None:
    """Decoded values are finite, and zero for zeros."""
    draw = np.random.default_rng(seed)
    chain = made(codecs, elements)
    for what, value in (("normal", values(draw, elements)), ("zero", np.zeros(elements, "f4"))):
        chain = made(codecs, elements)
        rows, _ = chain.layout(1)
        got = decode(chain, chain.encode(value), rows)
        if not np.isfinite(got).all():
            raise Broken(f"{what} values, {elements} elements", "finite values", got)
        if what == "zero" and np.abs(got).max(initial=0) > 1e-6:
            raise Broken(f"{elements} zeros", "zeros", f"{np.abs(got).max():.3g}")


def others_do_not_stay(codecs: Chain, elements: int, seed: int) -> None:
    """After an infinity, a NaN or a very large value, later values arrive as finite ones."""
    draw = np.random.default_rng(seed)
    for odd in (np.inf, -np.inf, np.nan, 1e6):
        chain = made(codecs, elements)
        for number in range(1, 5):
            value = values(draw, elements)
            if number == 1:
                value[int(draw.integers(elements))] = odd
            rows, _ = chain.layout(number)
            slices = chain.encode(value, number)
            if number > 1 and not np.isfinite(decode(chain, slices, rows, number)).all():
                where = f"{elements} elements, {odd:g} in round 1, round {number}"
                raise Broken(where, "finite values", "others; error feedback must not keep them")
            if chain.linear:
                chain.settle(slices[0][2], number)


def nothing_is_lost(codecs: Chain, elements: int, seed: int) -> None:
    """Repeatedly pushed values arrive, possibly late or rounded, within half of their sum."""
    draw = np.random.default_rng(seed)
    chain = made(codecs, elements)
    mean = np.float32(0.2) * values(draw, elements)
    total, arrived = np.zeros(elements), np.zeros(elements)
    rounds = 400
    for number in range(1, rounds + 1):
        value = mean + np.float32(0.2) * values(draw, elements)
        total += value
        rows, _ = chain.layout(number)
        slices = chain.encode(value, number)
        arrived += decode(chain, slices, rows, number)
        if chain.linear:
            chain.settle(slices[0][2], number)
    missing = float(np.linalg.norm(arrived - total) / np.linalg.norm(total))
    if not missing < 0.5:
        raise Broken(
            f"{elements} elements, {rounds} rounds",
            "the sum of the values, within half",
            f"{missing:.0%} off",
        )


def sums_need_no_decoding(codecs: Chain, elements: int, seed: int) -> None:
    """The sum of several senders' encodings has the promised size and decodes to their sum."""
    draw = np.random.default_rng(seed)
    senders = [made(codecs, elements) for _ in range(3)]
    if not senders[0].linear:
        return
    for number in range(1, 6):
        rows, size = senders[0].layout(number)
        payloads = [chain.encode(values(draw, elements), number)[0][2] for chain in senders]
        apart = [decode(senders[0], [(0, rows, payload)], rows, number) for payload in payloads]
        total = senders[0].add(payloads, number)
        where = f"{elements} elements, 3 senders, round {number}"
        if len(total) != size:
            raise Broken(where, f"{size} bytes", f"{len(total)} bytes")
        got, expected = decode(senders[0], [(0, rows, total)], rows, number), np.sum(apart, axis=0)
        off = float(np.abs(got - expected).max(initial=0))
        if not off <= 1e-4 * max(1.0, float(np.abs(apart).max(initial=0))):
            raise Broken(where, "the sum of what each decodes to", f"{off:.3g} off")
        for chain in senders:
            chain.settle(total, number)


def alike_every_time(codecs: Chain, elements: int, seed: int) -> None:
    """The same values give the same bytes, independently of other shards and links."""
    draw = np.random.default_rng(seed)
    alone, beside, other = (made(codecs, elements) for _ in range(3))
    for number in range(1, 5):
        value = values(draw, elements)
        expected = alone.encode(value, number)
        other.encode(values(draw, elements), number)
        got = beside.encode(value, number)
        if [s[2] for s in got] != [s[2] for s in expected]:
            raise Broken(
                f"{elements} elements, round {number}, beside another shard",
                "the same bytes as alone",
                "different ones: shards share state, or random values are not seeded",
            )


def others_are_refused(codecs: Chain, elements: int, seed: int) -> None:
    """A wrong length is refused; any bytes of the right length decode to a vector or are refused.

    geomx itself refuses a wrong length; a codec refuses by `geomx.Refused`.
    """
    draw = np.random.default_rng(seed)
    chain = made(codecs, elements)
    rows, _ = chain.layout()
    ((_, _, payload),) = chain.encode(values(draw, elements))
    for length in {0, len(payload) - 1, *draw.integers(0, len(payload), 5).tolist()}:
        try:
            chain.decode(payload[:length], 0, rows, rows)
        except ValueError:
            continue
        raise Broken(f"{length} of {len(payload)} bytes", "a refusal", "a vector")
    for _ in range(20):
        bad = bytearray(payload)
        for at in draw.integers(0, len(bad), draw.integers(1, 9)):
            bad[at] = draw.integers(256)
        try:
            decoded = chain.decode(bytes(bad), 0, rows, rows)
        except ValueError:  # geomx.Refused is one
            continue
        except PluginError as error:
            wanted = "a vector, or a refusal by geomx.Refused (in C++ geomx::plugin::Refused)"
            raise Broken("bytes changed on the way", wanted, error) from error
        if decoded.shape != (elements,):
            raise Broken("bytes changed on the way", f"{elements} values", decoded.shape)


def memory_is_bounded(codecs: Chain, elements: int, seed: int) -> None:
    """The memory for encoding is proportional to the number of values, at most 64 times theirs."""
    draw = np.random.default_rng(seed)
    chain = made(codecs, elements)
    value = values(draw, elements)
    chain.encode(value)
    tracemalloc.start()
    try:
        chain.encode(value, 2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    most = 64 * value.nbytes + (1 << 20)
    if peak > most:
        raise Broken(f"{elements} elements", f"at most {most:,} bytes of memory", f"{peak:,}")


_LAWS = (
    (size_is_promised, SIZES),
    (shape_comes_back, SIZES),
    (slices_are_the_whole, SIZES),
    (sums_need_no_decoding, SIZES),
    (others_do_not_stay, (7, 1000)),
    (alike_every_time, (7, 1000)),
    (others_are_refused, (7, 999)),
    (memory_is_bounded, (20_000,)),
)


def laws(place: str, codecs: Chain, seed: int, contributions: bool) -> Laws:
    """Yield the laws of the chain that a plugin puts on one kind of link.

    Args:
        place: The link, in words.
        codecs: The plugin's codecs for the link.
        seed: Seed of all values.
        contributions: Whether gradients or changes are sent, of which nothing may be lost for good.
    """
    for law, sizes in (*_LAWS, *([(nothing_is_lost, (1500,))] if contributions else [])):
        text = (law.__doc__ or "").split("\n")[0].rstrip(".")
        for size in sizes:
            yield f"{place}: {text}", partial(law, codecs, size, seed)
