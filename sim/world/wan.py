"""The simulated WAN as a networkx graph that can be read and changed while time runs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

import networkx as nx

from geomx import _core
from geomx.cluster import NodeSpec
from geomx.events import EdgeChanged
from geomx.network.links import CONGESTION
from geomx.network.schedules import BYTES_PER_MBIT, EDGE_CHANGES
from geomx.network.sharing import last_class
from geomx.network.validators import passes_twice
from geomx.scenario.places import Edge, find_edge, find_place
from geomx.sim.numbers import number, truth
from geomx.sim.protocols import ARRIVED, Notice, Running
from geomx.sim.world.edges import DELAY, LOSS, MBPS, UP, EdgeData, WanEdges, checked
from geomx.sim.world.readings import WanReadings
from geomx.sim.world.transfers import Transfer
from geomx.sim.world.ways import Ways
from geomx.training.pace import NS


class Wan(WanReadings):
    """The simulated WAN: a networkx graph whose edges act on the simulation.

    Attributes of edges are those of network files: ``bandwidth_mbps`` (missing where nothing limits
    it), ``delay_ms``, ``loss``, and ``up``. Assigning to one of them has the same effect as `set`.
    Nodes and edges cannot be added or removed. Sites of a network file's short form may be named in
    place of their routers: ``("east", "hub")`` is the edge between ``east/wan`` and ``hub/wan``.

    All figures of the present (`load`, `queue`, `flows`) are as of the last event before now: a
    change takes effect when time continues.
    """

    @classmethod
    def of(cls, simulation: Running, ids: Mapping[Edge, int]) -> Self:
        """Return the WAN of a simulation.

        Args:
            simulation: The simulation, built.
            ids: Numbers of the edges in its fabric.

        Returns:
            The WAN.
        """
        cluster = simulation.experiment.cluster
        wan = cls(cluster.graph)
        for source, target, data in cluster.graph.edges(data=True):
            edge = source, target
            known = EdgeData(edge, data, wan._change)
            wan._succ[source][target] = wan._pred[target][source] = known
        wan.graph["paths"] = list(wan.graph.get("paths", ()))
        nx.freeze(wan)
        wan.env, wan.fabric = simulation.env, simulation.fabric
        wan._simulation, wan._ids = simulation, dict(ids)
        wan._ways = Ways(simulation, wan, wan._ids)
        wan._transfers, wan._arrived = {}, deque()
        wan._capable = {}
        return wan

    @property
    def edges(self) -> WanEdges:
        """All edges, as in networkx."""
        return WanEdges(self)

    # ---- changing it ----

    def set(
        self,
        source: str,
        target: str,
        *,
        mbps: float | None = None,
        delay_ms: float | None = None,
        loss: float | None = None,
        up: bool | None = None,
        both: bool = False,
    ) -> None:
        """Change an edge from now on.

        Messages under way continue with the new bandwidth, and arrive after the old delay if they
        have left already. A bandwidth that is set ends the edge's trace, redraws and outages.

        Args:
            source: Where the edge begins.
            target: Where it ends.
            mbps: Bandwidth in Mbit/s; 0: nothing passes; ``math.inf``: no limit.
            delay_ms: One-way delay.
            loss: Share of packets that are lost.
            up: False: nothing passes until it is up again, with the bandwidth that it would have
                had by then: traces, redraws and outages go on.
            both: Whether to change the opposite edge alike.

        Raises:
            ValueError: There is no such edge, or a value is out of range.
        """
        both = truth("both", both)
        given = {MBPS: mbps, DELAY: delay_ms, LOSS: loss, UP: up}
        values = {name: value for name, value in given.items() if value is not None}
        edges = [find_edge(self, source, target)]
        if both:
            edges.append(find_edge(self, target, source))
        for edge in edges:
            self._change(edge, values)

    def set_bandwidth(self, source: str, target: str, mbps: float) -> None:
        """Change the bandwidth of an edge from now on; see `set`.

        Args:
            source: Where the edge begins.
            target: Where it ends.
            mbps: Bandwidth in Mbit/s.

        Raises:
            ValueError: There is no such edge, or the bandwidth is negative.
        """
        self.set(source, target, mbps=mbps)

    def set_path(self, nodes: Sequence[str]) -> None:
        """Let everything from the first node to the last one, or by way of both, take this way.

        Args:
            nodes: Names of consecutive nodes.

        Raises:
            ValueError: Two consecutive nodes have no edge, or a node is passed twice.
        """
        if isinstance(nodes, str) or not isinstance(nodes, Sequence):
            raise ValueError(f"nodes={nodes!r}: must be a list of names")
        if len(nodes) < 2:
            raise ValueError(f"a path has two nodes or more, not {list(nodes)}")
        edges = [find_edge(self, *hop) for hop in pairwise(nodes)]
        way = [edges[0][0], *(target for _, target in edges)]
        if passes_twice(way):
            raise ValueError(f"a path passes no node twice, unlike {' - '.join(way)}")
        others = [path for path in self.graph["paths"] if (path[0], path[-1]) != (way[0], way[-1])]
        self._move(paths=[*others, way])

    def reroute(self) -> int:
        """Let everything take the network's way over edges that carry anything now.

        That is the one of the shortest delay, or by the network's ``routing`` and the present
        bandwidths. Where there is none, the way stays; of two nodes between which nothing is sent,
        the last one that was used or asked for, or that of the start. Ways of `set_path` and of the
        network's ``paths`` are replaced.

        Returns:
            The number of links between two nodes whose way has changed.
        """
        usable = nx.DiGraph()
        usable.add_nodes_from(self.nodes(data=True))
        for source, target, data in self.edges(data=True):
            mbps = self.mbps(source, target)
            if mbps > 0:
                usable.add_edge(source, target, **{**data, MBPS: mbps})
        return self._move(usable, [])

    def _move(self, graph: nx.DiGraph | None = None, paths: Sequence[Any] = ()) -> int:
        self._ways.known()  # before the paths change
        self.graph["paths"] = list(paths)
        moved = self._ways.move(graph)
        self._tell_transfers()
        return moved

    def _tell_transfers(self) -> None:
        for transfer in tuple(self._transfers.values()):
            self.fabric.change_transfer(transfer.id, transfer.model(), self.env.now)

    def _change(self, edge: Edge, values: Mapping[str, Any]) -> None:
        data: EdgeData = self[edge[0]][edge[1]]
        new = checked(edge, values)
        if new.get(UP) == data[UP]:  # it is so already
            del new[UP]
        if not new:
            return
        number, now = self._ids[edge], self.env.now
        if MBPS in new or UP in new:
            self._open(edge, new)
        if DELAY in new or LOSS in new:
            self._ways.known()  # as long as they are those before the change
        data.keep(new)
        if DELAY in new:
            self.fabric.set_delay(number, round(new[DELAY] * 1e6))
        if DELAY in new or LOSS in new:
            self._ways.tell([edge])
            self._tell_transfers()
        events = self._simulation.world.events
        if events.observed(EdgeChanged):
            events.publish(EdgeChanged(now / NS, *edge, {name: values[name] for name in new}))

    def _open(self, edge: Edge, new: Mapping[str, Any]) -> None:
        """Let an edge have another bandwidth, or go up or down, from now on."""
        data, number, now = self[edge[0]][edge[1]], self._ids[edge], self.env.now
        so_far = self.could(edge, now / NS)
        if MBPS in new:
            self.fabric.set_capacity(number, new[MBPS] * BYTES_PER_MBIT, now)
        if UP in new:
            self.fabric.set_edge_up(number, new[UP], now)
        mbps = new.get(MBPS, data.get(MBPS, math.inf))
        scheduled = MBPS not in new and any(name in data for name in EDGE_CHANGES)
        rate = None if scheduled else mbps * BYTES_PER_MBIT
        self._capable[edge] = (so_far, now / NS, rate if new.get(UP, data[UP]) else 0.0)

    # ---- sending ----

    def transfer(
        self,
        source: str,
        target: str,
        size_bytes: float,
        *,
        weight: float = 1.0,
        priority: int = 0,
        mbps: float | None = None,
        congestion: str | None = None,
    ) -> Transfer:
        """Send bytes from one node to another, over the edges that training uses too.

        They share every edge by weighted max-min: a new TCP connection, with its handshake and
        window, or a constant rate.

        Args:
            source: Name of a node of the graph, or of a site.
            target: Likewise.
            size_bytes: Size, without headers of TCP and IP.
            weight: Share of an edge, relative to a connection of training with its round trip.
            priority: 0 shares with training; a higher one goes first on every edge, a lower one
                takes what training leaves.
            mbps: At most this rate, headers included, without TCP's window; None: TCP.
            congestion: ``bbr``, ``cubic`` or ``reno``; None: as training (``tcp.congestion``).

        Returns:
            A SimPy event that triggers when the last byte has arrived.

        Raises:
            ValueError: A node is unknown or cannot be reached, or a number is out of range.
        """
        cluster = self._simulation.experiment.cluster
        source, target = find_place(cluster, source), find_place(cluster, target)
        size_bytes = _at_least("size_bytes", size_bytes, 0.0)
        weight = _at_least("weight", weight, 1e-9)
        if mbps is not None:
            bound = "a finite number above 0"
            mbps = number("mbps", mbps, lambda value: 0 < value < math.inf, bound)
        whole = "a whole number from -100 to 100"
        rank = number("priority", priority, lambda n: abs(n) <= 100 and n.is_integer(), whole)
        if congestion is not None and str(congestion) not in CONGESTION:
            raise ValueError(f"congestion={congestion!r}: must be one of {', '.join(CONGESTION)}")
        transfer = Transfer(self, source, target, size_bytes, weight, int(rank), mbps, congestion)
        self._transfers[transfer.id] = transfer
        return transfer

    def link_between(self, source: str, target: str, congestion: str | None) -> _core.LinkModel:
        """Find the way between two nodes, for transfers.

        Args:
            source: Name of the first node.
            target: Name of the last node.
            congestion: Congestion control; None: that of training.

        Returns:
            The way and its TCP.

        Raises:
            ValueError: There is no way.
        """
        try:
            there, back = self._ways.route(source, target), self._ways.route(target, source)
        except KeyError:
            raise ValueError(f"there is no way from {source} to {target} and back") from None
        tcp = self._simulation.experiment.tcp
        tcp = tcp if congestion is None else replace(tcp, congestion=congestion)
        return self._ways.model(there, back, tcp)

    def replaced(self, server: NodeSpec, standby: NodeSpec) -> None:
        """Let all links of a global server lead to its standby, for the simulation.

        Args:
            server: The global server, which is lost.
            standby: The standby, which has taken its place.
        """
        self._ways.replace(server, standby)

    @property
    def last_class(self) -> int:
        """The last class of training's flows, for transfers."""
        return last_class(self._simulation.experiment.cluster)

    def arrive(self, notices: Iterable[Notice]) -> None:
        """End the transfers that have arrived, for the simulation; `tell_arrival` follows for each.

        All of an instant end before anyone hears of one: what hears of it may start another, which
        gets the number of one that has ended.

        Args:
            notices: The fabric's notices of this instant.
        """
        for transfer in [self._transfers[key] for _, kind, key, *_ in notices if kind == ARRIVED]:
            transfer.end(transfer.size_bytes)
            self._arrived.append(transfer)

    def tell_arrival(self) -> None:
        """Tell of the first transfer that has arrived and was not told of, for the simulation."""
        self._arrived.popleft().tell()

    def ended(self, transfer: Transfer) -> None:
        """Forget a transfer that has ended, for transfers.

        Args:
            transfer: The transfer.
        """
        del self._transfers[transfer.id]

    def publish(self, transfer: Transfer) -> None:
        """Publish the end of a transfer, for transfers.

        Args:
            transfer: The transfer.
        """
        self._simulation.world.transferred(transfer)


def _at_least(name: str, value: Any, least: float) -> float:
    bound = f"a finite number of at least {least:g}"
    return number(name, value, lambda given: least <= given < math.inf, bound)
