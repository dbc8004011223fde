"""Models of the simulated network that plugins bring: the contract of `geomx_wan_model`.

The simulator has a fluid model of its own (docs/model.md). A plugin's model replaces it: it is told
which connection begins to send how many bytes, and tells when they have left and arrived. It lives
in SimPy's time and may be as fine as it likes, down to single packets. Protocol, plugins and
results are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from geomx.errors import GeomxError


@dataclass(eq=False)
class WanEdge:
    """A directed edge of the network, as it is now.

    Attributes:
        number: Its position in `Wire.edges`.
        source: Name of the node where it begins.
        target: Name of the node where it ends.
        bytes_per_s: Bandwidth, headers included; infinite without a limit, 0 while it is down.
        delay_s: One-way delay.
    """

    number: int
    source: str
    target: str
    bytes_per_s: float
    delay_s: float


@dataclass(eq=False)
class WanConnection:
    """An ordered stream of bytes between two nodes, which sends one message after the other.

    Attributes:
        number: Its number, unique among the connections that exist.
        source: Name of the sending node.
        target: Name of the receiving node.
        kind: ``training``, ``datagrams`` (of training, best effort) or ``transfer`` (of others).
        edges: The edges that it crosses, in order; empty within a machine.
        back: The edges of the way back, which acknowledgements cross; empty: as `edges`.
        rtt_s: Round trip without queues.
        efficiency: Payload bytes per byte on the edges: headers, and what loss makes TCP repeat.
        weight: Share of an edge, relative to others of its class.
        priority_class: Lower classes go first; training has 0, its datagrams 1 where routers obey
            marks.
        congestion: ``bbr``, ``cubic`` or ``reno``.
        first_window_bytes: Payload bytes that may be under way at its beginning.
        window_bytes: Payload bytes that may ever be; infinite for datagrams and constant rates.
        rate_limit: Bound of its rate in payload bytes/s, of loss or a constant rate; or infinite.
        ack_share: Bytes of acknowledgements on the edges of the way back per byte that it sends.
    """

    number: int
    source: str
    target: str
    kind: str
    edges: tuple[WanEdge, ...]
    back: tuple[WanEdge, ...]
    rtt_s: float
    efficiency: float
    weight: float
    priority_class: int
    congestion: str
    first_window_bytes: float
    window_bytes: float
    rate_limit: float
    ack_share: float = 0.0


class Wire(Protocol):
    """What a model reports to: one simulation.

    Attributes:
        env: SimPy's environment, in whole nanoseconds.
        edges: All edges of the network.
        fifo: Whether edges are FIFO queues, as those of kernels and routers, which connections
            share by their rates of sending; otherwise by max-min.
    """

    env: Any
    edges: tuple[WanEdge, ...]
    fifo: bool

    def left(self, connection: WanConnection, *, arrives: bool = True, lost: bool = False) -> None:
        """Report that the last byte of a connection's message has left its sender.

        If the sender has more, `WanModel.start` is called with the next message before this
        returns.

        Args:
            connection: A connection that has a message.
            arrives: Whether it arrives after the delays of the edges; False: when `arrived` is
                called.
            lost: Whether it never arrives; for datagrams only.
        """
        ...

    def arrived(self, connection: WanConnection) -> None:
        """Report that the last byte of a message has arrived that left with ``arrives=False``.

        Args:
            connection: Its connection. Messages arrive in the order in which they left.
        """
        ...

    def rate(self, connection: WanConnection, bytes_per_s: float) -> None:
        """Report the present rate of a message, for programs that read loads and flows.

        Args:
            connection: A connection that has a message.
            bytes_per_s: Payload bytes per second from now on; 0 until it is reported.
        """
        ...


class WanModel:
    """A model of the network; subclass it and return an instance from `geomx_wan_model`.

    Methods are called at the present of ``wire.env``; by default the last three refuse, by name.
    """

    wire: Wire

    def begin(self, wire: Wire) -> None:
        """Take note of the simulation, once, before time starts; sets ``self.wire``.

        Args:
            wire: What the model reports to.
        """
        self.wire = wire

    def start(self, connection: WanConnection, size_bytes: float) -> None:
        """Begin a message of a connection that has none; end it by ``wire.left``.

        Args:
            connection: The connection.
            size_bytes: Payload bytes, 0 or more.
        """
        raise NotImplementedError

    def edge_changed(self, edge: WanEdge) -> None:
        """Follow a new bandwidth or delay of an edge, which has it already.

        Args:
            edge: The edge.
        """
        self._refuse("does not follow changes of edges (edge_changed)")

    def connection_changed(self, connection: WanConnection) -> None:
        """Follow a new way, share or limit of a connection, which has it already.

        Args:
            connection: The connection, with or without a message.
        """
        self._refuse("does not follow new ways (connection_changed)")

    def cancelled(self, connection: WanConnection) -> None:
        """Give up the message of a connection, which must not be reported any more.

        Args:
            connection: The connection.
        """
        self._refuse("does not cancel transfers (cancelled)")

    def _refuse(self, what: str) -> NoReturn:
        raise GeomxError(f"the WAN model {type(self).__name__} {what}")
