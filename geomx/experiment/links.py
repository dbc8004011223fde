"""The links of an experiment: who sends over which edges, and how live nodes are shaped."""

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
    """Per directed link over the WAN: the edges that may limit it, and its round trip (seconds)."""
    for source in cluster.nodes:
        for target in peers(cluster, selection, source):
            if source.party != target.party and "scheduler" not in (source.role, target.role):
                there, back = cluster.path(source, target), cluster.path(target, source)
                edges = [edge for edge in there.edges if limited(cluster.graph.edges[edge])]
                yield edges, there.delay_s + back.delay_s


def _senders(cluster: Cluster, selection: Selection) -> dict[Edge, list[NodeSpec]]:
    """Whose messages cross each edge that may limit them."""
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
    """Size of the file by which live nodes share edges."""
    return _core.Shape.usage_file_bytes(cluster.graph.number_of_edges(), len(cluster.nodes))


def shape(
    cluster: Cluster,
    selection: Selection,
    node: NodeSpec,
    tcp: TcpOptions,
    seed: int,
    usage_file: str = "",
) -> _core.Shape:
    """What the emulated network does to the messages of `node` in a live run.

    Its outgoing paths are shaped here, by the simulator's model in real time. That knows the
    messages of this node alone, so of an edge that others send over too it has a share, which all
    who send over it work out from what they tell each other.

    Args:
        cluster: The nodes, and the network that joins them.
        selection: The plugins in force.
        node: Whose messages.
        tcp: Options of connections.
        seed: Of loss, jitter and redraws.
        usage_file: File of `usage_file_bytes` zeros that all nodes of the run share.
    """
    nodes = len(cluster.nodes)
    made = _core.Shape(seed * 100_003 + node.id, usage_file, nodes, node.id)
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
        made.add_path(peer.id, link_model(cluster, node, peer, tcp, edge_id))
    return made
