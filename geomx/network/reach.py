"""Check that the nodes of a network which communicate can reach each other."""

from __future__ import annotations

import networkx as nx

from geomx.cluster import Cluster
from geomx.network.validators import refuse


def check_reach(cluster: Cluster) -> None:
    """Refuse a network in which nodes that communicate cannot reach each other.

    Args:
        cluster: The nodes and their network.

    Raises:
        NetworkError: There is no path of edges, or only by way of routers that carry no traffic of
            others.
    """
    everyone = [node.name for node in cluster.nodes]
    servers = [party.server.name for party in cluster.parties]
    centres = [(p.server.name, [worker.name for worker in p.workers]) for p in cluster.parties]
    centres += [(node.name, servers) for node in cluster.global_servers]
    centres += [(cluster.scheduler.name, everyone)]
    for standby in cluster.standbys:
        centres.append((standby.name, [cluster.stood_by(standby).name, *servers]))
    graph = cluster.graph
    parts = nx.strongly_connected_components(graph)  # within one, every node reaches every other
    part_of = {node: number for number, part in enumerate(parts) for node in part}
    closed = any(transit is False for _, transit in graph.nodes(data="transit"))
    seen: set[frozenset[tuple[str, str]]] = set()
    for centre, others in centres:
        for other in others:
            if part_of[other] == part_of[centre]:
                places = frozenset((_place(graph, other), _place(graph, centre)))
                if closed and places not in seen:
                    seen.add(places)
                    _check_route(cluster, other, centre)
                    _check_route(cluster, centre, other)
                continue
            if not nx.has_path(graph, other, centre):
                refuse(f"{other} cannot reach {centre}: there is no path of edges")
            refuse(f"{centre} cannot reach {other}: there is no path of edges")


def _place(graph: nx.DiGraph, node: str) -> tuple[str, str]:
    """Return the router to which alone a node is joined, or else the node, and its party.

    Nodes of one place reach the same others.
    """
    around = {*graph.succ[node], *graph.pred[node]}
    return next(iter(around)) if len(around) == 1 else node, graph.nodes[node]["party"]


def _check_route(cluster: Cluster, source: str, target: str) -> None:
    try:
        cluster.route(source, target)
    except KeyError:
        refuse(
            f"{source} cannot reach {target}: on the way are routers of other parties with "
            "transit: false; attach it to a router of its own party, or let them pass it on"
        )
