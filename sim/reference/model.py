"""The reference as the model of a simulation: ``sim.wan=reference``."""

from __future__ import annotations

from collections.abc import Mapping

from geomx.plugin.wan import WanConnection, WanEdge, WanModel, Wire
from geomx.sim.reference.connection import Connection
from geomx.sim.reference.tcp import Tcp
from geomx.sim.reference.wan import ReferenceWan
from geomx.training.pace import NS


class ReferenceModel(WanModel):
    """The laws of the native model, in Python: every event solves everything."""

    def begin(self, wire: Wire) -> None:
        """See `WanModel.begin`."""
        super().begin(wire)
        self._numbers: dict[WanConnection, int] = {}  # in the order of their first messages
        self._order: list[WanConnection] = []
        capacities = [edge.bytes_per_s for edge in wire.edges]
        self._wan = ReferenceWan(wire.env, capacities, self._left, self._rated, wire.fifo)

    def start(self, connection: WanConnection, size_bytes: float) -> None:
        """See `WanModel.start`."""
        if connection not in self._numbers:
            self._numbers[connection] = len(self._order)
            self._order.append(connection)
            tcp = Tcp(
                round(connection.rtt_s * NS), connection.congestion, connection.window_bytes,
                connection.rate_limit, connection.first_window_bytes, self.wire.fifo,
            )  # fmt: skip
            self._wan.connections.append(
                Connection(
                    _hops(connection), tcp, connection.weight, connection.priority_class,
                    connection.efficiency,
                )
            )  # fmt: skip
        self._wan.start(self._numbers[connection], size_bytes)

    def _left(self, number: int) -> None:
        self._retire(number)
        self.wire.left(self._order[number])

    def _retire(self, number: int) -> None:
        """Note that a connection has no message any more; a transfer's sends no other one."""
        if self._order[number].kind == "transfer":
            self._wan.connections[number].used = False

    def _rated(self, number: int, rate: float) -> None:
        self.wire.rate(self._order[number], rate)

    def edge_changed(self, edge: WanEdge) -> None:
        """See `WanModel.edge_changed`; delays are the simulation's affair."""
        self._wan.set_capacity(edge.number, edge.bytes_per_s)

    def connection_changed(self, connection: WanConnection) -> None:
        """See `WanModel.connection_changed`."""
        self._wan.change(
            self._numbers[connection],
            hops=_hops(connection),
            rtt_ns=round(connection.rtt_s * NS),
            window_limit=connection.window_bytes,
            rate_limit=connection.rate_limit,
            weight=connection.weight,
            priority_class=connection.priority_class,
            efficiency=connection.efficiency,
        )

    def cancelled(self, connection: WanConnection) -> None:
        """See `WanModel.cancelled`."""
        self._wan.cancel(self._numbers[connection])
        self._retire(self._numbers[connection])


def _hops(connection: WanConnection) -> Mapping[int, float]:
    hops = {edge.number: 1.0 for edge in connection.edges}
    for edge in connection.back if connection.ack_share else ():
        hops[edge.number] = hops.get(edge.number, 0.0) + connection.ack_share
    return hops
