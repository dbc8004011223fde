"""Exchanges MXNet arrays with a loop, by operations of MXNet's engine.

Each key has two buffers, as in MXNet's own store. One holds the outgoing value, so that the next
backward pass may overwrite a pushed gradient at once; the other holds the received value. The
copies also convert the internal layouts in which MXNet's convolutions store arrays.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from geomx import _core
from geomx.errors import NodeLost
from geomx.frameworks.mxnet_loader import load_mxnet
from geomx.frameworks.mxnet_memory import address_of
from geomx.live.member import naming_the_lost
from geomx.live.script_calls import FOREVER_S

mx: Any = load_mxnet()


@dataclass
class _Buffer:
    """A float32 array of MXNet with the address of its data, which is constant."""

    array: Any
    data: int

    @classmethod
    def of(cls, shape: Sequence[int]) -> _Buffer:
        array = mx.nd.empty(tuple(shape) or (1,), dtype="float32")
        return cls(array, address_of(array))

    @property
    def handle(self) -> int:
        """The array's handle in MXNet's C API."""
        return int(self.array.handle.value)

    def wait_to_write(self) -> None:
        """Wait until nothing in MXNet's engine reads or writes the array."""
        mx.base.check_call(mx.base._LIB.MXNDArrayWaitToWrite(self.array.handle))


@dataclass
class _Slot:
    """The buffers of one key for both directions, and its number of pushes."""

    leaving: _Buffer
    arriving: _Buffer
    elements: int
    round: int = 0


class EngineExchange:
    """`geomx.live.exchange.Exchange` for MXNet arrays; `pull` does not block either.

    Args:
        loop: The loop of a worker.
        queue: Takes the operations that the engine executes; None: the loop does.
    """

    def __init__(self, loop: _core.Loop, queue: _core.EngineQueue | None = None) -> None:
        self._loop = loop
        address = ctypes.cast(mx.base._LIB.MXEnginePushAsyncND, ctypes.c_void_p).value or 0
        self._engine = _core.MxnetEngine(loop if queue is None else queue, address)
        self._slots: dict[int, _Slot] = {}

    def declare(self, key: int, shape: Sequence[int]) -> None:
        """See `Exchange.declare`."""
        self._slots[key] = _Slot(_Buffer.of(shape), _Buffer.of(shape), math.prod(shape))

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
        """See `Exchange.push`."""
        self._check()
        slot = self._slots[key]
        _classic(array).copyto(slot.leaving.array)
        # The push reads `arriving`, so that the engine executes it after earlier pulls.
        self._engine.push(
            key, slot.leaving.data, slot.elements, slot.leaving.handle, slot.arriving.handle,
            loss, last, not_before_s, priority,
        )  # fmt: skip
        slot.round += 1

    def pull(self, key: int, out: Sequence[Any], *, priority: int = 0) -> None:
        """See `Exchange.pull`."""
        self._check()
        slot = self._slots[key]
        arriving = slot.arriving
        self._engine.pull(key, slot.round, arriving.data, slot.elements, arriving.handle, priority)
        for target in out:
            arriving.array.copyto(_classic(target))

    def wait(self, key: int) -> float:
        """See `Exchange.wait`."""
        with naming_the_lost(self._loop):
            return self._loop.wait(key, self._slots[key].round, FOREVER_S)

    def go_on(self, key: int) -> int:
        """See `Exchange.go_on`."""
        self._slots[key].round = self._loop.go_on(key)
        return self._slots[key].round

    def restore(self, key: int, number: int) -> None:
        """See `Exchange.restore`."""
        self._slots[key].round = number

    def flush(self) -> None:
        """See `Exchange.flush`; includes values whose encoding is delayed."""
        for slot in self._slots.values():
            slot.leaving.wait_to_write()

    def settle(self, arrays: Sequence[Any]) -> None:
        """See `Exchange.settle`."""
        for array in arrays:
            array.wait_to_read()

    def copy(self, array: Any) -> Any:
        """See `Exchange.copy`; executed by the engine."""
        return array.copy()

    def _check(self) -> None:
        failure = self._loop.failure()
        if failure is not None:
            raise NodeLost(*failure)


def _classic(array: Any) -> Any:
    """Return an array of ``mx.nd`` or ``mx.np`` as the former, with the same memory.

    Operators of ``mx.nd`` take no others, and their arrays have a dimension at least.
    """
    there = array.as_nd_ndarray()
    return there if there.shape else there.reshape((1,))
