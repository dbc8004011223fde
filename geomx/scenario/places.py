"""Names of places in a network: edges between sites, and nodes that stand for sites."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import networkx as nx

from geomx.cluster import Cluster
from geomx.errors import near

Edge = tuple[str, str]


def find_edge(graph: nx.DiGraph, source: str, target: str) -> Edge:
    """Return the edge between two nodes, or between two sites of a network file's short form.

    Raises:
        ValueError: There is none; the message lists the edges that leave `source`.
    """
    for name in (source, target):
        if not isinstance(name, str):
            raise _unknown(name, graph)
    for edge in ((source, target), (f"{source}/wan", f"{target}/wan")):
        if graph.has_edge(*edge):
            return edge
    for name in (source, target):
        if name not in graph:
            raise _unknown(name, graph)
    leaving = ", ".join(f"{source} -> {other}" for other in _some(graph.successors(source)))
    raise ValueError(f"there is no edge {source} -> {target}; there are {leaving or 'none'}")


def find_place(cluster: Cluster, name: str) -> str:
    """Return the node of the graph that a name stands for: a node, or a site's router or server.

    Raises:
        ValueError: There is none.
    """
    if not isinstance(name, str):
        raise _unknown(name, cluster.graph)
    if name in cluster.graph:
        return name
    for node in cluster.nodes:
        if node.party == name and node.role in ("server", "global_server"):
            return node.name
    raise _unknown(name, cluster.graph)


def _unknown(name: Any, graph: nx.DiGraph) -> ValueError:
    return ValueError(f"there is no node {name}; {near(str(name), graph)}")


def _some(names: Iterator[str], most: int = 8) -> list[str]:
    listed = sorted(names)
    return listed if len(listed) <= most else [*listed[:most], "..."]
