"""The experiment's graph as edges and links of the native fabric."""

from __future__ import annotations

from geomx import _core
from geomx.cluster import Cluster, NodeSpec
from geomx.config import TcpOptions
from geomx.wiring import PAYLOAD_SHARE, Edge, children, edge_model, link_model


def add_edges(fabric: _core.Fabric, cluster: Cluster, seed: int) -> dict[Edge, int]:
    """Give the fabric every edge of the graph, with its bandwidth over time; returns their ids."""
    return {edge: fabric.add_edge(*edge_model(cluster, edge, seed)) for edge in cluster.graph.edges}


def connect(
    fabric: _core.Fabric, cluster: Cluster, edges: dict[Edge, int], tcp: TcpOptions
) -> list[tuple[NodeSpec, NodeSpec]]:
    """Connect every node with those it exchanges values with, both ways.

    Returns:
        (child, parent) pairs: pushes go from the first to the second, pulls back.
    """
    pairs = [(child, node) for node in cluster.nodes for child in children(cluster, node)]
    others = [(node, cluster.scheduler) for node in cluster.nodes if node.role != "scheduler"]
    for child, parent in (*pairs, *others):
        for source, target in ((child, parent), (parent, child)):
            model = link_model(cluster, source, target)
            fabric.connect(
                source.id,
                target.id,
                [edges[edge] for edge in model.there],
                [edges[edge] for edge in model.back],
                tcp.congestion,
                float(tcp.window_bytes),
                PAYLOAD_SHARE,
                model.loss,
                model.rtt_ns,
                model.jitter_ns,
            )
    return pairs
