"""Integers of few bits in bytes, for packed codecs in Python."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pack_bits(numbers: ArrayLike, bits: int) -> NDArray[np.uint8]:
    """Pack integers of a few bits each, along the last axis.

    The first number is in the lowest bits of the first byte, as in the codecs of the core; the last
    byte is filled up with zeros.

    Args:
        numbers: Integers from 0 to 2^bits - 1, such as ``[chunks, numbers of a chunk]``.
        bits: Of each number, 1 to 32.

    Returns:
        Bytes, of the same shape with ceil(n bits / 8) instead of the last length n.

    Raises:
        ValueError: A number does not fit, or `bits` is out of range.

    Example:
        >>> pack_bits([[1, 2, 3], [0, 0, 15]], 4)
        array([[33,  3],
               [ 0, 15]], dtype=uint8)
    """
    _check(bits)
    given = np.asarray(numbers, dtype=np.int64)
    if given.size > 0 and not (given.min() >= 0 and given.max() < 2**bits):
        raise ValueError(f"numbers of {bits} bits are 0 to {2**bits - 1}")
    single = (given[..., np.newaxis] >> np.arange(bits)).astype(np.uint8) & 1
    return np.packbits(single.reshape(*given.shape[:-1], -1), axis=-1, bitorder="little")


def unpack_bits(packed: NDArray[np.uint8], count: int, bits: int) -> NDArray[np.uint32]:
    """Return the integers that `pack_bits` has packed.

    Args:
        packed: Bytes; the last axis has at least ceil(count bits / 8).
        count: Number of integers along the last axis.
        bits: Of each number, 1 to 32.

    Returns:
        The integers, with `count` as the last length.

    Raises:
        ValueError: There are too few bytes, or `bits` is out of range.

    Example:
        >>> unpack_bits(np.array([33, 3], np.uint8), 3, 4)
        array([1, 2, 3], dtype=uint32)
    """
    _check(bits)
    if 8 * packed.shape[-1] < count * bits:
        raise ValueError(f"{packed.shape[-1]} bytes are too few for {count} numbers of {bits} bits")
    single = np.unpackbits(packed, axis=-1, count=count * bits, bitorder="little")
    weights = np.left_shift(np.uint32(1), np.arange(bits, dtype=np.uint32), dtype=np.uint32)
    apart = single.reshape(*packed.shape[:-1], count, bits)
    numbers: NDArray[np.uint32] = (apart * weights).sum(axis=-1, dtype=np.uint32)
    return numbers


def _check(bits: int) -> None:
    if not 1 <= bits <= 32:
        raise ValueError(f"{bits} bits: must be 1 to 32")
