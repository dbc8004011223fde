"""Connections over shared edges, and the times at which their messages have left."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import simpy
from simpy.events import EventPriority

from geomx.sim.clock import Clock
from geomx.sim.reference.sharing import Stream, share
from geomx.sim.reference.tcp import NS, Tcp

LAST = EventPriority(2)
"""SimPy's priority of what ends an instant: every process has been asked."""

NOTHING = 1e-6
"""Bytes that count as none."""

ROUNDING_NS = 1e-3
"""Rounding of a completion up to a whole nanosecond forgives so much."""

SAME = 1e-12
"""Relative difference below which two rates are one."""

SETTLED = 1e-3
"""Share of an edge's bandwidth by which acknowledgements may differ from those counted."""

MOST_ACKS = 0.95
"""Share of an edge's bandwidth that acknowledgements may take from data."""


@dataclass
class Connection:
    """An ordered stream of bytes from one node to another.

    Attributes:
        hops: Bytes on each edge per byte sent; see `Stream`.
        tcp: Its window.
        weight: Its share of an edge.
        priority_class: Lower classes are served first.
        efficiency: Payload bytes per byte on the edges.
        left: Payload bytes of its message that had not left at `since_ns`; None: no message.
        rate: Payload bytes/s from then on.
        since_ns: When progress was counted last.
        done_ns: When the message's last byte leaves.
        change_ns: When the window's cap changes.
        ended: Whether its message has ended in this instant.
        share: `weight` times, of FIFO queues, the rate of sending when that was looked at last.
        used: Whether it ever had a message, and will have others.
    """

    hops: Mapping[int, float]
    tcp: Tcp
    weight: float = 1.0
    priority_class: int = 0
    efficiency: float = 1448 / 1500
    left: float | None = None
    rate: float = 0.0
    since_ns: int = 0
    done_ns: float = math.inf
    change_ns: float = math.inf
    ended: bool = False
    share: float = 1.0
    used: bool = False

    @property
    def path(self) -> list[int]:
        """Its edges in order: all that carry every byte."""
        return [edge for edge, per_byte in self.hops.items() if per_byte >= 1.0]

    @property
    def acks(self) -> dict[int, float]:
        """Bytes of acknowledgements on each edge per byte that it sends."""
        return {edge: share for edge, hop in self.hops.items() if (share := hop % 1.0) > 0.0}

    @property
    def cap(self) -> float:
        """The most that its window allows now, in bytes/s on the edges."""
        return self.tcp.cap() / self.efficiency


