"""How much of the network the links of a run use.

The utilisation of a link is that of the most utilised edge of its route, as in ``edges.csv``:
average rate over bandwidth, for all that crosses the edge. Without a graph it is the fraction of
time during which the link was busy.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx

from geomx.cluster.routes import Routes
from geomx.results.files import Row
from geomx.terminal import units

UTILISATION = (
    "Utilisation is that of the busiest edge of the route, with what others send over it: average "
    "rate over bandwidth."
)


@dataclass(frozen=True)
class Use:
    """How much of a route is used.

    Attributes:
        utilisation: Of its most utilised edge: a fraction.
        bottleneck: That edge and its bandwidth; empty if unknown.
        busy: Fraction of the time during which the edge was busy; None if unknown.
    """

    utilisation: float = 0.0
    bottleneck: str = ""
    busy: float | None = None

    def __str__(self) -> str:
        told = f"{units.share(self.utilisation)} of the bandwidth used"
        if self.busy is not None:
            told += f", busy {units.share(self.busy)} of the time"
        return f"{told}: {self.bottleneck}" if self.bottleneck else told


class Uses:
    """How much of their route the links of a run use.

    Args:
        links: Rows of ``links.csv``.
        graph: The network as used, None if unknown.
        seconds: Duration of the run.
        edges: Rows of ``edges.csv``; if empty, loads are summed over the links.
    """

    def __init__(
        self,
        links: Sequence[Row],
        graph: nx.Graph | None,
        seconds: float | None,
        edges: Sequence[Row] = (),
    ) -> None:
        self._graph, self._seconds = graph, seconds
        self._edges = {(row["source"], row["target"]): row for row in edges}
        self._routes = Ways(graph)
        self._loads: dict[tuple[str, str], float] = defaultdict(float)
        for row in links:
            for edge in self._routes(row["source"], row["target"]):
                self._loads[edge] += row["bytes"]

    def of(self, link: Row) -> Use:
        """Return the use of the most utilised edge of a link's route.

        Args:
            link: A row of ``links.csv``.
        """
        if self._graph is None or not self._seconds:
            return Use(link["busy_s"] / self._seconds if self._seconds else 0.0)
        route = self._routes(link["source"], link["target"])
        return max(map(self._of_edge, route), key=lambda use: use.utilisation, default=Use())

    def _of_edge(self, edge: tuple[str, str]) -> Use:
        assert self._graph is not None and self._seconds
        mbps = self._graph.edges[edge].get("bandwidth_mbps")
        if not mbps or not math.isfinite(mbps):
            return Use()
        name = f"{edge[0]} → {edge[1]}, {mbps:g} Mbit/s"
        if known := self._edges.get(edge):
            return Use(known["utilisation"] or 0.0, name, known["busy_s"] / self._seconds)
        return Use(self._loads[edge] * 8 / (mbps * 1e6 * self._seconds), name)


def site_of(node: str, graph: nx.Graph | None) -> str:
    """Return the party of a node.

    Args:
        node: Name of the node.
        graph: The network, whose attribute ``party`` takes precedence over the name; None if
            unknown.
    """
    if graph is not None and node in graph:
        return str(graph.nodes[node].get("party") or _site_in(node))
    return _site_in(node)


def _site_in(node: str) -> str:
    return node.partition("/")[0]


class Ways:
    """Routes through a graph as edges; empty without a graph or for unknown nodes."""

    def __init__(self, graph: nx.Graph | None) -> None:
        directed = graph if graph is None or graph.is_directed() else graph.to_directed()
        self._routes = None if directed is None else Routes(directed)
        self._known: dict[tuple[str, str], list[tuple[str, str]]] = {}

    def __call__(self, source: str, target: str) -> list[tuple[str, str]]:
        """Return the edges from `source` to `target`; empty if unknown."""
        ends = source, target
        if ends not in self._known:
            self._known[ends] = self._edges(source, target)
        return self._known[ends]

    def _edges(self, source: str, target: str) -> list[tuple[str, str]]:
        if self._routes is None:
            return []
        try:
            return list(pairwise(self._routes(source, target)))
        except KeyError:
            return []
