"""Pushes and pulls a framework's arrays through a loop.

The worker's program is the same for every framework; only the type of arrays differs. `Exchange` is
the interface, and `ArrayExchange` its implementation for numpy. `geomx.live.mxnet_exchange`
implements it for MXNet, whose engine executes both operations, and `geomx.live.torch_exchange` for
PyTorch.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from geomx import _core
from geomx.frameworks import tensors
from geomx.live.member import naming_the_lost
from geomx.live.script_calls import FOREVER_S
from geomx.plugin.parts import as_vector


class Exchange(Protocol):
    """Pushes and pulls tensors. Round n of a key is its n-th push; round 0 is its initial value."""

    def declare(self, key: int, shape: Sequence[int]) -> None:
        """Prepare for the tensor number `key`."""
        ...

    def push(
        self,
        key: int,
        array: Any,
        *,
        priority: int = 0,
        loss: float = math.nan,
        last: bool = False,
        not_before_s: float = 0.0,
    ) -> None:
        """Contribute `array` to the key's next round, after all operations that write to it.

        Args:
            key: Number of a declared tensor.
            array: An array of the declared shape, or a list of tensors on devices, which are added
                there.
            priority: Priority for the framework's own scheduler.
            loss: The worker's last training loss.
            last: Whether this is the last push of the key.
            not_before_s: Earliest time of sending, in seconds since the start of the run.
        """
        ...

    def pull(self, key: int, out: Sequence[Any], *, priority: int = 0) -> None:
        """Fill every array of `out` with the value after the last push (0: the initial value)."""
        ...

    def wait(self, key: int) -> float:
        """Wait for the value of a tensor; return its time of arrival.

        Args:
            key: Number of the tensor.

        Returns:
            The time of arrival, in seconds since the start of the run.

        Raises:
            NodeLost: The value will never arrive.
        """
        ...

    def go_on(self, key: int) -> int:
        """Continue counting rounds from that of the received value, which other workers reached.

        Args:
            key: Number of a tensor whose value has arrived, and that has not been pushed yet.

        Returns:
            The round of the value.
        """
        ...

    def restore(self, key: int, number: int) -> None:
        """Count rounds of `key` from `number` on, where the killed process of this worker was.

        Args:
            key: Number of a tensor that was not pushed yet.
            number: Of the round of its value.
        """
        ...

    def flush(self) -> None:
        """Wait until all pushes have reached the loop, so that later messages are sent after them.

        In frameworks with an engine, operations that push may not have been executed yet.
        """
        ...

    def settle(self, arrays: Sequence[Any]) -> None:
        """Wait until `arrays` have been computed."""
        ...

    def copy(self, array: Any) -> Any:
        """Return a copy of `array` after it has been computed; later pulls do not change it."""
        ...


def received(exchange: Exchange, loop: _core.Loop, key: int, elements: int) -> NDArray[np.float32]:
    """Wait for the value after the last push; return a copy, flat.

    For values that are not simply taken: `Exchange.pull` fills arrays.

    Args:
        exchange: The exchange of a worker.
        loop: Its loop.
        key: Number of the tensor.
        elements: Its elements.

    Raises:
        NodeLost: The value will never arrive.
    """
    exchange.wait(key)
    value = np.empty(elements, np.float32)
    loop.value(key, value)
    return value


class ArrayExchange:
    """`Exchange` for numpy arrays; `push` returns at once, and `pull` waits and also fills tensors.

    Args:
        loop: The loop of a worker.
        copy: Whether pushed arrays may be changed afterwards.
    """

    def __init__(self, loop: _core.Loop, copy: bool = True) -> None:
        self._loop = loop
        self._copy = copy
        self._lent = threading.local()
        self._rounds: dict[int, int] = {}

    @property
    def copies(self) -> bool:
        """Whether the calling thread may change the arrays that it pushes."""
        return self._copy and not getattr(self._lent, "arrays", False)

    @contextmanager
    def borrowing(self) -> Iterator[None]:
        """Push arrays without a copy: the caller does not change them until their answer is in."""
        self._lent.arrays = True
        try:
            yield
        finally:
            self._lent.arrays = False

    def declare(self, key: int, shape: Sequence[int]) -> None:
        """See `Exchange.declare`."""
        self._rounds[key] = 0

    def push(
        self,
        key: int,
        array: Any,
        *,
        priority: int = 0,
        loss: float = math.nan,
        last: bool = False,
        not_before_s: float = 0.0,
    ) -> None:
        """See `Exchange.push`. A tensor on a device is encoded there, and then copied."""
        if tensors.on_device(array):
            staged = tensors.take(array, self.copies)
            return self._send_value(key, staged, loss, last, not_before_s)
        value = as_vector(array)
        if self.copies and np.shares_memory(value, array):
            value = _core.copied(value)
        self._send(key, value, loss, last, not_before_s)

    def _send(
        self,
        key: int,
        value: NDArray[np.float32],
        loss: float,
        last: bool,
        not_before_s: float,
        absent: bool = False,
    ) -> None:
        """Pass `value` to the loop without a copy; it must not change until it has been sent."""
        with naming_the_lost(self._loop):
            self._loop.push(key, value, loss, last, not_before_s, absent)
        self._rounds[key] += 1

    def _send_value(
        self,
        key: int,
        value: _core.StagedValue,
        loss: float,
        last: bool,
        not_before_s: float,
        absent: bool = False,
    ) -> None:
        """Pass a value that a stage has taken to the loop."""
        with naming_the_lost(self._loop):
            self._loop.push_value(key, value, loss, last, not_before_s, absent)
        self._rounds[key] += 1

    def pull(self, key: int, out: Sequence[Any], *, priority: int = 0) -> None:
        """See `Exchange.pull`."""
        self.wait(key)
        fetched: NDArray[np.float32] | None = None
        for target in out:
            if tensors.on_device(target):
                tensors.fill(self._loop, key, target)
                continue
            if tensors.is_tensor(target):
                if fetched is None:
                    fetched = np.empty(math.prod(target.shape), np.float32)
                    self._loop.value(key, fetched)
                tensors.write(fetched, target)
                continue
            vector = as_vector(target)
            self._loop.value(key, vector)
            if not np.shares_memory(vector, target):
                target[...] = vector.reshape(target.shape)

    def push_all(
        self, keys: Sequence[int], arrays: Sequence[NDArray[np.float32]], last: bool
    ) -> None:
        """Push contiguous float32 arrays of several keys, in order, as `push` does one.

        Args:
            keys: Numbers of declared tensors.
            arrays: An array for each.
            last: Whether these are the last pushes of these keys.
        """
        with naming_the_lost(self._loop):
            self._loop.push_all(keys, arrays, self.copies, last)
        for key in keys:
            self._rounds[key] += 1

    def pull_all(self, keys: Sequence[int], arrays: Sequence[NDArray[np.float32]]) -> None:
        """Fill contiguous float32 arrays of several keys, as `pull` does one.

        Args:
            keys: Numbers of declared tensors.
            arrays: An array for each.
        """
        with naming_the_lost(self._loop):
            self._loop.wait_all([(key, self._rounds[key]) for key in keys], FOREVER_S)
            self._loop.values(keys, arrays)

    def wait(self, key: int) -> float:
        """See `Exchange.wait`."""
        with naming_the_lost(self._loop):
            return self._loop.wait(key, self._rounds[key], FOREVER_S)

    def go_on(self, key: int) -> int:
        """See `Exchange.go_on`."""
        self._rounds[key] = self._loop.go_on(key)
        return self._rounds[key]

    def restore(self, key: int, number: int) -> None:
        """See `Exchange.restore`."""
        self._rounds[key] = number

    def absent(self, key: int) -> bool:
        """Return whether no worker contributed to the last value, which must have arrived."""
        return self._loop.absent(key)

    def flush(self) -> None:
        """See `Exchange.flush`. No effect, because `push` passes arrays at once."""

    def settle(self, arrays: Sequence[Any]) -> None:
        """See `Exchange.settle`. No effect, because numpy computes synchronously."""

    def copy(self, array: Any) -> Any:
        """See `Exchange.copy`."""
        return array.copy()
