"""Small arrays of many keys, which one call of the loop moves instead of one for each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.frameworks import tensors
from geomx.kv.beginning import Beginning
from geomx.kv.departure import Departure
from geomx.kv.gradients import GradientCheck
from geomx.kv.keys import Entry
from geomx.kv.place import Place
from geomx.kv.values import Key, check_fits, narrow
from geomx.live.exchange import ArrayExchange, Exchange
from geomx.live.sync_steps import SyncSteps

SMALL_BYTES = 2**16
"""A larger array takes longer than a call."""

TOGETHER_BYTES = 2**20
"""Of one call: the first arrays are under way while the next are being prepared."""


def others(
    given: Iterable[tuple[Key, Any]],
    admit: Callable[[Key, NDArray[np.float32]], int],
    move: Callable[[list[int], list[NDArray[np.float32]]], None],
) -> Iterator[tuple[Key, Any]]:
    """Have runs of small float32 arrays moved together; yield all else, in order, for the caller.

    Args:
        given: Keys with what belongs to them.
        admit: Returns the number of a key, after all checks. What comes before a key that it
            refuses is moved.
        move: Moves arrays, given the numbers of their keys.

    Yields:
        A key with what belongs to it, when all before it has been moved.
    """
    numbers: list[int] = []
    arrays: list[NDArray[np.float32]] = []
    size = 0
    try:
        for key, value in given:
            small = (
                type(value) is np.ndarray
                and value.nbytes <= SMALL_BYTES
                and value.dtype == np.float32
                and value.flags.c_contiguous
            )
            if small:
                numbers.append(admit(key, value))
                arrays.append(value)
                size += value.nbytes
            if numbers and (not small or size >= TOGETHER_BYTES):
                move(numbers, arrays)
                numbers, arrays, size = [], [], 0
            if not small:
                yield key, value
    finally:
        if numbers:
            move(numbers, arrays)


class ManyKeys(Place):
    """The part of a store that moves the small arrays among those of many keys together."""

    closes_at_end = False
    """Whether the program's end closes the store, and others must then know if it has failed."""
    exchange: Exchange
    _rhythm: SyncSteps | None
    _departure: Departure
    _pulled: set[int]
    _lends: bool
    _beginning: Beginning
    _rounds: int

    @abstractmethod
    def entry(self, key: Key) -> Entry:
        """See `KVStore.entry`."""

    @abstractmethod
    def check_shape(self, key: Key, shape: Sequence[int]) -> None:
        """See `KVStore.check_shape`."""

    @abstractmethod
    def fetch(self, entry: Entry, out: Sequence[Any], priority: int) -> None:
        """See `KVStore.fetch`."""

    def pushing(self, given: Iterable[tuple[Key, Any]]) -> Iterable[tuple[Key, Any]]:
        """Push small arrays; yield what the caller has to push; see `others`."""
        exchange = self.exchange
        if not isinstance(exchange, ArrayExchange):
            return given

        def admit(key: Key, array: NDArray[np.float32]) -> int:
            entry = self._checked(key, array)
            self.count(entry, array)
            return entry.key

        def move(keys: list[int], arrays: list[NDArray[np.float32]]) -> None:
            exchange.push_all(keys, arrays, self.last)
            self.member.pushed()

        return others(given, admit, move)

    def pulling(self, given: Iterable[tuple[Key, Any]]) -> Iterable[tuple[Key, Any]]:
        """Fill small arrays; yield what the caller has to fill; see `others`."""
        exchange = self.exchange
        if not isinstance(exchange, ArrayExchange):
            return given

        def move(keys: list[int], arrays: list[NDArray[np.float32]]) -> None:
            exchange.pull_all(keys, arrays)
            self._pulled.update(keys)

        return others(given, lambda key, array: self._checked(key, array).key, move)

    def fill(self, entry: Entry, targets: Sequence[Any], priority: int) -> None:
        """Fill arrays with the value of a key, all of them or none.

        Args:
            entry: Entry of the key.
            targets: Arrays of the key's shape.
            priority: See `KVStore.push`.

        Raises:
            GeomxError: The value does not fit the type of one of them.
        """
        own = type(self.exchange) is ArrayExchange  # frameworks convert by themselves
        types = [narrow(target) for target in targets] if own else []
        if not any(types):
            return self.fetch(entry, targets, priority)
        value = np.empty(entry.shape, np.float32)
        self.fetch(entry, [value], priority)
        for type_ in filter(None, types):
            check_fits(entry.name, value, type_)
        for target in targets:
            if tensors.is_tensor(target):
                tensors.write(value.reshape(-1), target)
            else:
                target[...] = value

    def take_arrivals(self) -> float:
        """Return the arrival time of the last value that was pulled since the previous call.

        Returns:
            Seconds since the start of the run; 0.0 if none was pulled.
        """
        pulled, self._pulled = self._pulled, set()
        return max((self.exchange.wait(key) for key in pulled), default=0.0)

    def lending(self, key: Any, filled: Any) -> AbstractContextManager[None]:
        """Have arrays pushed without a copy, if they change only when their answers are in.

        Args:
            key: A key, or a list of them.
            filled: Arrays that are pushed and then filled; no others are, before all answers are
                in. None: nothing is known.
        """
        exchange = self.exchange
        arrays = filled if isinstance(key, list | tuple) else [filled]
        if not self._lends or not isinstance(exchange, ArrayExchange):
            return nullcontext()
        if not isinstance(arrays, list | tuple):
            return nullcontext()
        whole = all(type(array) is np.ndarray and array.base is None for array in arrays)
        none_twice = len({id(array) for array in arrays}) == len(arrays)
        return exchange.borrowing() if whole and none_twice else nullcontext()

    @property
    def last(self) -> bool:
        """Whether pushes are the last of their keys, as of a rhythm's last step."""
        return self._rhythm is not None and self._rhythm.last

    def count(self, entry: Entry, value: Any) -> None:
        """Count a push of a key, unless a rhythm counts steps.

        Args:
            entry: Entry of the key.
            value: What is about to be pushed.

        Raises:
            Left: The worker leaves the job, and this push would begin another step.
        """
        self._beginning.load_states()
        if self._rhythm is None:
            self._departure.count(entry.key)
            self._gradients.look(self.exchange, entry.key, entry.name, value)

    @property
    def goes_on(self) -> bool:
        """Whether this process replaces a lost one of a job with rounds, and has not pushed yet."""
        return self.member.late and self._rounds > 0 and not self._departure.steps

    def load_states(self) -> None:
        """See `Beginning.load_states`; the first push calls it."""
        self._beginning.load_states()

    @cached_property
    def _gradients(self) -> GradientCheck:
        return GradientCheck(self.member)

    def _checked(self, key: Key, array: NDArray[np.float32]) -> Entry:
        entry = self.entry(key)
        if array.shape != entry.shape:
            self.check_shape(key, array.shape)
        return entry
