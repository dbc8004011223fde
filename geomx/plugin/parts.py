"""The objects that hooks return, and that geomx calls during a run.

A part of the data path (codec, slicer, party policy, coordinator, optimizer) is either *native* or
a Python object. A native part is named by a `Native`, and is compiled with the core from the
plugin's folder or, if it is a codec, loaded from a shared library. A Python object has the methods
below, which the core calls with the interpreter lock held. Parts that are called once per tensor or
per local step are always Python objects.
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
    """The name and options of a part that is compiled into the core or into a shared library.

    Attributes:
        kind: ``codec``, ``slicer``, ``policy``, ``rounds`` or ``coordinator``.
        name: As registered by the plugin's C++ source.
        options: Numbers by name; booleans are converted to 0 and 1.
        library: Codecs only: the path of the shared library (geomx/include/geomx/codec.h); empty
            for a codec that was compiled into the core.
        grace_s: Slicers only: seconds for which a receiver waits for best-effort slices after the
            reliable ones of a round have arrived.
        best_effort: Slicers only: whether some slices are best effort.

    Example:
        >>> Native("codec", "mine", {"ratio": 0.01}).options
        {'ratio': 0.01}
    """

    kind: str
    name: str
    options: Mapping[str, float] = field(default_factory=dict)
    grace_s: float = 0.0
    library: str = ""
    best_effort: bool = False


def native_options(config: Any, **others: float) -> dict[str, float]:
    """Return the options of a native part from the dataclass that declares them.

    The native part reads each option under the name of its field.

    Args:
        config: An instance of the dataclass. Booleans count as 0 and 1, and None as 0; fields that
            are not numbers are left out.
        others: Additional numbers that depend on the link or the cluster, and numbers that replace
            options of the same name.

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
    """A piece of a tensor that is synchronised independently.

    Attributes:
        offset: First element within the tensor.
        elements: Number of elements.
        priority: Shards with a larger value are sent first, on every hop and in both directions.
    """

    offset: int
    elements: int
    priority: int = 0


class Partitioner:
    """Divides tensors into shards; in a chain, each partitioner divides those of the previous one.

    Example:
        >>> class Halves(Partitioner):
        ...     def cut(self, tensor, priority, shards):
        ...         return [half for shard in shards for half in cut_evenly(shard, 5)]
        >>> Halves().cut(TensorSpec("weight", (10,), 0), 0, [Shard(0, 10)])
        [Shard(offset=0, elements=5, priority=0), Shard(offset=5, elements=5, priority=0)]
    """

    def cut(self, tensor: TensorSpec, priority: int, shards: Sequence[Shard]) -> list[Shard]:
        """Divide the shards of one tensor further.

        Args:
            tensor: The tensor.
            priority: The training loop's priority for the tensor: minus its position, because the
                next forward pass needs the first layers first.
            shards: The shards from earlier partitioners; initially the whole tensor as one shard
                with priority 0.

        Returns:
            Shards that cover the tensor, in order of offset.
        """
        raise NotImplementedError


class Placement:
    """Assigns shards to global servers.

    Example:
        >>> class ByKey(Placement):
        ...     def server(self, key, shard, shards):
        ...         return key % 2
        >>> ByKey().server(3, 0, [Shard(0, 10)])
        1
    """

    def server(self, key: int, shard: int, shards: Sequence[Shard]) -> int:
        """Return the global server of one shard.

        Args:
            key: Position of the tensor among all tensors.
            shard: Position of the shard in `shards`.
            shards: All shards of the tensor.

        Returns:
            Index of the global server, from 0. Must be the same on every node for equal arguments.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class ByTurns(Placement):
    """The default placement: shard i of key k is stored on server (k + i) mod n."""

    servers: int

    def server(self, key: int, shard: int, shards: Sequence[Shard]) -> int:
        """See `Placement.server`."""
        return (key + shard) % self.servers


@runtime_checkable
class Optimizer(Protocol):
    """An optimizer written in Python; each shard is updated by its own deep copy.

    If it has attributes, its state is stored (``resume``, checkpoints) by ``save()``, which returns
    a float32 vector of any length, and restored by ``load(vector)``. Both are optional; without
    them, such runs are refused.

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
        """Compute one update of a shard.

        Args:
            weight: The weights, float32 of the shard's length.
            gradient: The gradient, of the same shape, after the workload's scaling and clipping.
            learning_rate: The learning rate of this update, after the workload's schedule.

        Returns:
            The new weights, float32 of the same shape.
        """
        ...


Parts = dict[str, NDArray[Any]]


