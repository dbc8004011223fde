"""packets: the simulated WAN packet by packet instead of as fluid flows.

Every edge sends one packet of each connection in turn (fair queueing), and every connection keeps
at most its window of packets under way, from the first one on. That leaves out slow start and loss;
long flows take as long as in the fluid model, short ones less. To see what a simpler or finer model
changes, compare runs: ``python -m geomx -m '+accel=[],[packets]'``. It is slow: SimPy handles every
packet.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Annotated, Any

import simpy
from annotated_types import Ge, Unit

import geomx

geomx_api = "2.3"


@dataclass(frozen=True)
class PacketsConfig:
    """Options of packets."""

    packet_bytes: Annotated[int, Ge(100), Unit("bytes")] = 1500
    """Size of a packet on the edges; larger ones are faster to simulate."""


class PacketModel(geomx.WanModel):
    """Fair queues at the edges, and a window of packets per connection."""

    def __init__(self, packet_bytes: int) -> None:
        self.packet_bytes = packet_bytes

    def begin(self, wire: Any) -> None:
        """Make a queue for each edge."""
        super().begin(wire)
        self.lines: dict[Any, dict[Any, deque[Any]]] = {edge: {} for edge in wire.edges}
        self.windows: dict[Any, simpy.Container] = {}

    def start(self, connection: Any, size_bytes: float) -> None:
        """Begin a message."""
        self.wire.env.process(self.send(connection, size_bytes))

    def send(self, connection: Any, size_bytes: float) -> Any:
        """Send packets as the window allows."""
        if connection not in self.windows:
            most = max(1, min(connection.window_bytes, 1e9) // self.packet_bytes)
            self.windows[connection] = simpy.Container(self.wire.env, init=most)
        on_edges = max(1.0, size_bytes) / connection.efficiency
        packets = math.ceil(on_edges / self.packet_bytes)
        for number in range(1, packets + 1):
            yield self.windows[connection].get(1)
            if number == packets:
                self.wire.left(connection, arrives=False)
            self.forward(connection, 0, on_edges / packets, number == packets)

    def forward(self, connection: Any, hop: int, size: float, is_last: bool) -> None:
        """Pass a packet on to an edge of its way, or to the receiver."""
        if hop < len(connection.edges):
            edge = connection.edges[hop]
            idle = not self.lines[edge]
            self.lines[edge].setdefault(connection, deque()).append((hop, size, is_last))
            if idle:
                self.wire.env.process(self.serve(edge))
            return
        if is_last:
            self.wire.arrived(connection)
        back_s = sum(edge.delay_s for edge in connection.back or connection.edges)
        self.later(back_s, self.windows[connection].put, 1)  # the acknowledgement

    def serve(self, edge: Any) -> Any:
        """Send the packets of an edge's connections in turn."""
        line = self.lines[edge]
        while line:
            connection = next(iter(line))
            hop, *packet = line[connection].popleft()
            yield self.wire.env.timeout(1e9 * packet[0] / edge.bytes_per_s)
            self.later(edge.delay_s, self.forward, connection, hop + 1, *packet)
            if rest := line.pop(connection):
                line[connection] = rest  # behind the others

    def later(self, seconds: float, call: Any, *arguments: Any) -> None:
        """Call a function after a time."""
        self.wire.env.timeout(1e9 * seconds).callbacks.append(lambda _: call(*arguments))


class Packets:
    """The simulated WAN packet by packet instead of as fluid flows."""

    lossless = True

    def __init__(self, config: PacketsConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_wan_model(self) -> geomx.WanModel:
        """Return a new model."""
        return PacketModel(self.config.packet_bytes)


@geomx.hookimpl
def geomx_register(register) -> None:
    """Register ``accel=[packets]``."""
    register("accel", "packets", PacketsConfig, Packets)
