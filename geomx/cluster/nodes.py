"""The nodes of an experiment and the network graph between them, as plain data.

A `Cluster` is the result of reading a network file: the nodes with their roles and parties, and a
networkx graph with bandwidth and delay on its edges. Simulated and live runs both start from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import networkx as nx

from geomx.cluster.routes import Routes

Role = Literal["worker", "server", "global_server", "scheduler", "standby"]
LinkKind = Literal["lan", "wan"]
Direction = Literal["push", "pull"]
Cargo = Literal["contributions", "sum", "weights"]


@dataclass(frozen=True)
class NodeSpec:
    """One process of the parameter-server tree.

    Attributes:
        id: Position in `Cluster.nodes`, used on the wire.
        name: Unique (``beijing/worker0``).
        role: Its role in HiPS; `server` is the local server of a party, `standby` takes the place
            of a global server that is lost.
        party: The site it belongs to.
        speed: Relative speed of a worker; 1.0 is the workload's own step time.
    """

    id: int
    name: str
    role: Role
    party: str
    speed: float = 1.0


@dataclass(frozen=True)
class Party:
    """A data centre that trains: one local server and its workers.

    Attributes:
        name: Name of the site.
        server: The local server.
        workers: Its workers, in file order.
    """

    name: str
    server: NodeSpec
    workers: tuple[NodeSpec, ...]


@dataclass(frozen=True)
class Link:
    """A directed hop of the tree, as plugins see it.

    Attributes:
        kind: `wan` if the two nodes are in different parties.
        direction: `push` towards the global server, `pull` back down.
        source: Sending node.
        target: Receiving node.
        carries: The kind of values. ``contributions`` upwards (gradients, or what the sync policy
            derives from parameters); downwards new ``weights``, or their ``sum`` if the optimizer
            runs at the parties.
        exchange: What workers exchange under the sync policy, ``gradients`` or ``parameters``: with
            the latter, contributions and sums are changes of the weights.
        parties: Number of training parties.
        summed: Whether contributions are added up and come back as their ``sum``: from a party to a
            global server, if the optimizer runs at the parties.
    """

    kind: LinkKind
    direction: Direction
    source: NodeSpec
    target: NodeSpec
    carries: Cargo = "weights"
    exchange: str = "gradients"
    parties: int = 1
    summed: bool = False

    @property
    def moves(self) -> bool:
        """Whether it carries changes of parameters that parties exchange together, or their sum."""
        return self.exchange == "parameters" and (self.summed or self.carries == "sum")


@dataclass(frozen=True)
class Path:
    """The route between two hosts.

    Attributes:
        edges: Edges of the graph, in order.
        bandwidth_bps: Smallest bandwidth of the edges, bits per second (inf where unlimited).
        delay_s: One-way propagation delay, seconds.
        loss: Probability that a packet is lost.
    """

    edges: tuple[tuple[str, str], ...]
    bandwidth_bps: float
    delay_s: float
    loss: float


@dataclass(frozen=True)
class Cluster:
    """Nodes, parties and the network graph. Node ids are positions in `nodes`.

    Attributes:
        name: Name of the network, for reports.
        graph: Hosts and routers; edges carry `bandwidth_mbps`, `delay_ms`, `loss`, ...
        nodes: All nodes: scheduler first, then global servers, then party by party, then standbys.
        parties: The training parties in file order.
    """

    name: str
    graph: nx.DiGraph
    nodes: tuple[NodeSpec, ...]
    parties: tuple[Party, ...]

    @cached_property
    def workers(self) -> tuple[NodeSpec, ...]:
        """All workers in party order; the position is the worker's global rank."""
        return tuple(worker for party in self.parties for worker in party.workers)

    @cached_property
    def global_servers(self) -> tuple[NodeSpec, ...]:
        """The global servers in id order."""
        return tuple(node for node in self.nodes if node.role == "global_server")

    @cached_property
    def standbys(self) -> tuple[NodeSpec, ...]:
        """The standbys, in the order of their global servers; none, or one of each."""
        return tuple(node for node in self.nodes if node.role == "standby")

    def standby_of(self, server: NodeSpec) -> NodeSpec | None:
        """Return the standby of a global server.

        Args:
            server: Any node.

        Returns:
            Its standby; None if it has none.
        """
        if not self.standbys or server.role != "global_server":
            return None
        return self.standbys[self.global_servers.index(server)]

    def stood_by(self, standby: NodeSpec) -> NodeSpec:
        """Return the global server of a standby.

        Args:
            standby: The standby.

        Returns:
            Its global server.
        """
        return self.global_servers[self.standbys.index(standby)]

    @cached_property
    def scheduler(self) -> NodeSpec:
        """The scheduler; a cluster has exactly one."""
        return next(node for node in self.nodes if node.role == "scheduler")

    def node(self, name: str) -> NodeSpec:
        """Look a node up by name.

        Args:
            name: As in `NodeSpec.name`.

        Returns:
            The node.

        Raises:
            KeyError: There is no such node.
        """
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, NodeSpec]:
        return {node.name: node for node in self.nodes}

    def party_of(self, node: NodeSpec) -> Party:
        """Return the party that `node` belongs to.

        Args:
            node: A worker or a local server.

        Returns:
            Its party.

        Raises:
            KeyError: The node is in the central site, which does not train.
        """
        return self._party_by_name[node.party]

    @cached_property
    def _party_by_name(self) -> dict[str, Party]:
        return {party.name: party for party in self.parties}

    def link(
        self,
        source: NodeSpec,
        target: NodeSpec,
        direction: Direction,
        carries: Cargo | None = None,
    ) -> Link:
        """Return the directed hop between two nodes of the tree.

        Args:
            source: Sending node.
            target: Receiving node.
            direction: `push` towards the global server, `pull` back down.
            carries: The kind of values; by default contributions upwards and weights downwards.

        Returns:
            The hop, for gradients.
        """
        kind: LinkKind = "lan" if source.party == target.party else "wan"
        usual: Cargo = "contributions" if direction == "push" else "weights"
        return Link(kind, direction, source, target, carries or usual, parties=len(self.parties))

    def path(self, source: NodeSpec, target: NodeSpec) -> Path:
        """Return the route from `source` to `target`: shortest by delay, then by hop count.

        Args:
            source: Sending host.
            target: Receiving host.

        Returns:
            The edges with their combined bandwidth, delay and loss.

        Raises:
            KeyError: There is no route.
        """
        return self.route(source.name, target.name)

    def route(self, source: str, target: str) -> Path:
        """Return the route between two nodes of the graph, routers included, as `path` does.

        Args:
            source: Name of the first node.
            target: Name of the last node.

        Returns:
            The edges with their combined bandwidth, delay and loss.

        Raises:
            KeyError: There is no route.
        """
        edges = tuple(pairwise(self._routes(source, target)))
        bandwidth = math.inf
        delay_ms, kept = 0.0, 1.0
        for edge in edges:
            data = self.graph.edges[edge]
            bandwidth = min(bandwidth, data.get("bandwidth_mbps", math.inf) * 1e6)
            delay_ms += data.get("delay_ms", 0.0)
            kept *= 1.0 - data.get("loss", 0.0)
        return Path(edges, bandwidth, delay_ms / 1e3, 1.0 - kept)

    @cached_property
    def _routes(self) -> Routes:
        return Routes(self.graph)
