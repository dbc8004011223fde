"""Routes through a network graph, computed on demand.

A route is the shortest by delay, then by number of hops. Most nodes of a network have a single
neighbour: hosts have their router, a site the far end of its access link, a map its leaves. Their
part of a route needs no search. Removing such nodes repeatedly leaves the core of the graph, and
only the core is searched (Dijkstra's algorithm, once per core node at which routes enter it). A
thousand sites around one router have a core of one node, so that the cost of a route depends on its
length and not on the size of the graph.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count, islice, pairwise
from typing import Any

import networkx as nx

SHORTEST, WIDEST, WIDEST_OF = "shortest", "widest", "widest_of"
"""Rules of routing; the last one as ``{"widest_of": k}``."""

HOP_MS = 1e-9
"""Added to the delay of every edge: breaks ties between routes of equal delay by number of hops."""


class Routes:
    """The routes of one graph; every search is made once.

    A route leaves a node with ``transit: false`` for another party only if it starts in the node's
    own party: the access link of a site carries no traffic of others, however short its delay. A
    node without a party carries what its own hosts send and receive. If the graph has ``paths``,
    lists of nodes, a route that leads from the first to the last node of one follows it between
    them.

    With ``routing`` of the graph, routes through the core are chosen by bandwidth too. ``widest``
    takes the route whose narrowest edge is widest, the shortest of several. ``{"widest_of": k}``
    takes the widest of the k shortest routes, so that it is not arbitrarily long.

    Args:
        graph: Edges have ``delay_ms`` (0 where it is missing) and ``bandwidth_mbps`` (unlimited
            where it is missing). It must not change afterwards.
    """

    def __init__(self, graph: nx.DiGraph) -> None:
        self._graph = graph
        nodes = graph.nodes(data=True)
        self._party_of = {node: data.get("party") for node, data in nodes}
        self._homes = _homes(graph)
        self._party_of |= {node: (node,) for node in self._homes if not self._party_of[node]}
        self._parties_of_ends = frozenset[Any]().union(*self._homes.values())
        self._up, self._core = _hanging(graph)
        self._found: dict[tuple[str, float, Any], dict[str, str]] = {}
        self._inside: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self._rule: Any = graph.graph.get("routing") or SHORTEST
        self._wide: dict[tuple[str, str, Any], list[str]] = {}  # routes by this rule
        self._usable: dict[Any, nx.DiGraph] = {}  # the core, by party

    def __call__(self, source: str, target: str) -> list[str]:
        """Return the nodes of the route from `source` to `target`, both included.

        Raises:
            KeyError: There is no route.
        """
        ways = self._graph.succ[source]
        if source == target or len(ways) != 1:
            route = self._between(source, target)
        else:  # most hosts have a single edge, to their router, and share its routes
            route = [source, *self._between(next(iter(ways)), target)]
        for way in self._graph.graph.get("paths", ()):
            if way[0] in route and way[-1] in route[route.index(way[0]) :]:
                first, last = route.index(way[0]), route.index(way[-1])
                route = [*route[:first], *way, *route[last + 1 :]]
        return route

    def _between(self, source: str, target: str) -> list[str]:
        out, back = self._climb(source), self._climb(target)
        if out[-1] == back[-1]:  # both hang on the same core node: the route is unique
            while len(out) > 1 and len(back) > 1 and out[-2] == back[-2]:
                out.pop(), back.pop()
            route = [*out, *back[-2::-1]]
        else:
            offset_ms = self._length(out)
            route = [*out[:-1], *self._through_core(out[-1], back[-1], offset_ms, source)]
            route += back[-2::-1]
        self._check(route, self._party_of[source])
        return route

    def _climb(self, node: str) -> list[str]:
        """Return the path from `node` to the core node it hangs on, or to the root of its tree."""
        way = [node]
        while (above := self._up.get(way[-1])) is not None:
            way.append(above)
        return way

    def _length(self, way: list[str]) -> float:
        total = 0.0
        for here, there in pairwise(way):
            data = self._graph.succ[here].get(there)
            if data is None:
                raise KeyError(there)
            total += data.get("delay_ms", 0.0) + HOP_MS
        return total

    def _check(self, route: list[str], party: Any) -> None:
        """Raise `KeyError` if an edge is missing or closed to routes from `party`."""
        for here, there in pairwise(route):
            if there not in self._graph.succ[here] or self._closed(here, there, party):
                raise KeyError(route[-1])

    def _closed(self, here: str, there: str, party: Any) -> bool:
        homes = self._homes.get(here)
        return homes is not None and homes.isdisjoint((party, self._party_of[there]))

    def _through_core(self, first: str, last: str, offset_ms: float, source: str) -> list[str]:
        party = self._party_of[source]
        # Only routes from the party of a node without transit may use other edges than the rest.
        if self._rule != SHORTEST and first != last:
            return self._widest(first, last, party)
        key = first, offset_ms, party if party in self._parties_of_ends else None
        if key not in self._found:
            self._found[key] = self._search(first, offset_ms, party)
        before = self._found[key]
        route = [last]
        while route[-1] != first:
            route.append(before[route[-1]])
        return route[::-1]

    def _widest(self, first: str, last: str, party: Any) -> list[str]:
        """Return the route between two core nodes by a rule that regards bandwidth."""
        whose = party if party in self._parties_of_ends else None
        key = first, last, whose
        if key not in self._wide:
            core = self._usable.get(whose)
            if core is None:
                core = self._usable[whose] = self._core_for(party)
            try:
                self._wide[key] = list(self._choose(core, first, last))
            except nx.NetworkXException:
                raise KeyError(last) from None
        return self._wide[key]

    def _choose(self, core: nx.DiGraph, first: str, last: str) -> Sequence[str]:
        if self._rule == WIDEST:
            width = _width(core, first, last)
            wide = nx.subgraph_view(core, filter_edge=lambda a, b: core[a][b]["mbps"] >= width)
            route: list[str] = nx.shortest_path(wide, first, last, weight="length")
            return route
        shortest = nx.shortest_simple_paths(core, first, last, weight="length")
        candidates = list(islice(shortest, self._rule[WIDEST_OF]))
        return max(candidates, key=lambda way: _narrowest(core, way))  # the first of several

    def _core_for(self, party: Any) -> nx.DiGraph:
        """Return the core with the edges that routes from `party` may use."""
        core = nx.DiGraph()
        core.add_nodes_from(node for node in self._graph if node in self._core)
        for here in core:
            for there, data in self._ways_from(here, party):
                length = data.get("delay_ms", 0.0) + HOP_MS
                mbps = data.get("bandwidth_mbps", math.inf)
                core.add_edge(here, there, length=length, mbps=mbps)
        return core

    def _search(self, first: str, offset_ms: float, party: Any) -> dict[str, str]:
        """Return the predecessor of each core node on the shortest routes from `first`.

        Distances include `offset_ms`, the distance from the start of the route to `first`: which of
        two routes of almost equal length is shorter may depend on how such sums are rounded.
        """
        order = count()
        fringe = [(offset_ms, next(order), first)]
        seen, done = {first: offset_ms}, set()
        before: dict[str, str] = {}
        while fringe:
            distance, _, here = heapq.heappop(fringe)
            if here in done:
                continue
            done.add(here)
            for there, data in self._ways_from(here, party):
                if there in done:
                    continue
                longer = distance + (data.get("delay_ms", 0.0) + HOP_MS)
                if there not in seen or longer < seen[there]:
                    seen[there] = longer
                    before[there] = here
                    heapq.heappush(fringe, (longer, next(order), there))
        return before

    def _ways_from(self, here: str, party: Any) -> Iterable[tuple[str, dict[str, Any]]]:
        """Return the edges within the core by which a route from `party` may leave `here`."""
        homes = self._homes.get(here)
        if homes is None or party in homes:
            return (way for way in self._graph.succ[here].items() if way[0] in self._core)
        if here not in self._inside:
            ways = self._graph.succ[here].items()
            self._inside[here] = [
                way for way in ways if way[0] in self._core and self._party_of[way[0]] in homes
            ]
        return self._inside[here]


def _homes(graph: nx.DiGraph) -> dict[str, frozenset[Any]]:
    """Return the parties whose traffic nodes with ``transit: false`` carry, by node.

    Of a node without a party, these are those of the hosts beside it, and the node itself.
    """
    nodes = graph.nodes
    found: dict[str, frozenset[Any]] = {}
    for node, data in nodes(data=True):
        if data.get("transit") is not False:
            continue
        if party := data.get("party"):
            found[node] = frozenset([party])
        else:
            beside = (nodes[each] for each in graph.pred[node])
            hosts = (each for each in beside if each.get("kind", "router") != "router")
            found[node] = frozenset([(node,), *(host["party"] for host in hosts)])
    return found


def _narrowest(core: nx.DiGraph, way: Sequence[str]) -> float:
    mbps: float = min(core[here][there]["mbps"] for here, there in pairwise(way))
    return mbps


def _width(core: nx.DiGraph, first: str, last: str) -> float:
    """Return the largest bandwidth that every edge of some route has.

    Raises:
        NetworkXException: There is no route.
    """
    order = count(1)
    fringe: list[tuple[float, int, str]] = [(-math.inf, 0, first)]
    best = {first: math.inf}
    while fringe:
        width, _, here = heapq.heappop(fringe)
        if here == last:
            return -width
        for there, data in core.succ[here].items():
            through = min(-width, data["mbps"])
            if through > best.get(there, -1.0):
                best[there] = through
                heapq.heappush(fringe, (-through, next(order), there))
    raise nx.NetworkXNoPath(last)


def _hanging(graph: nx.DiGraph) -> tuple[dict[str, str], set[str]]:
    """Return the single neighbour of every node outside the core, and the set of core nodes."""
    around = {node: len({*graph.succ[node], *graph.pred[node]}) for node in graph}
    core = set(graph)
    up: dict[str, str] = {}
    waiting = deque(node for node, neighbours in around.items() if neighbours == 1)
    while waiting:
        node = waiting.popleft()
        if around[node] != 1:
            continue  # the last of its tree
        above = next(n for n in (*graph.succ[node], *graph.pred[node]) if n in core)
        core.remove(node)
        up[node] = above
        around[above] -= 1
        if around[above] == 1:
            waiting.append(above)
    return up, core
