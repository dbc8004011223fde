"""The ways of links and transfers through the simulated WAN, while they change."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

import networkx as nx

from geomx import _core
from geomx.cluster import Cluster, NodeSpec, Path
from geomx.experiment.wiring import peers
from geomx.network.links import way_model
from geomx.network.sharing import EQUAL, Share, share_of
from geomx.options.schema import TcpOptions
from geomx.scenario.places import Edge
from geomx.sim.protocols import Running
from geomx.sim.world.edges import DELAY, LOSS

Pair = tuple[int, int]


class Ways:
    """The present ways between nodes, as the fabric was told.

    They are those of the start of the run until `move` is called, even if edges change. Where there
    is none after that, the way stays. Delays and losses along them are the present ones.

    Args:
        simulation: The simulation, built.
        graph: The graph whose attributes change.
        ids: Numbers of the edges in the fabric.
    """

    def __init__(self, simulation: Running, graph: nx.DiGraph, ids: Mapping[Edge, int]) -> None:
        self._simulation, self._graph, self._ids = simulation, graph, ids
        self._links: dict[Pair, Path] = {}  # empty until they are needed
        self._over: defaultdict[Edge, set[Pair]] = defaultdict(set)
        self._last: dict[tuple[str, str], Path] = {}  # those that were asked for, by their ends
        self._moved: dict[int, NodeSpec] = {}  # standbys in the place of global servers, by these
        self._follow(nx.DiGraph(simulation.experiment.cluster.graph))

    def _follow(self, graph: nx.DiGraph) -> None:
        """Take the shortest ways of `graph`, whose attributes do not change."""
        graph.graph = self._graph.graph  # its paths, which are looked up for each way
        routes = replace(self._simulation.experiment.cluster, graph=graph)._routes
        self._cluster: Cluster = replace(self._simulation.experiment.cluster, graph=self._graph)
        vars(self._cluster)["_routes"] = routes

    def route(self, source: str, target: str) -> Path:
        """Return the present way from one node of the graph to another.

        Raises:
            KeyError: There has never been one.
        """
        ends = source, target
        try:
            way = self._cluster.route(*ends)
        except KeyError:  # since `move`
            way = self._last.get(ends) or self._simulation.experiment.cluster.route(*ends)
            way = self._present(way)
        self._last[ends] = way
        return way

    def ends(self, pair: Pair) -> tuple[str, str]:
        """Return the names of the nodes of the graph at the ends of a link."""
        source, target = map(self._at, pair)
        return source.name, target.name

    def _at(self, node: int) -> NodeSpec:
        return self._moved.get(node) or self._simulation.experiment.cluster.nodes[node]

    def model(
        self, there: Path, back: Path, tcp: TcpOptions, share: Share = EQUAL
    ) -> _core.LinkModel:
        """Return a hop as the fabric takes it."""
        return way_model(self._cluster, there, back, tcp, self._ids.__getitem__, share)

    def tell(self, edges: Iterable[Edge]) -> None:
        """Tell the fabric the present delays and losses of all links over some edges."""
        self.known()
        for pair in sorted(set[Pair]().union(*(self._over[edge] for edge in edges))):
            self._tell(pair)

    def move(self, graph: nx.DiGraph | None = None) -> int:
        """Let links take other ways: the shortest of `graph`; None: only the paths have changed.

        Returns:
            The number of links that have moved. Links for which there is no way stay.
        """
        before = dict(self.known())
        if graph is not None:
            self._follow(graph)
        moved: set[Pair] = set()
        for pair, old in before.items():
            ends = self.ends(pair)
            self._last[ends] = old
            self._links[pair] = self.route(*ends)
            if self._links[pair].edges != old.edges:
                moved.add(pair)
        self._index()
        for pair in sorted({*moved, *((target, source) for source, target in moved)}):
            if pair in self._links:
                self._tell(pair)
        return len(moved)

    def _tell(self, pair: Pair) -> None:
        source, target = pair
        back = self._links.get((target, source)) or self.route(*self.ends((target, source)))
        ways = self._present(self._links[pair]), self._present(back)
        share = share_of(self._simulation.experiment.cluster, *map(self._at, pair))
        model = self.model(*ways, self._simulation.experiment.tcp, share)
        self._simulation.fabric.change_link(source, target, model, self._simulation.env.now)

    def _present(self, route: Path) -> Path:
        """Return a way with its present delay and loss."""
        on_it = [self._graph[a][b] for a, b in route.edges]
        kept = math.prod(1.0 - data.get(LOSS, 0.0) for data in on_it)
        delay_s = sum(data.get(DELAY, 0.0) for data in on_it) / 1e3
        return replace(route, delay_s=delay_s, loss=1.0 - kept)

    def known(self) -> dict[Pair, Path]:
        """Return the ways of all links, which are found when this is called first."""
        if not self._links:
            cluster, selection = self._cluster, self._simulation.experiment.selection
            pairs = [
                (source.id, target.id)
                for source in cluster.nodes
                for target in peers(cluster, selection, source)
            ]
            each = ((pair, self.ends(pair)) for pair in pairs)
            self._links = {pair: cluster.route(*ends) for pair, ends in each if len(set(ends)) > 1}
            self._index()
        return self._links

    def replace(self, server: NodeSpec, standby: NodeSpec) -> None:
        """Let the links of a global server begin and end at its standby."""
        self._moved[server.id] = standby
        concerned = [pair for pair in self._links if server.id in pair]
        for pair in concerned:
            del self._links[pair]
            if standby.id not in pair:
                self._links[pair] = self.route(*self.ends(pair))
        self._index()
        for pair in sorted(set(concerned) & self._links.keys()):
            self._tell(pair)

    def _index(self) -> None:
        self._over = defaultdict(set)
        for (source, target), route in self._links.items():
            for edge in route.edges:  # also the way back of the opposite link
                self._over[edge].add((source, target))
                if (target, source) in self._links:
                    self._over[edge].add((target, source))
