"""The nouns that plugins answer hooks with. Hooks build them; they do the work afterwards.

Everything on the data path (codecs, slicers, party policies, coordinators, optimizers) is either
*native*, named by a `Native` (compiled with the core from the plugin's own folder or, for codecs,
in a shared library of the plugin's), or a Python object with the methods below, which the core
calls with the interpreter lock held. Decisions that are taken per tensor or per local step are
always Python.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from geomx.workload import TensorSpec

__all__ = [
    "BySize",
    "Codec",
    "Native",
    "Optimizer",
    "Partitioner",
    "Placement",
    "Shard",
    "Slicer",
    "cut_evenly",
    "native_options",
]


@dataclass(frozen=True)
class Native:
    """A part compiled into the core or into a shared library, by name.

    Attributes:
        kind: ``codec``, ``slicer``, ``policy`` or ``coordinator``.
        name: As registered by the plugin's C++ source.
        options: Numbers only (booleans count as 0 and 1).
        library: Codecs only: the path of the shared library (geomx/include/geomx/codec.h); empty
            for a codec that was compiled into the core.
        grace_s: Slicers only: seconds for which a receiver waits for best-effort slices after the
            reliable ones of a round have arrived.

    Example:
        >>> Native("codec", "mine", {"ratio": 0.01}).options
        {'ratio': 0.01}
    """

    kind: str
    name: str
    options: Mapping[str, float] = field(default_factory=dict)
    grace_s: float = 0.0
    library: str = ""


def native_options(config: Any, **others: float) -> dict[str, float]:
    """Return the options of a native part from the dataclass that declares them.

    The native part reads each option under the name of its field.

    Args:
        config: An instance of the dataclass. Booleans count as 0 and 1, and None as 0; fields that
            are not numbers are left out.
        others: Additional numbers, which follow from the link or the cluster, and numbers that
            replace options of the same name.

    Returns:
        Numbers by name, for `Native`.
    """
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    numbers = {name: 0.0 if value is None else value for name, value in fields.items()}
    return {
        name: float(value)
        for name, value in (numbers | others).items()
        if isinstance(value, int | float)
    }


@dataclass(frozen=True)
class Shard:
    """A piece of a tensor that is synchronised on its own.

    Attributes:
        offset: First element within the tensor.
        elements: Number of elements.
        priority: Larger leaves first, on every hop and in both directions.
    """

    offset: int
    elements: int
    priority: int = 0


class Partitioner:
    """Cuts tensors into shards. Partitioners chain, each refining what the one before returned.

    Example:
        >>> class Halves(Partitioner):
        ...     def cut(self, tensor, priority, shards):
        ...         return [half for shard in shards for half in cut_evenly(shard, 5)]
        >>> Halves().cut(TensorSpec("weight", (10,), 0), 0, [Shard(0, 10)])
        [Shard(offset=0, elements=5, priority=0), Shard(offset=5, elements=5, priority=0)]
    """

    def cut(self, tensor: TensorSpec, priority: int, shards: Sequence[Shard]) -> list[Shard]:
        """Cut the shards of one tensor further.

        Args:
            tensor: The tensor that the shards belong to.
            priority: What the training loop asks for: minus the tensor's position, so that the
                first layers, which the next forward pass needs first, come first.
            shards: What earlier partitioners made; at first one shard for the whole tensor, of
                priority 0.

        Returns:
            Shards that cover what `shards` cover, in order of offset.
        """
        raise NotImplementedError


class Placement:
    """Which global server holds which shard.

    Example:
        >>> class ByKey(Placement):
        ...     def server(self, key, shard, shards):
        ...         return key % 2
        >>> ByKey().server(3, 0, [Shard(0, 10)])
        1
    """

    def server(self, key: int, shard: int, shards: Sequence[Shard]) -> int:
        """Choose the global server of one shard.

        Args:
            key: Position of the tensor among all tensors.
            shard: Position of the shard in `shards`.
            shards: All shards of the tensor.

        Returns:
            Index of the global server, from 0; the same on every node for the same arguments.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class ByTurns(Placement):
    """The default placement: shard i of key k goes to server (k + i) mod n."""

    servers: int

    def server(self, key: int, shard: int, shards: Sequence[Shard]) -> int:
        """See `Placement.server`."""
        return (key + shard) % self.servers


@runtime_checkable
class Optimizer(Protocol):
    """An optimizer written in Python; a deep copy of it updates each shard.

    Example:
        >>> class Signs:
        ...     def update(self, weight, gradient, learning_rate):
        ...         return weight - np.float32(learning_rate) * np.sign(gradient)
        >>> isinstance(Signs(), Optimizer)
        True
        >>> Signs().update(np.zeros(2, np.float32), np.array([3, -1], np.float32), 0.5)
        array([-0.5,  0.5], dtype=float32)
    """

    def update(
        self, weight: NDArray[np.float32], gradient: NDArray[np.float32], learning_rate: float
    ) -> NDArray[np.float32]:
        """Make one update of a shard.

        Args:
            weight: The weights, float32 of the shard's length.
            gradient: Of the same shape, scaled and clipped as the workload says.
            learning_rate: Of this update, after the workload's schedule.

        Returns:
            The new weights, float32 of the same shape.
        """
        ...


Parts = dict[str, NDArray[Any]]


