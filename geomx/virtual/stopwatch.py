"""Measures what a process computes between two calls of its store."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

_SCHEDULED = "/proc/self/schedstat"  # ns on a processor, ns of waiting for one, switches


@dataclass(frozen=True)
class Computed:
    """What a process has computed.

    Attributes:
        ns: How long that takes on a machine of its own.
        processor_ns: The processor time of all threads: more if several compute at a time.
    """

    ns: int = 0
    processor_ns: int = 0

    def __add__(self, other: Computed) -> Computed:
        """Return what both are together, one after the other."""
        return Computed(self.ns + other.ns, self.processor_ns + other.processor_ns)


class Stopwatch:
    """Measures computing: the processor time of all threads, and at most the time that has passed.

    The simulator lets one worker compute at a time. Where the machine is otherwise idle, the time
    that passes is what a worker of its own machine would take, also with several threads. Where
    something disturbs it, the processor time is smaller; and waiting (sleep, files, network) is no
    computing.

    Args:
        used_ns: Returns the processor time of the process, or of those threads that compute.

    Attributes:
        ignored_ns: Of the time since the last `start`, nanoseconds in which nothing can be computed
            for a reason of the simulation.
        waited_ns: Nanoseconds, between the last `start` and the last `read`, in which the process
            neither computed nor waited for a processor, but for `ignored_ns`.
    """

    def __init__(self, used_ns: Callable[[], int] = time.process_time_ns) -> None:
        self.waited_ns = self.ignored_ns = 0
        self._used = used_ns
        self._scheduled: int | None = None
        with contextlib.suppress(OSError):
            self._scheduled = os.open(_SCHEDULED, os.O_RDONLY | os.O_CLOEXEC)
        self.start()

    def start(self) -> None:
        """Measure from now on."""
        self.ignored_ns = 0
        self._used_ns = self._used()  # which may wait for the end of what is computed
        self._passed_ns = time.perf_counter_ns()
        self._queued_ns = self._queued()

    def read(self) -> Computed:
        """Return the computing since the last `start`."""
        used_ns = self._used() - self._used_ns
        passed_ns = time.perf_counter_ns() - self._passed_ns
        computed_ns = min(used_ns, passed_ns)
        idle_ns = passed_ns - computed_ns - (self._queued() - self._queued_ns)
        self.waited_ns = max(0, idle_ns - self.ignored_ns)
        return Computed(computed_ns, used_ns)

    def until(self, used_ns: int, passed_ns: int) -> Computed:
        """Return the computing up to a moment, and measure from there on.

        Args:
            used_ns: The processor time at that moment.
            passed_ns: The monotonic clock.
        """
        processor_ns = max(0, used_ns - self._used_ns)
        computed_ns = max(0, min(processor_ns, passed_ns - self._passed_ns))
        self._used_ns, self._passed_ns = used_ns, passed_ns
        return Computed(computed_ns, processor_ns)

    def _queued(self) -> int:
        """Return the nanoseconds in which the main thread has waited for a processor, if known."""
        if self._scheduled is None:
            return 0
        return int(os.pread(self._scheduled, 128, 0).split()[1])
