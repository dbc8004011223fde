"""Exchanges PyTorch tensors with the simulator; those on a GPU leave when it has computed them.

A GPU executes operations after the calls that queue them have returned, so that processor time does
not tell how long they take. A push records an event in the tensor's stream. Before each request of
the script, the process waits until its GPUs have done all that is queued, which counts as computing
whether or not the thread sleeps meanwhile. The events then tell how long before that moment each
pushed tensor was there. Copies between host and GPU, which only the simulation needs, do not count.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch

from geomx import _core
from geomx.live.torch_exchange import TensorExchange, on_host
from geomx.virtual.loop import VirtualLoop
from geomx.virtual.requests import Executed


class Events(Protocol):
    """Moments at which GPUs have done what was queued on them."""

    def use(self, tensor: torch.Tensor) -> None:
        """Observe the GPU of `tensor`."""
        ...

    def record(self, tensor: torch.Tensor) -> Any:
        """Return the moment at which the GPU of `tensor` has done what is queued so far."""
        ...

    def finish(self) -> None:
        """Wait until all observed GPUs have done what is queued."""
        ...

    def before_ns(self, moments: Sequence[Any]) -> list[int]:
        """Return how many nanoseconds ago moments were; call it right after `finish`."""
        ...


class CudaEvents:
    """`Events` of CUDA devices."""

    def __init__(self) -> None:
        self._devices: set[torch.device] = set()

    def use(self, tensor: torch.Tensor) -> None:
        """See `Events.use`."""
        self._devices.add(tensor.device)

    def record(self, tensor: torch.Tensor) -> tuple[torch.device, torch.cuda.Event]:
        """See `Events.record`."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(tensor.device))
        return tensor.device, event

    def finish(self) -> None:
        """See `Events.finish`."""
        for device in self._devices:
            torch.cuda.synchronize(device)

    def before_ns(self, moments: Sequence[tuple[torch.device, torch.cuda.Event]]) -> list[int]:
        """See `Events.before_ns`."""
        now = {}
        for device in {device for device, _ in moments}:
            now[device] = torch.cuda.Event(enable_timing=True)
            now[device].record(torch.cuda.current_stream(device))
            now[device].synchronize()
        return [round(event.elapsed_time(now[device]) * 1e6) for device, event in moments]


class Moment(NamedTuple):
    """How long a process has computed, and the monotonic clock, in nanoseconds."""

    used_ns: int
    passed_ns: int


class _Queued(NamedTuple):
    """A push whose tensor may not have been computed yet; see `Executed`."""

    key: int
    tensor: torch.Tensor
    loss: float
    last: bool
    moment: Any
    call: Moment


def computed(
    calls: Sequence[Moment], ends_ns: Sequence[int], end: Moment
) -> tuple[list[Moment], int]:
    """Return when tensors were there, and how long the process and its GPUs have computed at last.

    From a push to the end of what it pushes, a GPU computes, also while the script waits for
    something else or for a processor.

    Args:
        calls: The pushes, in order; `used_ns` without what GPUs have computed since the first.
        ends_ns: When each tensor had been computed, by the monotonic clock.
        end: A moment after all of these.
    """
    begins_ns, lasts_ns = [calls[0].used_ns], []
    busy_until_ns = 0
    for call, ended_ns, after in zip(calls, ends_ns, [*calls[1:], end], strict=True):
        busy_until_ns = max(busy_until_ns, ended_ns)
        busy_ns = min(busy_until_ns, after.passed_ns) - call.passed_ns
        lasts_ns.append(max(after.used_ns - call.used_ns, busy_ns))
        begins_ns.append(begins_ns[-1] + lasts_ns[-1])
    there = []
    for call, ended_ns in zip(calls, ends_ns, strict=True):
        passed_ns = max(call.passed_ns, ended_ns)  # what was done before leaves with the push
        after_call = bisect.bisect_right(calls, passed_ns, key=lambda each: each.passed_ns) - 1
        since_ns = min(passed_ns - calls[after_call].passed_ns, lasts_ns[after_call])
        there.append(Moment(begins_ns[after_call] + since_ns, passed_ns))
    return there, begins_ns[-1]