@runtime_checkable
class Codec(Protocol):
    """A codec written in Python; its attributes are its state.

    The dense input is ``{"values": float32[n]}``. Encoded arrays with one entry per row are divided
    into slices together. Arrays named in `whole` stay in one piece and are sent in the first slice;
    small arrays, such as a scale, may instead be named in the optional attribute
    ``in_every_slice``. A codec that selects rows adds ``"indices"``, uint32, one per row. A packed
    array has one entry per chunk of rows, for example its scale, or as many bytes as all that is
    sent of it takes; chunks are never divided. The object that a hook returns is a prototype: each
    shard on each link has its own deep copy.

    ``linear = True`` promises that encodings can be added: all parts are float32, no rows are
    selected, and the sum of encodings decodes to the sum of the decoded values. Servers then add
    the parts of all senders and decode once. On links where the sum is returned (`Link.summed`), it
    is not decoded on the way; the optional method ``settle(parts)`` is called with that sum after
    it has been decoded, on all senders in the same rounds.

    The optional method ``residual_norm()`` returns the Euclidean norm of what the codec keeps of
    earlier values for later ones (error feedback), a float. It is called for metrics only.

    Attributes:
        whole: Names of the parts that are never divided.
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

    def layout(self, spec: Mapping[str, tuple[int, str]]) -> dict[str, tuple[Any, ...]]:
        """Return the sizes and types of what `encode` would return.

        Simulations without gradients call this instead of `encode` and `decode`.

        Args:
            spec: (length, numpy dtype) of each part of the input, by name.

        Returns:
            (length, numpy dtype) of each part of the result, by name; of a packed part (length,
            dtype, rows per entry), with a multiple of 8 rows and one entry for each of as many rows
            as there are or begun. Entries of other widths than numbers have are rows of bytes, such
            as ``np.dtype(("u1", (34,)))``.
        """
        ...

    def encode(self, parts: Parts) -> Parts:
        """Encode the parts of one shard.

        Args:
            parts: One-dimensional arrays by name, as in `layout`'s argument.

        Returns:
            Arrays by name, as `layout` returned; one-dimensional, except for rows of bytes.
        """
        ...

    def decode(self, parts: Parts, length: int) -> Parts:
        """Decode one slice.

        Args:
            parts: The slice's rows of the encoded arrays, and the parts that are never divided.
                Lengths and types are as `layout` returned; the content comes from the network and
                may be anything.
            length: Number of rows in this slice, or of elements if all parts are whole.

        Returns:
            ``{"values": float32[length]}``, and ``"indices"`` if `parts` contain them.

        Raises:
            Refused: `encode` cannot have produced these bytes.
        """
        ...


@dataclass(frozen=True)
class BySize:
    """Codecs that depend on the size of the shard, selected when the shard is first sent.

    Attributes:
        bound: Number of elements from which a shard is large.
        small: Codecs in order for shards below the bound; empty for dense float32.
        large: Codecs in order for the others.
    """

    bound: int
    small: Sequence[Codec | Native] = ()
    large: Sequence[Codec | Native] = ()


@runtime_checkable
class Slicer(Protocol):
    """A slicer written in Python; each shard on each link has its own deep copy.

    A slicer that sends slices best effort says so by an attribute ``best_effort = True``, since
    some overlays need every slice (`Overlay.reliable`).

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
        """Divide encoded rows into slices, each of which becomes a message.

        Args:
            slices: (first row, rows, priority, channel) of each slice from earlier slicers.
            row_bytes: Bytes of one row.
            round_number: Round of this shard, from 1.

        Returns:
            Slices in the same form that cover the same rows. First rows are multiples of 8; where
            chunks are packed, geomx moves cuts to the end of their chunk. Slices
            with a larger priority, which has 32 bits with a sign, are sent first. Channel 0 is
            reliable, 1 to 63 are best effort.
        """
        ...


def optimizer_text(optimizer: Mapping[str, Any]) -> str:
    """Return an optimizer as sent to servers: its name, then one ``option value`` per line."""
    lines = [str(optimizer["name"])]
    lines += [f"{name} {float(value)!r}" for name, value in optimizer.items() if name != "name"]
    return "\n".join(lines) + "\n"


_COMMON = ("learning_rate", "wd", "clip_gradient", "begin_num_update")
_COMMON_OF = ("schedule.", "lr_mult.", "wd_mult.")


def common_options(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an optimizer that any other has too, to run that in its place.

    Args:
        optimizer: Its name and options, as `SyncPolicy.global_optimizer` receives them.

    Returns:
        Its rate with schedule, decay and clipping, and the multipliers of keys; not how sums of
        gradients are scaled, which sync policies decide.

    Example:
        >>> common_options({"name": "adam", "learning_rate": 0.1, "beta1": 0.9, "wd": 0.01})
        {'learning_rate': 0.1, 'wd': 0.01}
    """
    return {
        option: value
        for option, value in optimizer.items()
        if option in _COMMON or option.startswith(_COMMON_OF)
    }


def cut_evenly(shard: Shard, elements: int) -> list[Shard]:
    """Divide a shard into pieces of sizes as equal as possible, at the same offsets as GeoMX.

    Args:
        shard: The shard.
        elements: Upper bound on the elements of a piece, 1 or more.

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
