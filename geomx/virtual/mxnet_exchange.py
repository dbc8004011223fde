"""Exchanges MXNet arrays with the simulator, by operations of MXNet's engine, as live runs do.

The engine executes pushes and pulls beside the script (`geomx.live.mxnet_exchange`). In a
simulation they are noted in a queue, with the processor time at which they were executed. Once all
threads of the process sleep, nothing more can be computed before a value arrives: a thread of this
module then tells the simulator of the pushes, and waits for the value that the script asked for
first. So the backward pass overlaps with the pushes of gradients that it has computed, and the
forward pass with the values of later layers.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any, cast

from geomx import _core
from geomx.live.mxnet_exchange import EngineExchange, mx
from geomx.virtual.loop import VirtualLoop
from geomx.virtual.requests import Executed, call_site


class SimulatedEngineExchange(EngineExchange):
    """`EngineExchange` of a worker whose run is simulated."""

    def __init__(self, loop: _core.Loop) -> None:
        queue = _core.EngineQueue()
        super().__init__(loop, queue)
        self._courier = _Courier(cast(VirtualLoop, loop), queue)

    def push(self, key: int, array: Any, **options: Any) -> None:
        """See `EngineExchange.push`."""
        super().push(key, array, **options)
        self._courier.made += 1

    def pull(self, key: int, out: Sequence[Any], *, priority: int = 0) -> None:
        """See `EngineExchange.pull`."""
        self._courier.sites[key] = call_site()
        super().pull(key, out, priority=priority)

    def wait(self, key: int) -> float:
        """See `EngineExchange.wait`.

        First the engine executes the push and the pull: that may need values that have come, which
        only the courier hands over, and not while this thread waits for the simulator.
        """
        slot = self._slots[key]
        with contextlib.suppress(mx.base.MXNetError):  # the call below says which node was lost
            slot.leaving.wait_to_write()
            slot.arriving.array.wait_to_read()
        return super().wait(key)


class _Courier:
    """Tells the simulator what the engine has executed, and the engine what has arrived.

    Attributes:
        made: Number of pushes that the script has made.
        sites: Where the script pulled a key last.
    """

    def __init__(self, loop: VirtualLoop, queue: _core.EngineQueue) -> None:
        self.made = self._taken = 0
        self.sites: dict[int, str] = {}
        self._loop, self._queue = loop, queue
        self._thread = threading.Thread(target=self._run, daemon=True)
        loop.run_beside(self)
        _finish_before_forks(self)
        self._thread.start()

    def used_ns(self) -> int:
        """See `geomx.virtual.requests.Engine`."""
        return self._queue.used_ns

    def executed(self) -> list[Executed]:
        """See `geomx.virtual.requests.Engine`."""
        if self.made > self._taken and threading.current_thread() is not self._thread:
            _core.await_stillness()
        taken = [Executed(*push) for push in self._queue.take()]
        self._taken += len(taken)
        return taken

    def close(self, why: str) -> None:
        """See `geomx.virtual.requests.Engine`."""
        self._queue.close(why)
        if threading.current_thread() is not self._thread:
            self._thread.join()  # the interpreter must not end while it runs

    def _run(self) -> None:
        try:
            while self._queue.wait():
                events, since_ns = self._loop.events, time.perf_counter_ns()
                _core.await_stillness()
                self._loop.ignore(time.perf_counter_ns() - since_ns)
                oldest = self._queue.oldest()
                if oldest is None:
                    self._loop.tell_executed()
                    continue
                key, due = oldest
                value = self._loop.await_value(key, due, self.sites[key], events)
                if value is not None:
                    self._queue.fill(key, due, value)
        except Exception as error:
            self._queue.close(str(error))


def _finish_before_forks(courier: _Courier) -> None:
    """Have a fork (of a data loader) wait for all operations of the engine.

    MXNet stops its engine for that, which needs this courier, which needs the interpreter, which
    the forking thread holds.
    """
    alive = weakref.ref(courier)

    def finish() -> None:
        if alive() is not None:
            mx.nd.waitall()

    os.register_at_fork(before=finish)
