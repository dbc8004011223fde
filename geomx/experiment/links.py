"""How links behave: from the edges of the network to what simulator and live shaper are told.

Both get the same model of a hop from here, so that a delay or a window cannot be in one mode and
absent in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from geomx import _core
from geomx.cluster import Cluster, NodeSpec
from geomx.experiment.wiring import peers
from geomx.network.schedules import course, limited

if TYPE_CHECKING:
    from geomx.options.schema import TcpOptions
    from geomx.plugin.selection import Selection

Edge = tuple[str, str]

PAYLOAD_SHARE = 1448 / 1500
"""Payload bytes per byte on an edge: full TCP/IPv4 frames with timestamps."""


def link_model(
    cluster: Cluster,
    source: NodeSpec,
    target: NodeSpec,
    tcp: TcpOptions,
    edge_id: Callable[[Edge], int],
) -> _core.LinkModel:
    """The hop from `source` to `target`, the same for the simulator and the live shaper.

    Args:
        cluster: The graph.
        source: Who sends.
        target: Who receives.
        tcp: How connections behave.
        edge_id: The number of an edge where this is used.
    """
    there, back = cluster.path(source, target), cluster.path(target, source)
    on_the_way = [cluster.graph.edges[edge] for edge in there.edges]
    queues_ms = [data["queue_ms"] for data in on_the_way if "queue_ms" in data]
    return _core.LinkModel(
        [edge_id(edge) for edge in there.edges],
        [edge_id(edge) for edge in back.edges],
        tcp.congestion,
        tcp.streams,
        float(tcp.window_bytes),
        PAYLOAD_SHARE,
        there.loss,
        round((there.delay_s + back.delay_s) * 1e9),
        round(sum(data.get("jitter_ms", 0.0) for data in on_the_way) * 1e6),
        round(sum(queues_ms) * 1e6) if queues_ms else None,
        tcp.queueing or "priority",
    )


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


def edge_model(cluster: Cluster, edge: Edge, seed: int) -> tuple[_core.Course, int]:
    """(bandwidth over time, one-way delay in nanoseconds) of an edge of the graph."""
    data = cluster.graph.edges[edge]
    bandwidth = course(data, f"{edge[0]} -> {edge[1]}", seed)
    return bandwidth, round(data.get("delay_ms", 0.0) * 1e6)


def commons_bytes(cluster: Cluster) -> int:
    """Size of the file by which live nodes share edges."""
    return _core.Shape.commons_bytes(cluster.graph.number_of_edges(), len(cluster.nodes))


def shape(
    cluster: Cluster,
    selection: Selection,
    node: NodeSpec,
    tcp: TcpOptions,
    seed: int,
    commons: str = "",
) -> _core.Shape:
    """What the emulated network does to the messages of `node` in a live run.

    Its outgoing paths are shaped here, by the simulator's model in real time. That knows the
    messages of this node alone, so of an edge that others send over too it has a share, which all
    who send over it work out from what they tell each other.

    Args:
        cluster: Who takes part, and the network.
        selection: The plugins in force.
        node: Whose messages.
        tcp: Options of connections.
        seed: Of loss, jitter and redraws.
        commons: File of `commons_bytes` zeros that all nodes of the run share.
    """
    nodes = len(cluster.nodes)
    made = _core.Shape(seed * 100_003 + node.id, commons, nodes, node.id)
    senders = _senders(cluster, selection)
    rows = {edge: row for row, edge in enumerate(cluster.graph.edges)}
    ids: dict[Edge, int] = {}

    def edge_id(edge: Edge) -> int:
        if edge not in ids:
            ids[edge] = made.add_edge(*edge_model(cluster, edge, seed))
            if commons and len(senders.get(edge, ())) > 1:
                made.share(ids[edge], rows[edge])
        return ids[edge]

    for peer in peers(cluster, selection, node):
        made.add_path(peer.id, link_model(cluster, node, peer, tcp, edge_id))
    return made
