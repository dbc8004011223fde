"""The cores of a machine on which all workers of a script compute, as when it is launched there.

All nodes are on that machine, and what they do for messages comes first: their threads run as soon
as a message comes (``runtime_cpp/io/loop_thread.cc``).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable

import simpy


class Cores:
    """Cores that threads share fairly: each of n has min(1, cores / n) of one.

    That is processor sharing, the limit of a scheduler whose time slices are short. Of the cores'
    time, the threads share what nodes leave.

    Args:
        env: The simulation's clock, in nanoseconds.
        count: Number of cores, 1 or more.
        used_ns: Returns the time that nodes have used of the cores so far, by default none. It is
            called when a process begins or may have ended.
    """

    def __init__(
        self, env: simpy.Environment, count: int, used_ns: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._env, self._count, self._used = env, count, used_ns
        self._used_ns = 0.0  # at the last call
        self._due_ns = 0.0  # of it, what the cores have not had the time for yet
        self._served_ns = 0.0  # what a process has computed that has been there all the time
        self._threads = 0.0  # of those that compute
        self._since_ns = 0  # when that was counted last
        self._order = itertools.count()
        # By `_served_ns` at the end: order, number of threads, what happens then.
        self._computing: list[tuple[float, int, float, simpy.Event]] = []
        self._planned = 0

    def compute(self, ns: int, threads: float = 1.0) -> simpy.Event:
        """Return an event: a process has computed, from now on.

        Args:
            ns: How long that takes if there is a core for each of its threads.
            threads: How many it has on average, 1 or more.
        """
        self._count_served()
        done = self._env.event()
        process = self._served_ns + ns, next(self._order), threads, done
        heapq.heappush(self._computing, process)
        self._threads += threads
        self._plan()
        return done

    @property
    def _rate(self) -> float:
        return min(1.0, self._count / self._threads)

    def _count_served(self) -> None:
        passed_ns = int(self._env.now) - self._since_ns
        self._since_ns += passed_ns
        used_ns = self._used()
        self._due_ns += used_ns - self._used_ns
        self._used_ns = used_ns
        nodes_ns = min(self._due_ns, passed_ns * self._count)
        self._due_ns -= nodes_ns
        if self._computing:
            left_ns = passed_ns * self._count - nodes_ns
            self._served_ns += min(passed_ns, left_ns / self._threads)

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
            _, _, threads, done = heapq.heappop(self._computing)
            self._threads = self._threads - threads if self._computing else 0.0
            done.succeed()
        self._plan()
