"""The keys of a key-value store: what each is called on the wire, and how its tensor is cut.

Whoever introduces the same keys with the same shapes in the same order comes to the same numbers,
shards and places, without asking anybody; that is how workers, and global servers that are given
initial values by their own process, agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from geomx.cluster import Cluster
from geomx.errors import GeomxError
from geomx.experiment import wiring
from geomx.experiment.wiring import PlacedShard
from geomx.kv.values import Key
from geomx.plugin.selection import Selection
from geomx.workload import TensorSpec


@dataclass(frozen=True)
class Entry:
    """An introduced key: its number on the wire, the tensor's shape, its shards, and itself."""

    key: int
    shape: tuple[int, ...]
    shards: tuple[PlacedShard, ...]
    name: Key

    @property
    def elements(self) -> int:
        """Of the whole tensor."""
        return sum(count for _, count, _, _ in self.shards)


class Keys:
    """All keys of one store, in the order of their introduction.

    Args:
        cluster: Who takes part.
        selection: Its plugins cut and place.
    """

    def __init__(self, cluster: Cluster, selection: Selection) -> None:
        self._cluster = cluster
        self._selection = selection
        self._entries: dict[Key, Entry] = {}
        self._tensors: list[TensorSpec] = []
        self._kind: type | None = None  # of the keys, once there is one

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def entry(self, key: Key) -> Entry:
        """What is known of `key`.

        Raises:
            GeomxError: It was never initialised.
        """
        found = self._entries.get(key)
        if found is None:
            raise GeomxError(f"key {key!r} was never initialised: call init first")
        return found

    def check_shape(self, key: Key, shape: Sequence[int]) -> None:
        """Refuse an array of another shape than `key` was initialised with."""
        expected = self._entries[key].shape
        if tuple(shape) != expected:
            raise GeomxError(f"key {key!r} has shape {expected}, not {tuple(shape)}")

    def admit(self, keys: Sequence[tuple[Key, tuple[int, ...]]]) -> list[Entry]:
        """Introduce keys with their shapes.

        Raises:
            GeomxError: One is there already, mixes with keys of the other kind, or has no elements.
        """
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
                raise GeomxError(f"key {key!r}: whole numbers and text cannot both be keys")
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
            key: Entry(numbers[key], shape, tuple(pieces), key)
            for (key, shape), pieces in zip(keys, shards, strict=True)
        }
        self._entries |= fresh
        return list(fresh.values())
