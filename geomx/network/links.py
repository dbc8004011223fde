"""How links behave: from the edges of the network to what simulator and live shaper are told.

Both get the same model of a hop from here, so that a delay or a window cannot be in one mode and
absent in the other.
"""

from __future__ import annotations

from collections.abc import Callable

from geomx import _core
from geomx.cluster import Cluster, NodeSpec, Path
from geomx.network.schedules import schedule
from geomx.network.sharing import EQUAL, Share, share_of
from geomx.options.schema import TcpOptions

Edge = tuple[str, str]

CONGESTION = ("bbr", "cubic", "reno")
"""Congestion controls that the model knows."""

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
        source: The sender.
        target: The receiver.
        tcp: How connections behave.
        edge_id: The number of an edge where this is used.
    """
    there, back = cluster.path(source, target), cluster.path(target, source)
    return way_model(cluster, there, back, tcp, edge_id, share_of(cluster, source, target))


def way_model(
    cluster: Cluster,
    there: Path,
    back: Path,
    tcp: TcpOptions,
    edge_id: Callable[[Edge], int],
    share: Share = EQUAL,
) -> _core.LinkModel:
    """A hop by its way there and its way back; see `link_model`."""
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
        *share,
        tcp.ack_share or 0.0,
    )


def edge_model(cluster: Cluster, edge: Edge, seed: int) -> tuple[_core.BandwidthSchedule, int]:
    """(bandwidth over time, one-way delay in nanoseconds) of an edge of the graph."""
    data = cluster.graph.edges[edge]
    bandwidth = schedule(data, f"{edge[0]} -> {edge[1]}", seed)
    return bandwidth, round(data.get("delay_ms", 0.0) * 1e6)
