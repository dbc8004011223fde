"""What ``geomx top`` shows: the state of a job between two readings of its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

from prometheus_client.core import Metric
from rich.bar import Bar
from rich.console import Group
from rich.table import Table
from rich.text import Text

from geomx.metrics.families import NODE_INFO
from geomx.results.mean_rounds import PARTS, MeanRound
from geomx.terminal import units

Labels = tuple[tuple[str, str], ...]
MOST_LINKS = 12
"""Links that are shown: the fullest ones."""

SILENT_S = 2.0
"""Silence of a link that is worth a remark: eight of the longest intervals of heartbeats."""

CLEAR = 0.1
"""Difference of two workers' shares of waiting that is no chance."""


@dataclass
class Reading:
    """The metrics of a job at one time.

    Attributes:
        time_s: When they were read, in seconds of any monotonic clock.
        values: By the name of a sample and its labels.
    """

    time_s: float
    values: dict[str, dict[Labels, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, time_s: float, families: Iterable[Metric]) -> Reading:
        """Return the reading of a page of metrics."""
        reading = cls(time_s)
        for family in families:
            for sample in family.samples:
                labels = tuple(sorted(sample.labels.items()))
                reading.values.setdefault(sample.name, {})[labels] = sample.value
        return reading

    def get(self, name: str, **labels: str) -> float:
        """Return the sum of all samples of a name that have these labels; 0 without any."""
        wanted = set(labels.items())
        found = self.values.get(name, {})
        return sum(value for known, value in found.items() if wanted <= set(known))

    def each(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Return (labels, value) of all samples of a name."""
        return [(dict(known), value) for known, value in self.values.get(name, {}).items()]

    def nodes(self) -> set[str]:
        """Return the names of the nodes that have answered."""
        return {labels["node"] for labels, _ in self.each(NODE_INFO)}

    def only(self, nodes: Set[str]) -> Reading:
        """Return the reading of some nodes alone."""
        values = {
            name: {known: value for known, value in found.items() if dict(known)["node"] in nodes}
            for name, found in self.values.items()
        }
        return Reading(self.time_s, values)


def comparable(before: Reading, now: Reading) -> tuple[Reading, Reading]:
    """Return two readings without the nodes that one of them lacks, because they were silent.

    What the others have counted in between is the difference of the two.

    Args:
        before: An earlier reading.
        now: The present one.
    """
    both = before.nodes() & now.nodes()
    return before.only(both), now.only(both)


@dataclass(frozen=True)
class NodeRow:
    """A node: its name, role and party; steps, step rate and share of waiting of workers.

    The rate is None if the node did not answer at both readings. The share is of the steps that
    were completed between them; without any, it is 1 for a worker that waits at the later one, and
    None for others.
    `suspected_by` has the nodes that have heard nothing from it for too long.
    """

    name: str
    role: str
    up: bool
    steps: int
    steps_per_s: float | None
    wait_share: float | None
    loss: float | None
    memory_bytes: float
    waits_for: str
    suspected_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class RoundRow:
    """The mean round of a server's shards between two readings, and its rounds per second."""

    name: str
    per_s: float
    mean: MeanRound


@dataclass(frozen=True)
class LinkRow:
    """A link: its ends, its rate since the reading before, and its bandwidth (None: unlimited).

    `remark` says what is wrong with it, and is empty otherwise.
    """

    source: str
    target: str
    network: str
    bytes_per_s: float
    bandwidth: float | None
    remark: str = ""

    @property
    def share(self) -> float:
        """Fraction of the bandwidth that is used; 0 where that is unlimited."""
        return min(1.0, self.bytes_per_s / self.bandwidth) if self.bandwidth else 0.0


def node_rows(before: Reading, now: Reading) -> list[NodeRow]:
    """Return the nodes in the order of the job; of a node that is silent, what was last known.

    Args:
        before: An earlier reading.
        now: The present one.
    """
    span_s = max(1e-9, now.time_s - before.time_s)
    loss = {labels["node"]: value for labels, value in now.each("geomx_loss")}
    waits = {labels["node"]: labels["peers"] for labels, _ in now.each("geomx_long_wait")}
    suspects = [labels for labels, value in now.each("geomx_peer_suspect") if value]
    down = {labels["node"] for labels, value in now.each("geomx_up") if not value}
    known = {labels["node"]: labels for labels, _ in before.each(NODE_INFO)}
    known |= {labels["node"]: labels for labels, _ in now.each(NODE_INFO)}
    known |= {name: {"role": ""} for name in sorted(down - known.keys())}  # silent for longer
    first, last = comparable(before, now)
    both = last.nodes()
    rows = []
    for name, info in known.items():
        steps, earlier = (reading.get("geomx_steps_total", node=name) for reading in (now, before))
        computed, waited = (
            last.get(metric, node=name) - first.get(metric, node=name)
            for metric in ("geomx_compute_seconds_total", "geomx_wait_seconds_total")
        )
        share = waited / (computed + waited) if computed + waited > 0 else None
        if share is None and now.get("geomx_waiting", node=name):
            share = 1.0
        rows.append(
            NodeRow(
                name=name,
                role=info["role"].replace("_", " "),
                up=name not in down,
                steps=int(max(steps, earlier)),
                steps_per_s=max(0.0, steps - earlier) / span_s if name in both else None,
                wait_share=share,
                loss=loss.get(name),
                memory_bytes=now.get("process_resident_memory_bytes", node=name),
                waits_for=waits.get(name, ""),
                suspected_by=tuple(who["node"] for who in suspects if who["peer"] == name),
            )
        )
    return rows


def slowest(rows: Sequence[NodeRow]) -> NodeRow | None:
    """Return the worker that clearly waits less than all others, which wait for it; None: none.

    Args:
        rows: All nodes.
    """
    shares = [(row.wait_share, row) for row in rows if row.wait_share is not None]
    if len(shares) < 2:
        return None
    (least, row), (next_least, _) = sorted(shares, key=lambda each: each[0])[:2]
    return row if least < next_least - CLEAR else None


def round_rows(before: Reading, now: Reading) -> list[RoundRow]:
    """Return the servers that have completed rounds between two readings, in the order of the job.

    Args:
        before: An earlier reading.
        now: The present one.
    """
    before, now = comparable(before, now)

    def grown(metric: str, **labels: str) -> float:
        return max(0.0, now.get(metric, **labels) - before.get(metric, **labels))

    rows = []
    for info, _ in now.each(NODE_INFO):
        name = info["node"]
        rounds = grown("geomx_shard_rounds_total", node=name)
        phases = [
            labels
            for labels, _ in now.each("geomx_round_phase_seconds_total")
            if labels["node"] == name
        ]
        if not phases or not rounds:  # workers complete rounds as well, without phases
            continue
        spent = {
            labels["phase"]: grown("geomx_round_phase_seconds_total", **labels) for labels in phases
        }
        answering_s = (
            grown("geomx_send_seconds_sum", node=name, direction="push"),
            grown("geomx_held_seconds_total", peer=name),
            grown("geomx_send_seconds_sum", peer=name, direction="pull"),
        )
        last = {
            labels["peer"]: grown("geomx_last_contributions_total", **labels)
            for labels, _ in now.each("geomx_last_contributions_total")
            if labels["node"] == name
        }
        per_s = rounds / max(1e-9, now.time_s - before.time_s)
        rows.append(RoundRow(name, per_s, MeanRound.of(rounds, spent, answering_s, last)))
    return rows


def link_rows(before: Reading, now: Reading) -> list[LinkRow]:
    """Return the links with traffic between two readings, or with a fault, which come first.

    The others follow by the share of their bandwidth that is used.

    Args:
        before: An earlier reading.
        now: The present one.
    """
    span_s = max(1e-9, now.time_s - before.time_s)
    names = ("node", "peer", "network")
    ends = {
        tuple(labels[name] for name in names) for labels, _ in now.each("geomx_sent_bytes_total")
    }
    first, last = comparable(before, now)
    rows = []
    for source, target, network in sorted(ends):
        which = {"node": source, "peer": target, "network": network}
        sent = last.get("geomx_sent_bytes_total", **which)
        rate = (sent - first.get("geomx_sent_bytes_total", **which)) / span_s
        bandwidth = now.get("geomx_link_bandwidth_bytes_per_second", **which) or None
        remark = _fault(now, which)
        if rate > 0 or remark:
            rows.append(LinkRow(source, target, network, max(0.0, rate), bandwidth, remark))
    return sorted(rows, key=lambda row: (not row.remark, -row.share, -row.bytes_per_s))


def _fault(now: Reading, which: dict[str, str]) -> str:
    """Return what is wrong with a link, if anything is."""
    if now.get("geomx_link_connections_total", **which) and not now.get("geomx_link_up", **which):
        return "no connection"
    silent_s = now.get("geomx_link_silence_seconds", **which)
    return f"silent for {silent_s:.0f} s" if silent_s > SILENT_S else ""


def shown(before: Reading, now: Reading) -> Group:
    """Return the tables of nodes and links for the terminal."""
    nodes = Table(title="nodes", title_justify="left", expand=True)
    for column in ("node", "role", "steps", "steps/s", "waiting", "loss", "memory", ""):
        nodes.add_column(column, justify="left" if column in ("node", "role", "") else "right")
    rows = node_rows(before, now)
    last = slowest(rows)
    for row in rows:
        remark = f"waits for {row.waits_for}" if row.waits_for else ""
        if row.suspected_by:
            remark = f"suspected by {', '.join(row.suspected_by)}"
        if row is last:
            remark = remark or "the others wait for it"
        worker = row.role == "worker"
        nodes.add_row(
            Text(row.name),  # a name may look like rich's markup
            row.role,
            f"{row.steps:,}" if worker else "",
            "" if not worker or row.steps_per_s is None else f"{row.steps_per_s:.1f}",
            "" if row.wait_share is None else f"{row.wait_share:.0%}",
            "" if row.loss is None else f"{row.loss:.4f}",
            units.size(row.memory_bytes) if row.memory_bytes else "",
            Text(remark) if row.up else Text("does not answer", style="red"),
        )
    rounds = Table(
        title="a shard's mean round", title_justify="left", expand=True, collapse_padding=True
    )
    rounds.add_column("server", no_wrap=True)
    for column in ("time", *PARTS):
        rounds.add_column(column, justify="right")
    rounds.add_column("last", no_wrap=True)
    served = round_rows(before, now)
    for turn in served:
        party = f"{turn.name.rpartition('/')[0]}/"
        mean = turn.mean
        rounds.add_row(
            Text(turn.name),
            units.duration(mean.whole_s),
            *("" if part is None else units.duration(part) for part in mean.parts_s),
            Text(f"{mean.last.removeprefix(party)} {mean.last_share:.0%}" if mean.last else ""),
        )
    links = Table(title="links", title_justify="left", expand=True)
    links.add_column("from")
    links.add_column("to")
    links.add_column("Mbit/s", justify="right")
    links.add_column("of", justify="right")
    links.add_column("used", ratio=1)
    for link in link_rows(before, now)[:MOST_LINKS]:
        whole = "" if link.bandwidth is None else f"{link.bandwidth * 8 / 1e6:,.0f}"
        used: Bar | Text | str = Bar(1.0, 0.0, link.share) if link.bandwidth else ""
        if link.remark:
            used = Text(link.remark, style="red")
        ends, rate = (Text(link.source), Text(link.target)), link.bytes_per_s * 8 / 1e6
        links.add_row(*ends, f"{rate:,.1f}", whole, used)
    return Group(nodes, rounds, links) if served else Group(nodes, links)
