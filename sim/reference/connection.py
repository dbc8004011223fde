"""A connection of the WAN model: its message, its window, and what of it stands in queues."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from geomx.sim.reference.queues import Standing
from geomx.sim.reference.tcp import NS, Tcp


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
        standing: What of it stands in FIFO queues.
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
    standing: Standing = field(default_factory=Standing)

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
        return min(self.tcp.cap() / self.efficiency, self.standing.allowed)

    @property
    def bytes_per_s(self) -> float:
        """Its rate on the edges."""
        return self.rate / self.efficiency

    @property
    def way(self) -> tuple[list[int], dict[int, float], int]:
        """Where what is under way and stands in queues is: edges there and back, and round trip."""
        return self.path, self.acks, self.tcp.rtt_ns

    @property
    def rtt_s(self) -> float:
        """Its round trip without queues."""
        return self.tcp.rtt_ns / NS

    def rest(self, now: float) -> float:
        """Return how many bytes on the edges are left of its message."""
        if self.left is None or self.rate == math.inf:
            return 0.0
        return max(self.left - self.rate * (now - self.since_ns) / NS, 0.0) / self.efficiency

    def waiting(self, now: float) -> float:
        """Return how many bytes on the edges wait in its queue."""
        passed_s = (now - self.since_ns) / NS
        return self.standing.waits(self.bytes_per_s, self.rtt_s, self.rest(now), passed_s)
