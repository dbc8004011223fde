"""The edges of the simulated WAN: a networkx graph whose attributes act on the simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import networkx as nx

from geomx.errors import near
from geomx.network.schedules import EDGE_CHANGES

Edge = tuple[str, str]
Change = Callable[[Edge, dict[str, Any]], None]

MBPS, DELAY, LOSS, UP = "bandwidth_mbps", "delay_ms", "loss", "up"
SETTABLE = (MBPS, DELAY, LOSS, UP)
LONGEST_MS = 1e9


class EdgeData(dict[str, Any]):
    """The attributes of one directed edge. Assigning to one changes the edge from now on.

    Attributes of its bandwidth over time (``trace``, ``redraw``, ``outages``) are removed when the
    bandwidth is set, and cannot be set.
    """

    def __init__(self, edge: Edge, data: Mapping[str, Any], change: Change) -> None:
        super().__init__(data, up=True)
        self._edge, self._change = edge, change

    def __setitem__(self, key: str, value: Any) -> None:
        """Change the edge."""
        self._change(self._edge, {key: value})

    def update(self, *given: Any, **more: Any) -> None:
        """Change several attributes at once."""
        self._change(self._edge, dict(*given, **more))

    def keep(self, values: Mapping[str, Any]) -> None:
        """Store values that are in force already."""
        if MBPS in values or UP in values:
            for name in (*EDGE_CHANGES, "unlimited"):
                super().pop(name, None)
        super().update(values)
        if self.get(MBPS) == math.inf:  # as in network files, which have no infinity
            super().pop(MBPS)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("attributes of an edge can be set, not removed")

    __delitem__ = pop = popitem = clear = setdefault = _refuse


def checked(edge: Edge, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return new attributes of an edge as numbers.

    Raises:
        ValueError: One is unknown or out of range; the message names edge, attribute and value.
    """
    there = f"{edge[0]} -> {edge[1]}"
    result: dict[str, Any] = {}
    for name, value in values.items():
        if name not in SETTABLE:
            raise ValueError(f"{name}={value!r} of edge {there}: {near(name, SETTABLE)}")
        if name == UP:
            result[name] = bool(value)
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        most, bound = {
            MBPS: (math.inf, "0 or more Mbit/s; math.inf is no limit"),
            DELAY: (LONGEST_MS, f"0 to {LONGEST_MS:g} ms"),
            LOSS: (math.nextafter(1.0, 0.0), "at least 0 and below 1, the share of packets"),
        }[name]
        if not 0 <= number <= most:
            raise ValueError(f"{name}={value!r} of edge {there}: must be {bound}")
        result[name] = number
    return result


def find_edge(graph: nx.DiGraph, source: str, target: str) -> Edge:
    """Return the edge between two nodes, or between two sites of a network file's short form.

    Raises:
        ValueError: There is none; the message lists the edges that leave `source`.
    """
    for edge in ((source, target), (f"{source}/wan", f"{target}/wan")):
        if graph.has_edge(*edge):
            return edge
    for name in (source, target):
        if name not in graph:
            raise ValueError(f"there is no node {name}; {near(name, graph)}")
    leaving = ", ".join(f"{source} -> {other}" for other in _some(graph.successors(source)))
    raise ValueError(f"there is no edge {source} -> {target}; there are {leaving or 'none'}")


def _some(names: Iterator[str], most: int = 8) -> list[str]:
    listed = sorted(names)
    return listed if len(listed) <= most else [*listed[:most], "..."]
