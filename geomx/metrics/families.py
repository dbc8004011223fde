"""The metrics of one node, with names and units by the conventions of Prometheus.

Values are computed when a page is requested; without requests, metrics cost a node nothing.
docs/metrics.md lists the names.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from geomx.cluster import Cluster, NodeSpec

COUNTS = {
    # Of `NodeStats` (runtime_cpp/core/event.h), by the name of the metric.
    "rounds": ("geomx_shard_rounds", "Rounds of shards that this server has completed."),
    "partial_rounds": (
        "geomx_partial_rounds",
        "Of these rounds, those that were completed without some workers.",
    ),
    "late_slices": (
        "geomx_late_slices",
        "Slices that arrived after their round, and counted in the next.",
    ),
    "missing_slices": ("geomx_missing_slices", "Slices that were absent when their round closed."),
    "dropped_slices": (
        "geomx_dropped_slices",
        "Slices that were not sent, as the second round after theirs had begun.",
    ),
    "non_finite_pushes": ("geomx_non_finite_pushes", "Pushes with NaN or infinite values."),
}

NODE_INFO = "geomx_node_info"
"""A metric of every node, which no other program has."""

LINK = ("node", "peer", "network")
RESIDUALS_SHARE = 0.01
"""Largest share of time for computing residual norms, which reads all that codecs keep."""


class Steps:
    """What a worker has done so far.

    Attributes:
        count: Completed local steps.
        batch_size: Samples in each.
        compute_s: Seconds of computation in them.
        wait_s: Seconds of waiting in them.
        loss: Training loss of the last one; NaN without one.
    """

    def __init__(self) -> None:
        self.count = self.batch_size = 0
        self.compute_s = self.wait_s = 0.0
        self.loss = math.nan

    def add(self, compute_s: float, wait_s: float, loss: float | None) -> None:
        """Add a step."""
        self.count += 1
        self.compute_s += compute_s
        self.wait_s += wait_s
        self.loss = math.nan if loss is None else loss


class NodeMetrics(Collector):
    """The metrics of a node.

    Args:
        node: The node.
        cluster: The cluster that it belongs to.
        stats: Returns its counts (``stats`` of `geomx._core.Loop`).
        residuals: Returns the norms of its codecs' residuals by direction (``residual_norms`` of
            `geomx._core.Loop`); None: unknown.
        waits: Returns whether it waits at this moment (``waits`` of `geomx._core.Loop`); None: it
            never does.

    Attributes:
        steps: What it has done, if it is a worker of an experiment.
        waits_for: The nodes for which it has waited for too long; empty: none.
    """

    def __init__(
        self,
        node: NodeSpec,
        cluster: Cluster,
        stats: Callable[[], Mapping[str, Any]],
        residuals: Callable[[], Mapping[str, float]] | None = None,
        waits: Callable[[], bool] | None = None,
    ) -> None:
        self._node, self._cluster, self._stats = node, cluster, stats
        self._residuals = residuals
        self._waits = waits
        self._norms: Mapping[str, float] = {}
        self._norms_due_s = -math.inf
        self.steps = Steps()
        self.waits_for = ""

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics as of now."""
        stats = self._stats()
        labels = ["node", "role", "party"]
        info = GaugeMetricFamily(NODE_INFO, "Role and party of a node.", labels=labels)
        info.add_metric([self._node.name, self._node.role, self._node.party], 1)
        yield info
        yield from self._links(stats)
        yield from self._states(stats)
        for name, (metric, help_) in COUNTS.items():
            yield self._counter(metric, help_, stats["node"][name])
        yield from self._rounds(stats["rounds"])
        handling = CounterMetricFamily(
            "geomx_handling_seconds",
            "Time in which messages were handled, by the work that they caused.",
            labels=["node", "work"],
        )
        for work, seconds in stats["handled"].items():
            handling.add_metric([self._node.name, work], seconds)
        yield handling
        yield self._residual_norms()
        refused = "Connections that were refused."
        yield self._counter("geomx_refused_connections", refused, stats["refused_callers"])
        waits = GaugeMetricFamily(
            "geomx_long_wait",
            "1 while a coordinator has been waited for longer than failure_timeout_s.",
            labels=["node", "peers"],
        )
        if self.waits_for:
            waits.add_metric([self._node.name, self.waits_for], 1)
        yield waits
        for family in ProcessCollector(registry=None).collect():
            family.samples = [
                each._replace(labels={"node": self._node.name}) for each in family.samples
            ]
            yield family
        if self._node.role == "worker":
            yield from self._training()

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(name, text, labels=["node"])
        family.add_metric([self._node.name], value)
        return family

    def _links(self, stats: Mapping[str, Any]) -> Iterator[Metric]:
        sent = CounterMetricFamily(
            "geomx_sent_bytes",
            "Bytes that the node sent to a peer, headers included.",
            labels=[*LINK, "direction"],
        )
        messages = CounterMetricFamily(
            "geomx_sent_messages", "Messages likewise.", labels=[*LINK, "direction"]
        )
        busy = CounterMetricFamily(
            "geomx_link_busy_seconds", "Time in which messages were under way.", labels=LINK
        )
        rate = GaugeMetricFamily(
            "geomx_link_bandwidth_bytes_per_second",
            "Bandwidth of the route by the network file; absent where it is unlimited.",
            labels=LINK,
        )
        values = SummaryMetricFamily(
            "geomx_send_seconds",
            "From the queueing of a shard's value to the departure of its last byte.",
            labels=[*LINK, "direction"],
        )
        for link in stats["links"]:
            peer = self._cluster.node(link["peer"])
            labels = self._labels(peer)
            for direction in ("push", "pull"):
                size, count = link[direction]
                messages.add_metric([*labels, direction], count)
                sent.add_metric([*labels, direction], size)
                count, seconds = link[f"{direction}_values"]
                if count:
                    values.add_metric([*labels, direction], count, seconds)
            sent.add_metric([*labels, "control"], link["control_bytes"])
            busy.add_metric(labels, link["busy_s"])
            bandwidth = self._cluster.path(self._node, peer).bandwidth_bps / 8
            if math.isfinite(bandwidth):
                rate.add_metric(labels, bandwidth)
        yield from (sent, messages, busy, rate, values)

    def _states(self, stats: Mapping[str, Any]) -> Iterator[Metric]:
        connected = GaugeMetricFamily(
            "geomx_link_up", "Whether a connection carries the link at present.", labels=LINK
        )
        connections = CounterMetricFamily(
            "geomx_link_connections", "Connections that have carried the link.", labels=LINK
        )
        silence = GaugeMetricFamily(
            "geomx_link_silence_seconds",
            "Time since the peer's last bytes; absent without a connection.",
            labels=LINK,
        )
        queued = GaugeMetricFamily(
            "geomx_link_queued_bytes", "Bytes that wait to leave for the peer.", labels=LINK
        )
        suspect = GaugeMetricFamily(
            "geomx_peer_suspect",
            "1 while the peer has been silent for longer than faults.suspect_s.",
            labels=LINK,
        )
        suspicions = CounterMetricFamily(
            "geomx_suspicions", "How often the peer fell silent for so long.", labels=LINK
        )
        for state in stats["states"]:
            labels = self._labels(self._cluster.node(state["peer"]))
            connected.add_metric(labels, float(state["connected"]))
            connections.add_metric(labels, state["connections"])
            queued.add_metric(labels, state["queued_bytes"])
            suspect.add_metric(labels, float(state["suspect"]))
            suspicions.add_metric(labels, state["suspicions"])
            if state["connected"]:
                silence.add_metric(labels, state["silent_s"])
        yield from (connected, connections, silence, queued, suspect, suspicions)

    def _rounds(self, rounds: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
        """Yield what the rounds of a server have waited for; nothing has samples elsewhere."""
        phases = CounterMetricFamily(
            "geomx_round_phase_seconds",
            "Time of shards in a phase of their rounds, the sum over shards.",
            labels=["node", "phase"],
        )
        last = CounterMetricFamily(
            "geomx_last_contributions",
            "Rounds of shards that a peer's contribution completed: the others had come before.",
            labels=["node", "peer"],
        )
        held = CounterMetricFamily(
            "geomx_held_seconds",
            "Time that a peer's contributions waited for those of others, the sum over shards.",
            labels=["node", "peer"],
        )
        for phase, seconds in rounds.get("phases", {}).items():
            phases.add_metric([self._node.name, phase], seconds)
        for peer, (count, seconds) in rounds.get("children", {}).items():
            last.add_metric([self._node.name, peer], count)
            held.add_metric([self._node.name, peer], seconds)
        yield from (phases, last, held)

    def _residual_norms(self) -> Metric:
        norms = GaugeMetricFamily(
            "geomx_residual_norm",
            "Euclidean norm of what codecs with error feedback keep for later rounds.",
            labels=["node", "direction"],
        )
        now_s = time.monotonic()
        if self._residuals is not None and now_s >= self._norms_due_s:
            self._norms = self._residuals()
            self._norms_due_s = now_s + (time.monotonic() - now_s) / RESIDUALS_SHARE
        for direction, norm in self._norms.items():
            if norm > 0:
                norms.add_metric([self._node.name, direction], norm)
        return norms

    def _labels(self, peer: NodeSpec) -> list[str]:
        """Return the values of the labels `LINK` for the link to a peer."""
        return [self._node.name, peer.name, "lan" if peer.party == self._node.party else "wan"]

    def _training(self) -> Iterator[Metric]:
        steps = self.steps
        yield self._counter("geomx_steps", "Local steps of a worker.", steps.count)
        samples = steps.count * steps.batch_size
        yield self._counter("geomx_samples", "Samples that a worker has used.", samples)
        computing = "Time in which a worker computed."
        yield self._counter("geomx_compute_seconds", computing, steps.compute_s)
        waiting = "Time in which a worker waited for parameters."
        yield self._counter("geomx_wait_seconds", waiting, steps.wait_s)
        now = GaugeMetricFamily(
            "geomx_waiting", "1 while a worker waits for others.", labels=["node"]
        )
        now.add_metric([self._node.name], float(self._waits is not None and self._waits()))
        yield now
        loss = GaugeMetricFamily(
            "geomx_loss", "Training loss of the last local step.", labels=["node"]
        )
        if not math.isnan(steps.loss):
            loss.add_metric([self._node.name], steps.loss)
        yield loss
