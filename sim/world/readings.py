"""What can be read from the simulated WAN: bandwidths, loads, queues, flows, bytes."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import networkx as nx

from geomx import _core
from geomx.network.links import edge_model
from geomx.network.schedules import BYTES_PER_MBIT
from geomx.scenario.places import Edge, find_edge, find_place
from geomx.sim.clock import Clock
from geomx.sim.protocols import Running
from geomx.sim.world.transfers import Transfer
from geomx.sim.world.ways import Ways


@dataclass(frozen=True)
class Flow:
    """What is under way between two nodes.

    Attributes:
        source: Name of the sending node.
        target: Name of the receiving node.
        kind: ``training``, ``datagrams`` (of training, best effort) or ``transfer``.
        edges: The edges that it crosses, in order.
        rate_mbps: Its present rate in Mbit/s, without headers.
        left_bytes: Bytes of its message or transfer that have not left.
        transfer: The transfer, for that kind.
    """

    source: str
    target: str
    kind: str
    edges: tuple[Edge, ...]
    rate_mbps: float
    left_bytes: float
    transfer: Transfer | None = None


class WanReadings(nx.DiGraph):  # type: ignore[misc]
    """The figures of a WAN; `geomx.sim.world.wan.Wan` fills in what they come from."""

    env: Clock
    fabric: _core.Fabric
    _simulation: Running
    _ids: dict[Edge, int]
    _ways: Ways
    _transfers: dict[int, Transfer]
    _arrived: deque[Transfer]  # that have ended, and whose end is not published yet
    # Of edges that were changed: bytes until, seconds, bytes/s since (None: by its schedule).
    _capable: dict[Edge, tuple[float, float, float | None]]

    def path(self, source: str, target: str) -> list[str]:
        """Find the present way from one node to another.

        Args:
            source: Name of the first node.
            target: Name of the last node.

        Returns:
            The names of its nodes, both included.

        Raises:
            ValueError: A node is unknown, or there is no way.
        """
        cluster = self._simulation.experiment.cluster
        source, target = find_place(cluster, source), find_place(cluster, target)
        try:
            edges = self._ways.route(source, target).edges
        except KeyError:
            raise ValueError(f"there is no way from {source} to {target}") from None
        return [source, *(there for _, there in edges)]

    def mbps(self, source: str, target: str) -> float:
        """Look an edge's present bandwidth up, by its trace or redraws if it has any.

        Args:
            source: Where the edge begins.
            target: Where it ends.

        Returns:
            Mbit/s; infinite for no limit.

        Raises:
            ValueError: There is no such edge.
        """
        number = self._number(source, target)
        return self.fabric.capacity(number, self.env.now) / BYTES_PER_MBIT

    def load(self, source: str, target: str) -> float:
        """Measure the present load of an edge.

        Args:
            source: Where the edge begins.
            target: Where it ends.

        Returns:
            Mbit/s, headers included.

        Raises:
            ValueError: There is no such edge.
        """
        return self.fabric.load(self._number(source, target)) / BYTES_PER_MBIT

    def queue(self, source: str, target: str) -> float:
        """Count what senders hold for an edge: queued, and of messages being sent.

        Args:
            source: Where the edge begins.
            target: Where it ends.

        Returns:
            Bytes.

        Raises:
            ValueError: There is no such edge.
        """
        return self.fabric.edges_queued(self.env.now)[self._number(source, target)]

    def carried(self, source: str, target: str) -> float:
        """Count what has been sent over an edge since the start.

        Args:
            source: Where the edge begins.
            target: Where it ends.

        Returns:
            Bytes, control traffic included, of transfers without headers.

        Raises:
            ValueError: There is no such edge.
        """
        return sum(self.fabric.edges_carried(self.env.now)[self._number(source, target)])

    def flows(self) -> list[Flow]:
        """List what is under way.

        Returns:
            The messages of training and the transfers, each with its present rate.
        """
        nodes = self._simulation.experiment.cluster.nodes
        found = []
        for is_transfer, one, other, number, reliable, rate, left in self.fabric.flows(
            self.env.now
        ):
            transfer = self._transfers[number] if is_transfer else None
            if transfer is not None:
                kind, source, target = "transfer", transfer.source, transfer.target
                edges = self._ways.route(source, target).edges
            else:
                kind = "training" if reliable else "datagrams"
                source, target = nodes[one].name, nodes[other].name
                edges = self._ways.route(*self._ways.ends((one, other))).edges
            found.append(Flow(source, target, kind, edges, rate / BYTES_PER_MBIT, left, transfer))
        return found

    def could(self, edge: Edge, until_s: float) -> float:
        """Integrate an edge's bandwidth, for results.

        Args:
            edge: The edge.
            until_s: Seconds from the start of the run.

        Returns:
            The bytes that it could have carried until then.
        """
        before, since_s, rate = self._capable.get(edge, (0.0, 0.0, None))
        if until_s <= since_s:
            return before
        if rate is not None:
            return before + rate * (until_s - since_s)
        cluster = self._simulation.experiment.cluster
        bandwidth, _ = edge_model(cluster, edge, self._simulation.experiment.seed)
        whole = bandwidth.carries(until_s)
        return before + (whole - bandwidth.carries(since_s) if whole < math.inf else math.inf)

    def traffic(self) -> dict[Edge, float]:
        """Count what training and transfers have sent over every edge, for results.

        Returns:
            Bytes by edge, without control traffic.
        """
        carried = self.fabric.edges_carried(self.env.now)
        return {edge: carried[number][0] for edge, number in self._ids.items()}

    def _number(self, source: str, target: str) -> int:
        try:
            return self._ids[source, target]
        except (KeyError, TypeError):  # names of sites, or no edge at all
            return self._ids[find_edge(self, source, target)]
