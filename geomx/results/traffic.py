"""What both modes count on a directed link, as rows of the results, and what that puts on edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from geomx.experiment.links import Edge, edge_model

if TYPE_CHECKING:
    from geomx.cluster import Cluster, NodeSpec
    from geomx.results.files import Row
    from geomx.results.recorder import Recorder

EDGES = ("source", "target", "bytes", "busy_s", "utilisation")


def record_traffic(
    recorder: Recorder,
    source: NodeSpec,
    target: NodeSpec,
    push: Sequence[int],
    pull: Sequence[int],
    control_bytes: int,
    busy_s: float,
) -> None:
    """Write down what crossed one directed link; nothing of a link that carried nothing.

    Args:
        recorder: Of the run.
        source: Sending node.
        target: Receiving node.
        push: (bytes, messages) of training traffic towards the global servers.
        pull: The same, from them.
        control_bytes: Joins, initial values, reports.
        busy_s: Seconds during which the link carried anything.
    """
    kind = "lan" if source.party == target.party else "wan"
    ends = source.name, target.name
    for direction, (data, messages) in (("push", push), ("pull", pull)):
        if messages:
            recorder.link(*ends, kind, direction, data, messages, busy_s)
            busy_s = 0.0  # the link's, not each way's
    if control_bytes:
        recorder.link(*ends, kind, "control", control_bytes, 0, 0.0)


class EdgeTraffic:
    """What crossed each directed edge of the graph, added up over the links whose way it is on.

    Args:
        cluster: The graph, and the ways through it.
        seed: Of the experiment; bandwidths that change at random are drawn from it.
        busy_s: How long each edge had a message under way, in seconds, where that is known. None:
            of the links over an edge, the time of the one that was busy longest is taken, and the
            edge was busy for at least that long.
    """

    def __init__(
        self, cluster: Cluster, seed: int, busy_s: Mapping[Edge, float] | None = None
    ) -> None:
        self._cluster, self._seed, self._busy_s = cluster, seed, busy_s

    def rows(self, links: Iterable[Row], seconds: float | None) -> list[Row]:
        """Rows of ``edges.csv``, one for each edge of the graph, in the graph's order.

        Args:
            links: Rows of ``links.csv``.
            seconds: How long the run took. The utilisation is the bytes over what the edge could
                have carried in that time; None for edges without limit and without a time.
        """
        sent: dict[Edge, int] = {}
        longest_s: dict[Edge, float] = {}
        node = self._cluster.node
        for link in links:
            way = self._cluster.path(node(link["source"]), node(link["target"])).edges
            for edge in way:
                sent[edge] = sent.get(edge, 0) + link["bytes"]
                longest_s[edge] = max(longest_s.get(edge, 0.0), link["busy_s"])
        busy_s = longest_s if self._busy_s is None else self._busy_s
        rows = []
        for source, target, data in self._cluster.graph.edges(data=True):
            edge = source, target
            carried = sent.get(edge, 0)
            used = self._utilisation(edge, data, carried, seconds)
            values = (source, target, carried, round(busy_s.get(edge, 0.0), 9), used)
            rows.append(dict(zip(EDGES, values, strict=True)))
        return rows

    def _utilisation(
        self, edge: Edge, data: Mapping[str, object], carried: int, seconds: float | None
    ) -> float | None:
        if "bandwidth_mbps" not in data or not seconds:
            return None
        if not carried:
            return 0.0
        bandwidth, _ = edge_model(self._cluster, edge, self._seed)
        most = bandwidth.carries(seconds)
        return carried / most if most else None
