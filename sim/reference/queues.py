"""What stands in FIFO queues under bbr, and how long others wait behind it.

A connection sends at its rate of sending until its window is used up, by what is under way and what
waits in the queue of the edge that limits it. From then on it is full: it sends what
acknowledgements allow, ``window / (RTT + waits)``. See ``runtime_cpp/net/standing.cc``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

ALIKE = 1e-6
"""Relative difference below which two shares are one."""

FEW = 1e-2
"""Part of a round trip below which a change of waits elsewhere does not count."""

FILLED = 1e-6
"""Relative difference below which an edge is full."""

LITTLE = 1e-6
"""Part of a rate that counts as none."""

USED_UP = 0.5
"""Bytes of a window that may be missing when it is used up."""

LONGEST_S = 1e3
"""A window that lasts longer is not used up."""

SETTLED_WAIT = 1e-9
"""Relative difference below which two waits are one."""

WHOLE_STEPS = 4
"""Steps of both computations before steps are halves, lest waits and shares alternate."""

MOST_STEPS = 50
"""Steps of the computation of waits."""


def alike(one: float, other: float) -> bool:
    """Return whether two shares count as one."""
    return one == other or abs(one - other) <= ALIKE * max(one, other)


@dataclass
class Standing:
    """A connection at the queues on its way. Bytes and rates are those on the edges.

    Attributes:
        full: Whether its window is used up, by what is under way and what waits.
        edge: In whose queue it waits; None: in none.
        waiting: Bytes in that queue when its progress was counted last.
        apart_s: The wait in other queues, of its data and their acknowledgements.
        found_s: The same, as of the last computation of waits.
        window: The most bytes under way and in queues; 0: no window.
        sends: Bytes/s until the window is used up.
        allowed: Bytes/s from then on.
    """

    full: bool = False
    edge: int | None = None
    waiting: float = 0.0
    apart_s: float = 0.0
    found_s: float = 0.0
    window: float = 0.0
    sends: float = 0.0
    allowed: float = math.inf

    def take_window(self, window: float, sends: float, waiting: float) -> bool:
        """Set its window and its rate of sending; return whether it was full and is no longer."""
        stalls = sends == 0.0  # what stood in queues has left when it goes on
        ends = self.full and (stalls or window > self.window * (1 + ALIKE))
        if ends:
            self.full, self.allowed = False, math.inf
            self.waiting = 0.0 if stalls else waiting
        self.window, self.sends = window, sends
        return ends

    def room(self, rate: float, rtt_s: float) -> float:
        """Return how many bytes may wait in its queue while it has this rate."""
        return max(self.window - rate * (rtt_s + self.apart_s), 0.0)

    def waits(self, rate: float, rtt_s: float, left: float, passed_s: float) -> float:
        """Return the bytes in its queue `passed_s` after they were counted, of `left` in all."""
        if self.window == 0.0:
            return 0.0
        most = min(self.room(rate, rtt_s), left)
        return (
            most if self.full else min(max(self.waiting + (self.sends - rate) * passed_s, 0), most)
        )

    def full_in_s(self, rate: float, rtt_s: float, left: float, waiting: float) -> float:
        """Return in how many seconds the window is used up; infinite: it is not."""
        more, room = self.sends - rate, self.room(rate, rtt_s)
        missing = room - waiting
        if self.full or rate <= 0.0 or more <= LITTLE * self.sends or missing <= USED_UP:
            return math.inf  # or it is full at the end of this instant
        seconds = missing / more
        ends_before = left - rate * seconds <= room or seconds >= LONGEST_S
        return math.inf if ends_before else seconds

    def uses_up(self, waiting: float, rate: float, rtt_s: float) -> bool:
        """Return whether it becomes full."""
        sends = self.window > 0.0 and self.sends > 0.0 and rate > 0.0
        return not self.full and sends and waiting >= self.room(rate, rtt_s) - USED_UP

    def moves(self, rtt_s: float) -> bool:
        """Return whether the waits in other queues have changed by an amount that counts."""
        return abs(self.found_s - self.apart_s) > FEW * rtt_s

    def rate(self, queues: Queues, rtt_s: float) -> float:
        """Return what acknowledgements allow once its window is used up, in bytes/s."""
        own_s = 0.0 if self.edge is None else queues.waits_s.get(self.edge, 0.0)
        return self.window / (rtt_s + self.apart_s + own_s)

    def most(self, rtt_s: float) -> float:
        """Return what they allow if nothing of it waits in its own queue."""
        return self.window / (rtt_s + self.apart_s)


@dataclass
class Queues:
    """The queues of all edges at one time.

    Attributes:
        capacities: Bandwidth of the edges, in bytes/s.
        for_data: What acknowledgements leave of it.
        loads: Bytes/s on the edges.
        levels: The most that a connection has of an edge, as a multiple of its share.
        waits_s: How long what comes now waits in the queues.
    """

    capacities: Sequence[float]
    for_data: Sequence[float]
    loads: dict[int, float] = field(default_factory=dict)
    levels: dict[int, float] = field(default_factory=dict)
    waits_s: dict[int, float] = field(default_factory=dict)

    def add(self, path: Sequence[int], rate: float, share: float) -> None:
        """Count a connection that has this rate."""
        for edge in path:
            self.loads[edge] = self.loads.get(edge, 0.0) + rate
            self.levels[edge] = max(self.levels.get(edge, 0.0), rate / share)

    def limiting(self, path: Sequence[int], level: float) -> int | None:
        """Return the first edge that is full and on which no connection has a higher level."""
        for edge in path:
            full = self.loads[edge] >= (1 - FILLED) * self.for_data[edge]
            if self.loads[edge] == 0.0 or self.capacities[edge] == math.inf or not full:
                continue
            if level >= (1 - FILLED) * self.levels[edge]:
                return edge
        return None

    def wait(self, waiting: Mapping[int, float], halves: bool) -> bool:
        """Compute the waits from the bytes in queues; return whether they have changed."""
        changed = False
        for edge in self.loads:
            for_data, before = self.for_data[edge], self.waits_s.get(edge, 0.0)
            wait_s = waiting.get(edge, 0.0) / for_data if for_data > 0.0 else 0.0
            if halves:
                wait_s = (wait_s + before) / 2
            changed = changed or abs(wait_s - before) > SETTLED_WAIT * wait_s
            self.waits_s[edge] = wait_s
        return changed

    def apart_s(self, path: Sequence[int], acks: Iterable[int], own: int | None) -> float:
        """Return the waits of data and their acknowledgements but in `own`.

        What comes over a narrower edge arrives evenly, and does not wait.
        """
        crossed, narrowest = list(acks), math.inf
        for edge in path:
            if self.capacities[edge] <= narrowest:
                narrowest = self.capacities[edge]
                if edge != own:
                    crossed.append(edge)
        return sum(self.waits_s.get(edge, 0.0) for edge in crossed)
