"""Conversion of the experiment's graph to edges and links of the native fabric."""

from __future__ import annotations

from geomx import _core
from geomx.cluster import Cluster
from geomx.experiment.wiring import peers
from geomx.network.links import Edge, edge_model, link_model
from geomx.options.schema import TcpOptions
from geomx.plugin.selection import Selection
from geomx.terminal.progress import stage


def add_edges(fabric: _core.Fabric, cluster: Cluster, seed: int) -> dict[Edge, int]:
    """Add every edge of the graph to the fabric.

    Args:
        fabric: The fabric.
        cluster: The graph.
        seed: Seed of random bandwidth schedules.

    Returns:
        Ids of the edges.
    """
    return {edge: fabric.add_edge(*edge_model(cluster, edge, seed)) for edge in cluster.graph.edges}


def connect(
    fabric: _core.Fabric,
    cluster: Cluster,
    selection: Selection,
    edges: dict[Edge, int],
    tcp: TcpOptions,
) -> None:
    """Connect every node to its peers.

    Args:
        fabric: The fabric with its edges.
        cluster: Nodes and routes.
        selection: Plugins of the experiment, which determine the peers.
        edges: Ids of the edges, from `add_edges`.
        tcp: Options of the connections.
    """
    for source in stage(cluster.nodes, "connecting nodes"):
        for target in peers(cluster, selection, source):
            fabric.connect(
                source.id, target.id, link_model(cluster, source, target, tcp, edges.__getitem__)
            )
