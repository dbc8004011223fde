"""Measures what a process computes between two calls of its store."""

from __future__ import annotations

import contextlib
import os
import time

_SCHEDULED = "/proc/self/schedstat"  # ns on a processor, ns of waiting for one, switches


class Stopwatch:
    """Measures computing: the processor time of all threads, and at most the time that has passed.

    The simulator lets one worker compute at a time. Where the machine is otherwise idle, the time
    that passes is what a worker of its own machine would take, also with several threads. Where
    something disturbs it, the processor time is smaller; and waiting (sleep, files, network) is no
    computing.

    Attributes:
        waited_ns: Nanoseconds, between the last `start` and the last `read`, in which the process
            neither computed nor waited for a processor.
    """

    def __init__(self) -> None:
        self.waited_ns = 0
        self._scheduled: int | None = None
        with contextlib.suppress(OSError):
            self._scheduled = os.open(_SCHEDULED, os.O_RDONLY | os.O_CLOEXEC)
        self.start()

    def start(self) -> None:
        """Measure from now on."""
        self._passed_ns = time.perf_counter_ns()
        self._used_ns = time.process_time_ns()
        self._queued_ns = self._queued()

    def read(self) -> int:
        """Return the nanoseconds of computing since the last `start`."""
        passed_ns = time.perf_counter_ns() - self._passed_ns
        used_ns = min(time.process_time_ns() - self._used_ns, passed_ns)
        self.waited_ns = max(0, passed_ns - used_ns - (self._queued() - self._queued_ns))
        return used_ns

    def _queued(self) -> int:
        """Return the nanoseconds in which the main thread has waited for a processor, if known."""
        if self._scheduled is None:
            return 0
        return int(os.pread(self._scheduled, 128, 0).split()[1])
