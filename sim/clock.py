"""The simulator's clock: SimPy's environment, whose time is a whole number of nanoseconds.

The native fabric counts integer nanoseconds, while a SimPy process may wait for any number: an
exponential draw is a float. A delay is therefore rounded up to a whole nanosecond when it is
scheduled, so that `now` stays an `int`, exact also beyond 2**53, and a process never wakes early.
"""

from __future__ import annotations

import math
from heapq import heappush
from operator import index
from typing import Any

import simpy
from simpy.events import NORMAL, EventPriority

FOREVER = 2**63 - 1
"""The end of time, in nanoseconds: 292 years. Events scheduled for then or later never happen."""


class Clock(simpy.Environment):
    """SimPy's environment over integer nanoseconds."""

    _now: int  # SimPy's may be a float

    def __init__(self) -> None:
        """Start at 0."""
        super().__init__()
        # SimPy binds the class of timeouts once for environments of its own, not for derived ones.
        self.timeout = self.timeout  # type: ignore[method-assign]

    @property
    def now(self) -> int:
        """The current time, in nanoseconds."""
        return self._now

    def schedule(
        self, event: simpy.Event, priority: EventPriority = NORMAL, delay: Any = 0
    ) -> None:
        """Schedule `event` after `delay` nanoseconds, rounded up to a whole number.

        An infinite delay, or one that would end after `FOREVER`, never ends.

        Args:
            event: The event.
            priority: SimPy's priority among events of the same time.
            delay: Nanoseconds from now.

        Raises:
            ValueError: The delay is not a number (NaN).
        """
        whole = delay if type(delay) is int else _rounded_up(delay)
        if whole < FOREVER - self._now:
            heappush(self._queue, (self._now + whole, priority, next(self._eid), event))


def _rounded_up(delay: Any) -> int:
    try:
        whole: int = index(delay)  # numpy's integers, exactly
        return whole
    except TypeError:
        pass
    if math.isinf(delay):
        return FOREVER
    try:
        rounded: int = math.ceil(delay)
        return rounded
    except ValueError:
        raise ValueError(f"a delay must be a number of nanoseconds, not {delay}") from None
