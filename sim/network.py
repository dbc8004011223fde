"""The experiment's graph as edges and links of the native fabric."""

from __future__ import annotations

import math

from geomx import _core
from geomx.cluster import Cluster, NodeSpec
from geomx.config import TcpOptions
from geomx.wiring import PAYLOAD_SHARE, children

BYTES_PER_MBIT = 125_000.0
NS_PER_MS = 1_000_000


def add_edges(fabric: _core.Fabric, cluster: Cluster) -> dict[tuple[str, str], int]:
    """Give the fabric every edge of the graph; returns their ids."""
    ids = {}
    for source, target, data in cluster.graph.edges(data=True):
        bandwidth = data.get("bandwidth_mbps", math.inf) * BYTES_PER_MBIT
        ids[source, target] = fabric.add_edge(
            bandwidth, round(data.get("delay_ms", 0.0) * NS_PER_MS)
        )
    return ids


def connect(
    fabric: _core.Fabric, cluster: Cluster, edges: dict[tuple[str, str], int], tcp: TcpOptions
) -> list[tuple[NodeSpec, NodeSpec]]:
    """Connect every node with those it exchanges values with, both ways.

    Returns:
        (child, parent) pairs: pushes go from the first to the second, pulls back.
    """
    pairs = [(child, node) for node in cluster.nodes for child in children(cluster, node)]
    for child, parent in pairs:
        for source, target in ((child, parent), (parent, child)):
            there, back = cluster.path(source, target), cluster.path(target, source)
            jitter_ms = sum(cluster.graph.edges[e].get("jitter_ms", 0.0) for e in there.edges)
            fabric.connect(
                source.id,
                target.id,
                [edges[edge] for edge in there.edges],
                [edges[edge] for edge in back.edges],
                tcp.congestion,
                float(tcp.window_bytes),
                PAYLOAD_SHARE,
                there.loss,
                there.bandwidth_bps / 8 * PAYLOAD_SHARE,
                round((there.delay_s + back.delay_s) * 1e9),
                round(jitter_ms * NS_PER_MS),
            )
    return pairs