class ReferenceWan:
    """The model: connections share edges by weighted max-min, each bounded by its TCP window.

    Args:
        env: SimPy's environment over whole nanoseconds.
        capacities: Of the edges, in bytes/s.
        left: Called with a connection whose message's last byte has left; it may start the next.
        rated: Called with a connection that has a message and a new rate.
        fifo: Whether edges are FIFO queues.
    """

    def __init__(
        self,
        env: Clock,
        capacities: Sequence[float],
        left: Callable[[int], None],
        rated: Callable[[int, float], None] = lambda number, rate: None,
        fifo: bool = False,
    ) -> None:
        self._env, self._left, self._rated, self._fifo = env, left, rated, fifo
        self.capacities = list(capacities)
        self._reserved = [0.0] * len(self.capacities)  # of these, for acknowledgements
        self.connections: list[Connection] = []
        self._ending = False  # the end of this instant is scheduled
        self._wakes = 0  # only the latest one counts

    def start(self, number: int, size: float) -> None:
        """Begin a message of `size` payload bytes on a connection that has none."""
        connection, now = self.connections[number], self._env.now
        if connection.ended:  # the next message of this instant: it goes on at the same rate
            connection.left, connection.ended = (connection.left or 0.0) + size, False
            self._schedule(connection)
        else:
            connection.left, connection.since_ns = size, now
            connection.tcp.begin(now)
            connection.used = True
            connection.share = self._share_of(connection)
        self._end_instant()

    def set_capacity(self, edge: int, bytes_per_s: float) -> None:
        """Change the bandwidth of an edge from now on."""
        self.capacities[edge], self._reserved[edge] = bytes_per_s, 0.0
        self._end_instant()

    def change(
        self, number: int, *, hops: Mapping[int, float], rtt_ns: int, window_limit: float,
        rate_limit: float, weight: float, priority_class: int, efficiency: float,
    ) -> None:  # fmt: skip
        """Change way, share and limits of a connection; its window and its message stay."""
        connection = self.connections[number]
        self._progress(connection)
        connection.hops, connection.weight = hops, weight
        connection.priority_class, connection.efficiency = priority_class, efficiency
        busy = connection.left is not None
        connection.tcp.change(rtt_ns, window_limit, rate_limit, busy, self._env.now)
        connection.share = self._share_of(connection)
        self._end_instant()

    def cancel(self, number: int) -> None:
        """Give up the message of a connection."""
        connection = self.connections[number]
        if connection.left is not None:
            connection.ended, connection.done_ns = True, math.inf
            self._end_instant()

    def _end_instant(self) -> None:
        if not self._ending:
            self._ending = True
            self._at(self._env.now, self._settle)

    def _at(self, time: float, call: Callable[[simpy.Event], None]) -> None:
        event = simpy.Event(self._env)
        event._ok, event._value = True, None
        event.callbacks = [call]
        self._env.schedule(event, LAST, time - self._env.now)

    def _settle(self, _: simpy.Event) -> None:
        """End an instant: share the edges anew, and wake at the next event."""
        self._ending = False
        for connection in self.connections:
            if connection.ended:
                self._progress(connection)
                connection.tcp.end(self._env.now)
                connection.left, connection.rate, connection.ended = None, 0.0, False
        sending = [connection for connection in self.connections if connection.left is not None]
        while self._share(sending):
            pass  # progress has opened or closed a window, or acknowledgements take more or less
        for number, connection in enumerate(self.connections):
            if connection.left is not None:
                self._schedule(connection)
                self._rated(number, connection.rate)
        self._wakes += 1
        times = (min(connection.done_ns, connection.change_ns) for connection in sending)
        if (first := min(times, default=math.inf)) < math.inf:
            number = self._wakes
            self._at(first, lambda event: self._wake(number))

    def _share(self, sending: Sequence[Connection]) -> bool:
        """Set the rates; return whether caps, or what is left for data, have changed meanwhile."""
        caps = [connection.cap for connection in sending]
        streams = [
            self._stream(connection, cap) for connection, cap in zip(sending, caps, strict=True)
        ]
        for_data = [
            bytes_per_s - acks if acks else bytes_per_s
            for bytes_per_s, acks in zip(self.capacities, self._reserved, strict=True)
        ]
        rates = share(for_data, streams)
        for connection, bytes_per_s in zip(sending, rates, strict=True):
            rate = bytes_per_s * connection.efficiency
            if rate == math.inf or abs(rate - connection.rate) > SAME * rate:
                self._progress(connection)
                connection.rate = rate
        moved = self._reserve(sending, rates)
        return moved or caps != [connection.cap for connection in sending]

    def _reserves(self, connection: Connection) -> bool:
        """Return whether acknowledgements take what they need: under bbr, in FIFO queues."""
        return self._fifo and connection.tcp.bbr and connection.tcp.limit < math.inf

    def _stream(self, connection: Connection, cap: float) -> Stream:
        hops, acks = connection.hops, connection.acks
        if acks and self._reserves(connection):
            hops = dict.fromkeys(connection.path, 1.0)
            cap = min(cap, *(self.capacities[edge] / per_byte for edge, per_byte in acks.items()))
        return Stream(hops, connection.share, cap, connection.priority_class)

    def _reserve(self, sending: Sequence[Connection], rates: Sequence[float]) -> bool:
        """Take acknowledgements from what edges offer data; return whether that has changed."""
        needed = [0.0] * len(self.capacities)
        for connection, bytes_per_s in zip(sending, rates, strict=True):
            if bytes_per_s > 0.0 and self._reserves(connection):
                for edge, per_byte in connection.acks.items():
                    needed[edge] += per_byte * bytes_per_s
        moved = False
        for edge, capacity in enumerate(self.capacities):
            acks = min(needed[edge], MOST_ACKS * capacity)
            most = SETTLED * capacity if acks > 0.0 else 0.0
            if capacity < math.inf and abs(acks - self._reserved[edge]) > most:
                self._reserved[edge], moved = acks, True
        return moved

    def _share_of(self, connection: Connection) -> float:
        """Return what a connection has in proportion, decided where it meets most others."""
        if not self._fifo:
            return connection.weight
        path = connection.path
        crossings = {
            edge: sum(
                edge in other.path
                for other in self.connections
                if other.used and other.tcp.limit < math.inf
            )
            for edge in path
            if self.capacities[edge] < math.inf
        }
        if not any(crossings.values()):
            return connection.weight
        meets = max(crossings, key=crossings.__getitem__)
        capacity = self.capacities[meets]
        before = path[: path.index(meets)]
        rate = connection.tcp.sending_rate() or capacity / crossings[meets]
        upstream = min((self.capacities[edge] for edge in before), default=math.inf)
        if connection.tcp.bbr and upstream < capacity:
            rate = capacity
        return connection.weight * max(rate, 1.0)

    def _progress(self, connection: Connection) -> None:
        """Count what has left until now."""
        now = self._env.now
        passed_s = (now - connection.since_ns) / NS
        if passed_s == 0 or connection.left is None:
            return
        endless = connection.rate == math.inf
        sent = max(connection.left, 0.0) if endless else connection.rate * passed_s
        connection.left -= sent
        connection.since_ns = now
        connection.tcp.leave(sent, now)

    def _schedule(self, connection: Connection) -> None:
        """Compute when the message ends, and when the window's cap changes."""
        assert connection.left is not None
        connection.change_ns = connection.tcp.change_ns(connection.rate)
        if connection.left <= NOTHING or connection.rate == math.inf:
            connection.done_ns = self._env.now
        elif connection.rate == 0.0:
            connection.done_ns = math.inf
        else:
            takes_ns = math.ceil(connection.left / connection.rate * NS - ROUNDING_NS)
            connection.done_ns = max(connection.since_ns + takes_ns, self._env.now)

    def _wake(self, number: int) -> None:
        if number != self._wakes:
            return
        now, done = self._env.now, []
        for which, connection in enumerate(self.connections):
            if connection.left is None:
                continue
            if connection.done_ns <= now:
                connection.ended = True
                done.append(which)
            elif connection.change_ns <= now:
                self._progress(connection)
                connection.share = self._share_of(connection)
        self._end_instant()
        for which in done:
            self._left(which)
