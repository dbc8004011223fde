"""The keys of a key-value store: their numbers on the wire, and the shards of their tensors.

Processes that initialise the same keys with the same shapes in the same order arrive at the same
numbers, shards and placement without communication. That is how workers agree, and global servers
that get initial values from their own process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from geomx.cluster import Cluster
from geomx.errors import GeomxError
from geomx.experiment import streaming, wiring
from geomx.experiment.wiring import PlacedShard
from geomx.kv.values import Key
from geomx.plugin.selection import Selection
from geomx.workload import TensorSpec


@dataclass(frozen=True)
class Entry:
    """An initialised key: its number on the wire, its tensor's shape and shards, and itself."""

    key: int
    shape: tuple[int, ...]
    shards: tuple[PlacedShard, ...]
    name: Key

    @property
    def elements(self) -> int:
        """Number of elements of the whole tensor."""
        return sum(count for _, count, _, _ in self.shards)


class Keys:
    """All keys of one store, in the order of their initialisation.

    Args:
        cluster: Nodes of the job.
        selection: Plugins of the job, which cut and place tensors.
        streams: Whether large shards are divided further; see `streaming.streams`.

    Attributes:
        closed: Whether the store was closed, after which no key can be used.
    """

    def __init__(self, cluster: Cluster, selection: Selection, streams: bool = False) -> None:
        self._cluster = cluster
        self._selection = selection
        self._streams = streams
        self._entries: dict[Key, Entry] = {}
        self._tensors: list[TensorSpec] = []
        self._kind: type | None = None  # type of the keys, once there is one
        self.closed = False

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def entry(self, key: Key) -> Entry:
        """Return the entry of `key`.

        Raises:
            GeomxError: It was never initialised, or the store was closed.
        """
        self.check_open()
        found = self._entries.get(key)
        if found is None:
            raise GeomxError(f"key {key!r} was never initialised: call init first")
        return found

    def check_open(self) -> None:
        """Check that the store is open.

        Raises:
            GeomxError: It was closed.
        """
        if self.closed:
            raise GeomxError(
                "the store was closed, which ends this worker's part in the job; close it after "
                "the last push and pull"
            )

    def check_shape(self, key: Key, shape: Sequence[int]) -> None:
        """Check the shape of an array.

        Args:
            key: The key.
            shape: Shape of the array.

        Raises:
            GeomxError: It differs from the shape that `key` was initialised with; or see `entry`.
        """
        expected = self.entry(key).shape
        if tuple(shape) != expected:
            raise GeomxError(f"key {key!r} has shape {expected}, not {tuple(shape)}")

    def admit(self, keys: Sequence[tuple[Key, tuple[int, ...]]]) -> list[Entry]:
        """Add keys.

        Args:
            keys: Keys with their shapes.

        Returns:
            Their entries, in order.

        Raises:
            GeomxError: A key exists already, mixes with keys of the other type, or has no elements;
                or the store was closed.
        """
        self.check_open()
        numbers: dict[Key, int] = {}
        kind = self._kind
        for key, shape in keys:
            if key in self._entries or key in numbers:
                raise GeomxError(
                    f"key {key!r} is initialised twice: a process has one store, in which every "
                    "tensor needs a key of its own"
                )
            kind = kind or type(key)
            if type(key) is not kind:
                raise GeomxError(f"key {key!r}: keys must be either all integers or all strings")
            if 0 in shape:
                raise GeomxError(f"key {key!r} has no elements")
            numbers[key] = key if isinstance(key, int) else len(self._entries) + len(numbers)
        known = len(self._tensors)
        self._tensors += [TensorSpec(str(key), shape, 0) for key, shape in keys]
        try:
            shards = wiring.shards(self._cluster, self._selection, self._tensors, first=known)
        except BaseException:
            del self._tensors[known:]
            raise
        self._kind = kind
        fresh = {
            key: Entry(numbers[key], shape, self._cut(pieces), key)
            for (key, shape), pieces in zip(keys, shards, strict=True)
        }
        self._entries |= fresh
        return list(fresh.values())

    def _cut(self, shards: Sequence[PlacedShard]) -> tuple[PlacedShard, ...]:
        return tuple(streaming.streamed(shards) if self._streams else shards)
