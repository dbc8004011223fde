"""Changes of edges, and traffic of others, in the network of ``emulate=netns``.

The process that forwards packets (`geomx.live.namespaces`) carries them out. Traffic is a TCP
connection of the kernel between two namespaces without nodes, with the run's congestion control.
Its packets share edges and their queues with those of training. A rate is a limit on its pace, so
that the traffic takes no more than its share where the rate does not fit, as in the simulation.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from geomx import _core
from geomx.live.spec import Spec
from geomx.network.schedules import BYTES_PER_MBIT
from geomx.scenario import Act
from geomx.scenario.events import ENDS
from geomx.scenario.places import Edge, find_edge, find_place

NS = 1_000_000_000
PIECE = bytes(65536)
PACE = getattr(socket, "SO_MAX_PACING_RATE", 47)
AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: what is unsent when a socket is closed is dropped


@dataclass(frozen=True)
class Place:
    """An end of traffic.

    Attributes:
        namespace: Descriptor of its network namespace.
        address: Its IPv4 address.
    """

    namespace: int
    address: str


def traffic(spec: Spec) -> list[tuple[str, str]]:
    """Return the pairs of nodes in the graph between which a scenario has traffic."""
    return list(
        dict.fromkeys(
            (find_place(spec.cluster, event.traffic[0]), find_place(spec.cluster, event.traffic[1]))
            for event in spec.scenario
            if event.traffic is not None
        )
    )


class WanEvents(threading.Thread):
    """Carries out what a scenario does to the network, until the process ends.

    Args:
        spec: The experiment.
        router: The network.
        edges: Its edges by name.
        places: Namespaces by node of the graph, for the ends of traffic.
    """

    def __init__(
        self,
        spec: Spec,
        router: _core.Router,
        edges: Mapping[Edge, int],
        places: Mapping[str, Place],
    ) -> None:
        super().__init__(name="scenario", daemon=True)
        self._spec, self._router, self._edges, self._places = spec, router, edges, places
        self._flows: dict[tuple[int, int], _Flow] = {}  # by event and end
        self._origin_s = 0.0

    def begin(self, origin_s: float) -> None:
        """Carry out the scenario from the start of the run, in seconds of `time.monotonic`."""
        self._origin_s = origin_s
        self.start()

    def run(self) -> None:
        """Wait for each act in turn, and carry it out."""
        for act in self._spec.event_schedule.acts():
            # Also for acts of nodes: they may repeat without end, and be the only ones left.
            time.sleep(max(0.0, self._origin_s + act.at_ns / NS - time.monotonic()))
            if act.what not in ("set", "traffic", ENDS["traffic"]):
                continue
            try:
                self._carry_out(act)
            except OSError as error:
                print(f"{act.what} at {act.at_ns / NS:g} s: {error}", file=sys.stderr)

    def _carry_out(self, act: Act) -> None:
        event = self._spec.event_schedule.event(act)
        if act.what == "set":
            delay_ns = None if event.delay_ms is None else round(event.delay_ms * 1e6)
            for pair in (event.targets, event.targets[::-1]):
                edge = find_edge(self._spec.cluster.graph, pair[0], pair[1])
                if edge in self._edges:  # otherwise no messages pass it
                    self._router.set(self._edges[edge], delay_ns, event.loss)
        elif act.what == "traffic":
            source, target = (
                self._places[find_place(self._spec.cluster, name)] for name in event.targets
            )
            size = None if event.bytes is None else round(event.bytes)
            flow = _Flow(source, target, self._spec.tcp.congestion, size, event.mbps)
            if act.for_ns:
                self._flows[act.event, act.at_ns + act.for_ns] = flow
            flow.start()
        else:
            self._flows.pop((act.event, act.at_ns)).cancel()


class _Flow(threading.Thread):
    """A connection over which `size` bytes are sent, or any number until it is cancelled."""

    def __init__(
        self, source: Place, target: Place, congestion: str, size: int | None, mbps: float | None
    ) -> None:
        super().__init__(name="traffic", daemon=True)
        self._left = size
        self._listener = _socket(target, congestion)
        self._listener.listen(1)
        self._sender = _socket(source, congestion)
        if mbps is not None:
            self._sender.setsockopt(socket.SOL_SOCKET, PACE, round(mbps * BYTES_PER_MBIT))
        self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)

    def run(self) -> None:
        with contextlib.suppress(OSError):  # cancelled
            taking = threading.Thread(target=self._take, daemon=True)
            taking.start()
            self._sender.connect(self._listener.getsockname())
            while self._left is None or self._left > 0:
                piece = PIECE if self._left is None else memoryview(PIECE)[: self._left]
                sent = self._sender.send(piece)
                self._left = None if self._left is None else self._left - sent
            self._sender.shutdown(socket.SHUT_WR)
            taking.join()
            self.cancel()

    def cancel(self) -> None:
        """Close the connection; what it has not delivered is dropped."""
        with contextlib.suppress(OSError):
            self._sender.shutdown(socket.SHUT_RDWR)
        self._sender.close()
        self._listener.close()

    def _take(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            with connection:
                buffer = bytearray(1 << 18)
                while connection.recv_into(buffer):
                    pass


def _socket(place: Place, congestion: str) -> socket.socket:
    """Return a TCP socket of a namespace, bound to its address."""
    with inside(place.namespace):
        made = socket.socket()
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    made.bind((place.address, 0))
    return made


@contextlib.contextmanager
def inside(namespace: int) -> Iterator[None]:
    """Move the calling thread to the network namespace of a descriptor during the context."""
    with open("/proc/thread-self/ns/net", "rb") as here:
        _core.enter_namespace(namespace)
        try:
            yield
        finally:
            _core.enter_namespace(here.fileno())
