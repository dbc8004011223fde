"""Connections over shared edges, and the times at which their messages have left."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import simpy
from simpy.events import EventPriority

from geomx.sim.clock import Clock
from geomx.sim.reference.connection import Connection
from geomx.sim.reference.queues import MOST_STEPS, WHOLE_STEPS, Queues, Standing, alike
from geomx.sim.reference.sharing import Stream, share
from geomx.sim.reference.tcp import NS

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

MOST_ROUNDS = 50
"""How often queues may change shares, caps and what edges offer within an instant."""

MOST_MOVES = 10
"""How often connections may wait in other queues than before within an instant."""

MOST_ACKS = 0.95
"""Share of an edge's bandwidth that acknowledgements may take from data."""


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
        self._queues = Queues(self.capacities, self.capacities)
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
            connection.standing = Standing()
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
        former = connection.way
        connection.hops, connection.weight = hops, weight
        connection.priority_class, connection.efficiency = priority_class, efficiency
        busy = connection.left is not None
        connection.tcp.change(rtt_ns, window_limit, rate_limit, busy, self._env.now)
        if connection.way != former:
            connection.standing = Standing()
        if not connection.standing.full:
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
        if self._fifo:
            for connection in sending:
                if connection.tcp.sending_rate() == 0.0:  # it has no rounds to look at edges
                    connection.share = self._share_of(connection)
        rounds = 0
        while self._share(sending, rounds):
            rounds += 1  # windows have opened or closed, or acknowledgements or waits have changed
        for number, connection in enumerate(self.connections):
            if connection.left is not None:
                self._schedule(connection)
                self._rated(number, connection.rate)
        self._wakes += 1
        times = (min(connection.done_ns, connection.change_ns) for connection in sending)
        if (first := min(times, default=math.inf)) < math.inf:
            number = self._wakes
            self._at(first, lambda event: self._wake(number))

    def _share(self, sending: Sequence[Connection], turn: int) -> bool:
        """Set the rates; return whether what they depend on has changed meanwhile."""
        caps = [connection.cap for connection in sending]
        streams = [
            self._stream(connection, cap) for connection, cap in zip(sending, caps, strict=True)
        ]
        rates = share(self._for_data(), streams)
        for connection, bytes_per_s in zip(sending, rates, strict=True):
            rate = bytes_per_s * connection.efficiency
            if rate == math.inf or abs(rate - connection.rate) > SAME * rate:
                self._progress(connection)
                connection.rate = rate
        moved, settling = False, turn < MOST_ROUNDS
        if self._fifo:
            looked = [self._look(connection) for connection in sending]
            moved = any(looked)
            moved = (settling and self._queue(sending, turn)) or moved
        moved = (settling and self._reserve(sending, rates)) or moved
        moved = moved or caps != [connection.cap for connection in sending]
        return moved or (self._fifo and settling and self._fill(sending))

    def _for_data(self) -> list[float]:
        """Return what acknowledgements leave of the edges, in bytes/s."""
        return [
            bytes_per_s - acks if acks else bytes_per_s
            for bytes_per_s, acks in zip(self.capacities, self._reserved, strict=True)
        ]

    def _reserves(self, connection: Connection) -> bool:
        """Return whether acknowledgements take what they need: under bbr, in FIFO queues."""
        return self._fifo and connection.tcp.bbr

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

    def _look(self, connection: Connection) -> bool:
        """Take its window and its rate of sending; return whether it has a share by these again."""
        tcp, standing = connection.tcp, connection.standing
        sends = min(tcp.sending_rate(), tcp.cap()) / connection.efficiency
        window = tcp.queue_window() / connection.efficiency
        again = standing.take_window(window, sends, connection.waiting(self._env.now))
        if again:
            connection.share = self._share_of(connection)
        return again

    def _queue(self, sending: Sequence[Connection], turn: int) -> bool:
        """Compute what stands in queues; return whether that changes caps or shares."""
        queues = self._queues = Queues(self.capacities, self._for_data())
        for connection in sending:
            queues.add(connection.path, connection.bytes_per_s, connection.share)
        for connection in sending:
            level = connection.bytes_per_s / connection.share
            if turn < MOST_MOVES or connection.standing.edge is None:
                connection.standing.edge = queues.limiting(connection.path, level)
        steps = 0
        while self._wait(sending, halves=steps >= WHOLE_STEPS) and steps < MOST_STEPS - 1:
            steps += 1
        halves = turn >= WHOLE_STEPS
        changed = [self._slow(connection, halves) for connection in sending]
        return any(changed)

    def _wait(self, sending: Sequence[Connection], halves: bool) -> bool:
        """Compute waits from what stands in queues; return whether they have changed."""
        waiting: dict[int, float] = {}
        for connection in sending:
            edge = connection.standing.edge
            if edge is not None:
                waiting[edge] = waiting.get(edge, 0.0) + connection.waiting(self._env.now)
        changed = self._queues.wait(waiting, halves)
        for connection in sending:
            acks = connection.acks if self._reserves(connection) else {}
            standing = connection.standing
            standing.found_s = self._queues.apart_s(connection.path, acks, standing.edge)
            if standing.full:
                standing.apart_s = standing.found_s
        return changed

    def _slow(self, connection: Connection, halves: bool) -> bool:
        """Let the waits on its way slow a connection; return whether its cap or share changes."""
        standing, rtt_s = connection.standing, connection.rtt_s
        if standing.window == 0.0:
            return False
        if not standing.full:
            if not standing.moves(rtt_s):
                return False
            self._progress(connection)
            standing.apart_s = (standing.apart_s + standing.found_s) / 2
            return True
        rate, allowed = standing.rate(self._queues, rtt_s), standing.most(rtt_s)
        if halves and standing.allowed < math.inf:
            rate = math.sqrt(rate * connection.share / connection.weight)
            allowed = math.sqrt(allowed * standing.allowed)
        share = connection.weight * max(rate, 1.0)
        if alike(share, connection.share) and alike(allowed, standing.allowed):
            return False
        connection.share, standing.allowed = share, allowed
        return True

    def _fill(self, sending: Sequence[Connection]) -> bool:
        """Find connections whose window is used up now; return whether that changes anything."""
        changed = False
        for connection in sending:
            waiting, standing = connection.waiting(self._env.now), connection.standing
            if standing.uses_up(waiting, connection.bytes_per_s, connection.rtt_s):
                standing.full, standing.apart_s = True, standing.found_s
                changed = self._slow(connection, halves=False) or changed
        return changed

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
        connection.standing.waiting = connection.waiting(now)
        endless = connection.rate == math.inf
        sent = max(connection.left, 0.0) if endless else connection.rate * passed_s
        connection.left -= sent
        connection.since_ns = now
        connection.tcp.leave(sent, now)

    def _schedule(self, connection: Connection) -> None:
        """Compute when the message ends, and when the window's cap changes."""
        assert connection.left is not None
        connection.change_ns = connection.tcp.change_ns(connection.rate)
        now, rate = self._env.now, connection.bytes_per_s
        left, waiting = connection.rest(now), connection.waiting(now)
        full_in_s = connection.standing.full_in_s(rate, connection.rtt_s, left, waiting)
        if full_in_s < math.inf:
            full_ns = now + 1 + math.ceil(full_in_s * NS)
            connection.change_ns = min(connection.change_ns, full_ns)
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
                if not connection.standing.full:
                    connection.share = self._share_of(connection)
        self._end_instant()
        for which in done:
            self._left(which)
