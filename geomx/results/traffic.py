"""Traffic on the edges of the graph, derived from that of directed links."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from geomx.cluster import Cluster
from geomx.network.links import Edge, edge_model
from geomx.results.columns import EDGES
from geomx.results.files import Row
from geomx.results.rounding import rounded


class Peak(NamedTuple):
    """The largest readings of an edge: Mbit/s, flows under way, and bytes that senders held."""

    mbps: float
    flows: int
    queue_bytes: int


class EdgeTraffic:
    """Traffic on each directed edge of the graph, summed over the links whose route contains it.

    Args:
        cluster: The graph and its routes.
        seed: Seed of the experiment, from which random bandwidths are drawn.
        busy_s: Seconds during which each edge had a message under way, if known. None: the busy
            time of the busiest link over the edge, which is a lower bound.
        peaks: The largest readings, of a simulation that has taken some; otherwise unknown.
        measured: Bytes that were sent over each edge, and that it could have carried, if programs
            acted on the network; None: derived from links and bandwidths.
        until_s: Until when, in seconds since the start; None: until the last step ended.
    """

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        busy_s: Mapping[Edge, float] | None = None,
        measured: Mapping[Edge, tuple[float, float]] | None = None,
        peaks: Mapping[Edge, Peak] | None = None,
        until_s: float | None = None,
    ) -> None:
        self._cluster, self._seed, self._busy_s = cluster, seed, busy_s
        self._until_s = until_s
        self._measured, self._peaks = measured, peaks or {}

    def rows(self, links: Iterable[Row], seconds: float | None) -> list[Row]:
        """Return the rows of ``edges.csv``, one per edge, in the order of the graph.

        Args:
            links: Rows of ``links.csv``.
            seconds: Duration of the run. Utilisation is the number of bytes over the edge's
                capacity in that time; None for unlimited edges or without a duration.
        """
        seconds = seconds if self._until_s is None else self._until_s
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
            if self._measured is not None:
                carried, most = round(self._measured[edge][0]), self._measured[edge][1]
                used = carried / most if 0 < most < math.inf else None
            mean = rounded(8e-6 * carried / seconds) if seconds else None
            peak = self._peaks.get(edge, (None, None, None))
            values = (
                source, target, carried, round(busy_s.get(edge, 0.0), 9), used, mean, *peak,
            )  # fmt: skip
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
