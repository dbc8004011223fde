"""The links of an experiment: the edges that limit them, and their emulation in live nodes."""

from __future__ import annotations

from collections.abc import Iterator

from geomx import _core
from geomx.cluster import Cluster, NodeSpec
from geomx.experiment.wiring import peers
from geomx.network.links import Edge, edge_model, link_model
from geomx.network.schedules import limited
from geomx.options.schema import TcpOptions
from geomx.plugin.selection import Selection


def wan_ways(cluster: Cluster, selection: Selection) -> Iterator[tuple[list[Edge], float]]:
    """Yield the edges that may limit each directed WAN link, and its round trip in seconds."""
    for source in cluster.nodes:
        for target in peers(cluster, selection, source):
            if source.party != target.party and "scheduler" not in (source.role, target.role):
                there, back = cluster.path(source, target), cluster.path(target, source)
                edges = [edge for edge in there.edges if limited(cluster.graph.edges[edge])]
                yield edges, there.delay_s + back.delay_s


def _senders(cluster: Cluster, selection: Selection) -> dict[Edge, list[NodeSpec]]:
    """Return the nodes that send over each edge of limited bandwidth."""
    found: dict[Edge, list[NodeSpec]] = {}
    for source in cluster.nodes:
        edges = {
            edge
            for target in peers(cluster, selection, source)
            for edge in cluster.path(source, target).edges
            if limited(cluster.graph.edges[edge])
        }
        for edge in edges:
            found.setdefault(edge, []).append(source)
    return found


def usage_file_bytes(cluster: Cluster) -> int:
    """Return the size in bytes of the file by which live nodes share edges."""
    return _core.Shape.usage_file_bytes(cluster.graph.number_of_edges(), len(cluster.nodes))


def shape(
    cluster: Cluster,
    selection: Selection,
    node: NodeSpec,
    tcp: TcpOptions,
    seed: int,
    usage_file: str = "",
    at: NodeSpec | None = None,
) -> _core.Shape:
    """Return the emulation of one node's outgoing links in a live run.

    The simulator's model shapes the node's outgoing paths in real time. It only knows the messages
    of this node. An edge over which other nodes send too is shared: all senders compute their share
    from the usage that they write to a common file.

    Args:
        cluster: The nodes and their network.
        selection: The selected plugins.
        node: The sending node.
        tcp: Options of connections.
        seed: Seed of loss, jitter and redraws.
        usage_file: File of `usage_file_bytes` zeros that all nodes of the run share; empty if none.
        at: The node in whose place in the network it is; None: its own.

    Returns:
        The links of the node for `geomx._core.Loop`.
    """
    nodes = len(cluster.nodes)
    at = at or node
    made = _core.Shape(seed * 100_003 + at.id, usage_file, nodes, at.id)
    senders = _senders(cluster, selection)
    rows = {edge: row for row, edge in enumerate(cluster.graph.edges)}
    ids: dict[Edge, int] = {}

    def edge_id(edge: Edge) -> int:
        if edge not in ids:
            ids[edge] = made.add_edge(*edge_model(cluster, edge, seed))
            if usage_file and len(senders.get(edge, ())) > 1:
                made.share(ids[edge], rows[edge])
        return ids[edge]

    for peer in peers(cluster, selection, node):
        if peer != at:
            made.add_path(peer.id, link_model(cluster, at, peer, tcp, edge_id))
    return made