@runtime_checkable
class Codec(Protocol):
    """A codec written in Python; its attributes are its state.

    The dense input is ``{"values": float32[n]}``. Arrays whose length is the number of rows are cut
    into slices together; name those that must stay in one piece in `whole` (they travel in the
    first slice), or in ``in_every_slice``, where there is that attribute: small ones such as a
    scale. A codec that keeps some rows only adds ``"indices"``, uint32, one per row. What a hook
    returns is a prototype: every shard on every link works on a deep copy of it.

    With ``linear = True`` a codec says that encodings of different senders add up: all its parts
    are float32, it chooses no rows, and the sum of what they encoded decodes to the sum of what
    each decodes to. Servers then add parts and decode once; where the sum comes back
    (`Link.summed`) it comes as it is. There a method ``settle(parts)`` is called, if there is one,
    with that sum after it was decoded, on all senders in the same rounds.

    Attributes:
        whole: Names of the parts that are never cut.
        survives_holes: Whether a slice can be decoded without the others.

    Example:
        >>> class Half:
        ...     whole = frozenset()
        ...     survives_holes = True
        ...     def layout(self, spec):
        ...         return {"values": (spec["values"][0], "f2")}
        ...     def encode(self, parts):
        ...         return {"values": parts["values"].astype("f2")}
        ...     def decode(self, parts, length):
        ...         return {"values": parts["values"].astype("f4")}
        >>> codec = Half()
        >>> isinstance(codec, Codec)
        True
        >>> values = np.array([1.0, 1 / 3], np.float32)
        >>> codec.decode(codec.encode({"values": values}), 2)["values"]
        array([1.        , 0.33325195], dtype=float32)
    """

    whole: frozenset[str]
    survives_holes: bool

    def layout(self, spec: Mapping[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
        """Say what `encode` makes, without making it; simulations of sizes need nothing else.

        Args:
            spec: (length, numpy dtype) of each part of the input, by name.

        Returns:
            (length, numpy dtype) of each part of the result, by name.
        """
        ...

    def encode(self, parts: Parts) -> Parts:
        """Encode the parts of one shard.

        Args:
            parts: One-dimensional arrays by name, as `layout` was told.

        Returns:
            One-dimensional arrays by name, as `layout` promised.
        """
        ...

    def decode(self, parts: Parts, length: int) -> Parts:
        """Undo `encode` for one slice.

        Args:
            parts: The slice's rows of what `encode` made, and the parts that are never cut. Lengths
                and types are as promised; the content came over a network.
            length: Number of rows in this slice, or of elements where all parts are whole.

        Returns:
            ``{"values": float32[length]}``, and ``"indices"`` where `parts` have them.

        Raises:
            Refused: The bytes are none that `encode` makes.
        """
        ...


@dataclass(frozen=True)
class BySize:
    """Codecs that depend on the size of the shard, chosen when the shard is first sent.

    Attributes:
        bound: A shard of at least this many elements is large.
        small: Codecs in order for shards below the bound; empty for dense float32.
        large: Codecs in order for the others.
    """

    bound: int
    small: Sequence[Codec | Native] = ()
    large: Sequence[Codec | Native] = ()


@runtime_checkable
class Slicer(Protocol):
    """A slicer written in Python; every shard on every link works on a deep copy of it.

    Example:
        >>> class LastFirst:
        ...     def cut(self, slices, row_bytes, round_number):
        ...         return [(first, rows, first, 0) for first, rows, _, _ in slices]
        >>> isinstance(LastFirst(), Slicer)
        True
        >>> LastFirst().cut([(0, 8, 0, 0), (8, 8, 0, 0)], 4.0, 1)
        [(0, 8, 0, 0), (8, 8, 8, 0)]
    """

    def cut(
        self, slices: Sequence[tuple[int, int, int, int]], row_bytes: float, round_number: int
    ) -> list[tuple[int, int, int, int]]:
        """Cut encoded rows into the slices that become messages.

        Args:
            slices: (first row, rows, priority, channel) of each slice that earlier slicers made.
            row_bytes: Bytes of one row.
            round_number: Of this shard.

        Returns:
            Slices in the same form that cover the same rows. First rows are multiples of 8. Of a
            larger priority leaves first; channel 0 is reliable, 1 to 63 may lose.
        """
        ...


def optimizer_text(optimizer: Mapping[str, Any]) -> str:
    """Return an optimizer as sent to servers: its name, then one ``option value`` per line."""
    lines = [str(optimizer["name"])]
    lines += [f"{name} {float(value)!r}" for name, value in optimizer.items() if name != "name"]
    return "\n".join(lines) + "\n"


def cut_evenly(shard: Shard, elements: int) -> list[Shard]:
    """Cut a shard into pieces that are as equal as possible, in the same places as GeoMX.

    Args:
        shard: What to cut.
        elements: The most that a piece may hold, 1 or more.

    Returns:
        The pieces, in order of offset, with the shard's priority.

    Example:
        >>> [(piece.offset, piece.elements) for piece in cut_evenly(Shard(0, 10), 4)]
        [(0, 3), (3, 4), (7, 3)]
    """
    pieces = -(-shard.elements // elements)
    bounds = [(2 * shard.elements * i + pieces) // (2 * pieces) for i in range(pieces + 1)]
    return [
        replace(shard, offset=shard.offset + start, elements=end - start)
        for start, end in pairwise(bounds)
    ]


def as_vector(array: NDArray[Any]) -> NDArray[np.float32]:
    """Return `array` as a contiguous float32 vector, copied only if necessary."""
    return np.ascontiguousarray(array, dtype=np.float32).reshape(-1)