class Gpus:
    """The GPUs of a process, as an engine that computes beside the script.

    Args:
        loop: The worker's loop.
        events: Of the GPUs.
    """

    def __init__(self, loop: VirtualLoop, events: Events) -> None:
        self._loop, self._events = loop, events
        self._queued: list[_Queued] = []
        self._made = 0
        self._more_ns = 0  # of computing than the processor time of the process
        loop.run_beside(self)

    def push(self, key: int, tensor: torch.Tensor, loss: float, last: bool) -> None:
        """Push a tensor, which must not change any more, once the GPU has computed it."""
        moment = self._events.record(tensor)
        self._queued.append(_Queued(key, tensor, loss, last, moment, self._now()))

    def used_ns(self) -> int:
        """See `geomx.virtual.requests.Engine`; waits for the GPUs."""
        used_ns, passed_ns = time.process_time_ns(), time.perf_counter_ns()
        self._events.finish()
        slept_ns = time.perf_counter_ns() - passed_ns - (time.process_time_ns() - used_ns)
        self._more_ns += max(0, slept_ns)
        return self._now().used_ns

    def executed(self) -> list[Executed]:
        """See `geomx.virtual.requests.Engine`."""
        queued, self._queued = self._queued, []
        if not queued:
            return []
        calls = [push.call for push in queued] + [self._now()]
        moments = [push.moment for push in queued] + [self._events.record(queued[-1].tensor)]
        used_ns = self.used_ns()
        end = Moment(used_ns, time.perf_counter_ns())
        made = []
        with self.uncounted():
            ends_ns = [end.passed_ns - ago_ns for ago_ns in self._events.before_ns(moments)]
            there, end_ns = computed(calls, ends_ns, end)
            for push, moment in zip(queued, there[:-1], strict=True):
                self._made += 1
                value = on_host(push.tensor)
                made.append(Executed(self._made, push.key, value, push.loss, push.last, *moment))
        self._more_ns += end_ns - used_ns
        return sorted(made, key=lambda push: push.passed_ns)

    def close(self, why: str) -> None:
        """See `geomx.virtual.requests.Engine`; forgets pushes that were not told."""
        del why
        self._queued.clear()

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Do not count the time of operations, those of GPUs included."""
        used_ns, passed_ns = time.process_time_ns(), time.perf_counter_ns()
        try:
            yield
            self._events.finish()
        finally:
            self._more_ns -= time.process_time_ns() - used_ns
            self._loop.ignore(time.perf_counter_ns() - passed_ns)

    def _now(self) -> Moment:
        return Moment(time.process_time_ns() + self._more_ns, time.perf_counter_ns())


class SimulatedTensorExchange(TensorExchange):
    """`TensorExchange` of a worker whose run is simulated."""

    events: Events = CudaEvents()

    def __init__(self, loop: _core.Loop, copy: bool = True) -> None:
        super().__init__(loop, copy)
        self._gpus: Gpus | None = None

    def push(
        self,
        key: int,
        array: torch.Tensor | list[torch.Tensor],
        *,
        priority: int = 0,
        loss: float = math.nan,
        last: bool = False,
        not_before_s: float = 0.0,
        absent: bool = False,
    ) -> None:
        """See `TensorExchange.push`."""
        if isinstance(array, list) or not on_gpu(array):
            return super().push(key, array, loss=loss, last=last, absent=absent)
        if absent:
            return self._send(key, np.zeros(array.numel(), np.float32), loss, last, 0.0, absent)
        there = array.detach()
        self._beside(there).push(key, there.clone() if self.copies else there, loss, last)
        self._rounds[key] += 1

    def pull(self, key: int, out: Sequence[torch.Tensor], *, priority: int = 0) -> None:
        """See `TensorExchange.pull`."""
        if not any(map(on_gpu, out)):
            return super().pull(key, out)
        gpus = self._beside(*out)
        self.wait(key)
        with gpus.uncounted(), torch.no_grad():
            value = torch.empty(out[0].numel())
            self._loop.value(key, value.numpy())
            for target in out:
                target.copy_(value.view(target.shape))

    def _beside(self, *tensors: torch.Tensor) -> Gpus:
        """Return the GPUs of this process, those of `tensors` included."""
        if self._gpus is None:
            self._gpus = Gpus(cast(VirtualLoop, self._loop), self.events)
        for tensor in tensors:
            self.events.use(tensor)
        return self._gpus


def on_gpu(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is on a GPU."""
    return bool(tensor.is_cuda)
