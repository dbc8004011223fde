"""The critical path summarised by causes.

For example ``62 % waiting for the push of beijing, limited by its uplink (20 Mbit/s)``: the awaited
transfer, and what most of its time was spent on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from geomx.explaining.evidence import Edge, Evidence
from geomx.explaining.path import Step
from geomx.terminal import units

WORTH_SAYING = 0.05
"""Parts with a smaller share are in the table, not in the sentence."""
HANDLING = {
    "aggregate": "aggregating",
    "update": "updating",
    "encode": "encoding",
    "receive": "receiving messages",
    "late": "sending gradients late",
}
CARRIED = {"push": "push", "value": "pull"}

Limits = dict[Edge | None, float]


@dataclass
class Part:
    """All steps of the path with the same cause.

    Attributes:
        what: ``compute``, ``push``, ``value``, ``orders``, ``handle``, ``other`` or ``unknown``.
        where: ``wan`` or ``lan`` for transfers; otherwise the node.
        party: The party whose push or values are awaited; otherwise the node's party.
        seconds: Time on the path.
        sending: Time during which the message itself was sent, by limiting edge.
        queueing: Time during which earlier messages on the link were sent, by limiting edge.
        delay: Time of propagation.
        handling: Time of processing at nodes, by kind of work.
    """

    what: str
    where: str
    party: str
    seconds: float = 0.0
    sending: Limits = field(default_factory=lambda: defaultdict(float))
    queueing: Limits = field(default_factory=lambda: defaultdict(float))
    delay: float = 0.0
    handling: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, step: Step) -> None:
        """Add a step of the path."""
        self.seconds += step.seconds
        if step.what == "send":
            self.sending[step.edge] += step.seconds
        elif step.what == "queue":
            self.queueing[step.edge] += step.seconds
        elif step.what == "delay":
            self.delay += step.seconds
        elif step.what == "handle":
            self.handling[step.kind] += step.seconds

    @property
    def limits(self) -> Limits:
        """Seconds of sending and queueing together, by limiting edge."""
        total: Limits = defaultdict(float)
        for limits in (self.sending, self.queueing):
            for edge, seconds in limits.items():
                total[edge] += seconds
        return total


def parts_of(evidence: Evidence, steps: Sequence[Step]) -> list[Part]:
    """Group the steps of a path by cause.

    Args:
        evidence: The run.
        steps: Its critical path.

    Returns:
        The parts, the largest first.
    """
    parts: dict[tuple[str, str, str], Part] = {}
    for step in steps:
        key = _cause(evidence, step)
        parts.setdefault(key, Part(*key)).add(step)
    return sorted(parts.values(), key=lambda part: -part.seconds)


def _cause(evidence: Evidence, step: Step) -> tuple[str, str, str]:
    home = evidence.party.get(step.node, "")
    if not step.peer:
        return step.what, step.node, home
    away = evidence.party.get(step.peer, "")
    where = "lan" if home == away else "wan"
    if step.kind not in CARRIED:
        return "orders", where, home
    return step.kind, where, away if step.kind == "value" else home


def told(evidence: Evidence, part: Part) -> str:
    """Return the description of a part.

    Args:
        evidence: The run.
        part: A part of its critical path.
    """
    if part.what == "compute":
        speed = evidence.speed.get(part.where, 1.0)
        slow = f" (speed {speed:g})" if speed != 1.0 else ""
        return f"computing at {part.where}{slow}"
    if part.what == "handle":
        kinds = sorted(part.handling, key=lambda kind: -part.handling[kind])
        return f"{HANDLING.get(kinds[0], kinds[0])} at {part.where}"
    if part.what == "other":
        return f"{part.where} neither computes nor waits"
    if part.what == "unknown":
        return f"not recorded in the timeline (at {part.where})"
    if part.what == "orders":
        between = "with another site" if part.where == "wan" else f"inside {part.party}"
        return f"waiting for orders and reports {between}"
    inside = " inside it" if part.where == "lan" else ""
    return f"waiting for the {CARRIED[part.what]} of {part.party}{inside}{limited(evidence, part)}"


def limited(evidence: Evidence, part: Part) -> str:
    """Return what most of the time of a transfer was spent on, as the end of a sentence.

    Args:
        evidence: The run.
        part: A transfer on its critical path.
    """
    limits = part.limits
    edge = max(limits, key=lambda one: limits[one], default=None)
    most = limits.get(edge, 0.0)
    if part.delay >= most:
        return ", mostly propagation delay"
    if edge is None:
        return ", limited by round trips (the connection's window, or its start)"
    return f", limited by {edge_name(edge, part.party)}{_rate(evidence, edge)}"


def _rate(evidence: Evidence, edge: Edge) -> str:
    mbps = evidence.graph.edges[edge].get("bandwidth_mbps")
    return f" ({mbps:g} Mbit/s)" if mbps else ""


def edge_name(edge: Edge, party: str = "") -> str:
    """Return an edge in words: ``its uplink``, ``the downlink of beijing``, ``the link a → b``.

    Args:
        edge: An edge of the network.
        party: The party referred to as ``its``; empty for none.
    """
    if access := access_of(edge):
        name, site = access
        return f"its {name}" if site == party else f"the {name} of {site}"
    return f"the link {' → '.join(edge)}"


def access_of(edge: Edge) -> tuple[str, str] | None:
    """Return ``uplink`` or ``downlink`` and its site, or None for other links."""
    source, target = edge
    for name, site, outside in (("uplink", source, target), ("downlink", target, source)):
        if outside == f"{site}/wan":
            return name, site
    return None


def sentence(evidence: Evidence, parts: Sequence[Part]) -> str:
    """Return one sentence about the parts above `WORTH_SAYING`.

    Args:
        evidence: The run.
        parts: The parts of its critical path, the largest first.
    """
    whole = sum(part.seconds for part in parts) or 1.0
    said = [part for part in parts if part.seconds >= WORTH_SAYING * whole] or parts[:1]
    return "; ".join(
        f"{units.share(part.seconds / whole, 0)} {told(evidence, part)}" for part in said
    )


def to_json(evidence: Evidence, part: Part, whole: float, iterations: int) -> dict[str, Any]:
    """Return a part for ``explain.json``.

    Args:
        evidence: The run.
        part: The part.
        whole: Length of the path in seconds; shares are relative to it.
        iterations: Number of iterations on the path.
    """
    ways = [
        {
            "limit": "round trips" if edge is None else list(edge),
            "sending": part.sending.get(edge, 0.0) / whole,
            "queueing": part.queueing.get(edge, 0.0) / whole,
        }
        for edge in sorted(part.limits, key=lambda one: -part.limits[one])
    ]
    return {
        "what": part.what,
        "where": part.where,
        "party": part.party,
        "said": told(evidence, part),
        "share": part.seconds / whole,
        "seconds_per_iteration": part.seconds / iterations,
        "delay": part.delay / whole,
        "limits": ways,
        "handling": {kind: seconds / whole for kind, seconds in part.handling.items()},
    }
