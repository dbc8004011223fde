"""Routes through a network's graph, found for the pairs of nodes that ask for one.

A route is the shortest by delay, then by hops. Most nodes of a network hang on the rest by one
neighbour: hosts on their router, a site on the far end of its access link, leaves of a map. Their
part of a route needs no search. What is left when such nodes are taken away, again and again, is
the graph's core, and only there is anything searched for (Dijkstra's algorithm, once per node of
the core at which routes enter it). A thousand sites around one router have a core of one node, so
that routes cost what they are long and not what the graph is large.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from itertools import count, pairwise
from typing import Any

import networkx as nx

HOP_MS = 1e-9
"""Breaks ties between routes of equal delay by their number of hops."""


class Routes:
    """The routes of one graph; each search is made once.

    No route leaves a node with ``transit: false`` for another party, unless it starts in its party:
    a site's access link is not a way for others, however short it is by delay. Where the graph has
    ``paths``, lists of nodes, a route that leads from the first to the last of one takes it between
    them.

    Args:
        graph: Edges have ``delay_ms`` (0 where it is missing). It must not change afterwards.
    """

    def __init__(self, graph: nx.DiGraph) -> None:
        self._graph = graph
        nodes = graph.nodes(data=True)
        self._party_of = {node: data.get("party") for node, data in nodes}
        self._ends = {node for node, data in nodes if data.get("transit") is False}
        self._parties_of_ends = {self._party_of[node] for node in self._ends}
        self._up, self._core = _hanging(graph)
        self._found: dict[tuple[str, float, Any], dict[str, str]] = {}
        self._inside: dict[str, list[tuple[str, dict[str, Any]]]] = {}

    def __call__(self, source: str, target: str) -> list[str]:
        """The nodes of the route from `source` to `target`, both included.

        Raises:
            KeyError: There is none.
        """
        ways = self._graph.succ[source]
        if source == target or len(ways) != 1:
            return self._between(source, target)
        # Most hosts have one way out, to their router; all of a router's share its routes.
        return [source, *self._between(next(iter(ways)), target)]

    def _between(self, source: str, target: str) -> list[str]:
        out, back = self._climb(source), self._climb(target)
        if out[-1] == back[-1]:  # they hang on the same node: there is one way
            while len(out) > 1 and len(back) > 1 and out[-2] == back[-2]:
                out.pop(), back.pop()
            route = [*out, *back[-2::-1]]
        else:
            offset_ms = self._length(out)
            route = [*out[:-1], *self._through_core(out[-1], back[-1], offset_ms, source)]
            route += back[-2::-1]
        self._check(route, self._party_of[source])
        for way in self._graph.graph.get("paths", ()):
            if way[0] in route and way[-1] in route[route.index(way[0]) :]:
                first, last = route.index(way[0]), route.index(way[-1])
                route = [*route[:first], *way, *route[last + 1 :]]
        return route

    def _climb(self, node: str) -> list[str]:
        """From `node` to the node of the core that it hangs on, or to the root of a tree."""
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
        """Raises `KeyError` where an edge is missing or closed to routes from `party`."""
        for here, there in pairwise(route):
            if there not in self._graph.succ[here] or self._closed(here, there, party):
                raise KeyError(route[-1])

    def _closed(self, here: str, there: str, party: Any) -> bool:
        home = self._party_of[here]
        return here in self._ends and home != party and home != self._party_of[there]

    def _through_core(self, first: str, last: str, offset_ms: float, source: str) -> list[str]:
        party = self._party_of[source]
        # Only who starts in the party of a node without transit has other ways than the rest.
        key = first, offset_ms, party if party in self._parties_of_ends else None
        if key not in self._found:
            self._found[key] = self._search(first, offset_ms, party)
        before = self._found[key]
        route = [last]
        while route[-1] != first:
            route.append(before[route[-1]])
        return route[::-1]

    def _search(self, first: str, offset_ms: float, party: Any) -> dict[str, str]:
        """The node before each node of the core, on the shortest routes from `first`.

        Distances count from where routes start, `offset_ms` before `first`, since of two routes of
        almost equal length the shorter one may depend on how such sums are rounded.
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
        """Edges within the core that a route from `party` may leave `here` by."""
        if here not in self._ends or self._party_of[here] == party:
            return (way for way in self._graph.succ[here].items() if way[0] in self._core)
        if here not in self._inside:
            ways = self._graph.succ[here].items()
            home = self._party_of[here]
            self._inside[here] = [
                way for way in ways if way[0] in self._core and self._party_of[way[0]] == home
            ]
        return self._inside[here]


def _hanging(graph: nx.DiGraph) -> tuple[dict[str, str], set[str]]:
    """The one neighbour of every node that hangs on the rest, and the nodes that do not."""
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
