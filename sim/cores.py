"""The cores of a machine on which all workers of a script compute, as when it is launched there."""

from __future__ import annotations

import heapq
import itertools
import math

import simpy


class Cores:
    """Cores that processes of one thread share fairly: each of n has min(1, cores / n) of one.

    That is processor sharing, the limit of a scheduler whose time slices are short.

    Args:
        env: The simulation's clock, in nanoseconds.
        count: Number of cores, 1 or more.
    """

    def __init__(self, env: simpy.Environment, count: int) -> None:
        self._env, self._count = env, count
        self._served_ns = 0.0  # what a process has computed that has been there all the time
        self._since_ns = 0  # when that was counted last
        self._order = itertools.count()
        self._computing: list[tuple[float, int, simpy.Event]] = []  # by `_served_ns` at the end
        self._planned = 0

    def compute(self, ns: int) -> simpy.Event:
        """Return an event: a process has computed for `ns` from now on, on a core of its own."""
        self._count_served()
        done = self._env.event()
        heapq.heappush(self._computing, (self._served_ns + ns, next(self._order), done))
        self._plan()
        return done

    @property
    def _rate(self) -> float:
        return min(1.0, self._count / len(self._computing))

    def _count_served(self) -> None:
        if self._computing:
            self._served_ns += (int(self._env.now) - self._since_ns) * self._rate
        self._since_ns = int(self._env.now)

    def _plan(self) -> None:
        """Look again when the next process will have computed, unless the rate changes before."""
        self._planned += 1
        if self._computing:
            left_ns = self._computing[0][0] - self._served_ns
            look = self._env.timeout(max(0, math.ceil(left_ns / self._rate)), self._planned)
            look.callbacks.append(self._look)

    def _look(self, event: simpy.Event) -> None:
        if event.value != self._planned:
            return
        self._count_served()
        while self._computing and self._computing[0][0] <= self._served_ns + 0.5:
            heapq.heappop(self._computing)[2].succeed()
        self._plan()
