"""The critical path of a run, computed backwards from the end of an iteration.

A wait of a worker ends with a message. The sender of that message had been waiting for another one,
or the message came from a worker's computation. So every moment of an iteration has one cause, and
the walk visits the causes from the last to the first. If a message had to wait for others on its
link, the time is attributed to them, back to the moment at which the link was idle: nothing could
have left earlier.

Shares are those of the path: they sum to one. Work that overlaps with something slower is not on
the path and has no share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from geomx.explaining.evidence import LATE_S, Edge, Evidence, Sent
from geomx.results.files import Row

CAUSES: dict[str, tuple[str, ...]] = {
    "push": ("push",),
    "value": ("push", "value"),
    "init": ("init",),
    "pull_request": ("pull_request",),
}
"""By kind of message, the kinds that make a node send it, for the same shard."""
NEAR_S = 1e-3
"""A worker that sends this soon after an arrival reacts to it, and not to what it has computed."""


class Step(NamedTuple):
    """A stretch of the critical path. Times in seconds since the start of the run.

    Attributes:
        what: ``compute``, ``send`` (the message is sent), ``queue`` (earlier messages are sent on
            the same link), ``delay``, ``handle`` (a node processes a message), ``other`` (a worker
            neither computes nor waits) or ``unknown``.
        node: The node that computes or handles; for messages the sender.
        peer: For messages, the receiver.
        kind: For messages, ``push``, ``value``, ...; for ``handle``, ``aggregate``, ``update``,
            ``encode``, ``receive``, or ``late``: a live worker still pushes what should be out by
            the step time of the workload.
        edge: The edge that limits a transmission; None if that is the round trip.
    """

    what: str
    start_s: float
    end_s: float
    node: str
    peer: str = ""
    kind: str = ""
    edge: Edge | None = None

    @property
    def seconds(self) -> float:
        """Duration."""
        return self.end_s - self.start_s


def critical_path(evidence: Evidence, rows: Sequence[Row]) -> list[Step]:
    """Compute the critical path of consecutive iterations of one worker.

    Args:
        evidence: The run.
        rows: Rows of ``iterations.csv``, in order.

    Returns:
        Contiguous steps, from the end of the last iteration back to the start of the first.
    """
    return _Walk(evidence, rows[0]["worker"], rows[0]["start_s"], rows[-1]["end_s"]).steps


class _Walk:
    def __init__(self, evidence: Evidence, worker: str, start_s: float, end_s: float) -> None:
        self._evidence = evidence
        self._worker, self._start_s = worker, start_s
        self._now = end_s
        self.steps: list[Step] = []
        self._seen: set[Sent] = set()
        node = worker
        while self._now > start_s:
            message = self._work(node)
            while message is not None and self._now > start_s:
                node, message = self._travel(message)

    def _step(self, what: str, start_s: float, node: str, **more: object) -> None:
        """Add a step from `start_s` to the current position, and move there."""
        start_s = max(start_s, self._start_s)
        if start_s < self._now:
            self.steps.append(Step(what, start_s, self._now, node, **more))  # type: ignore[arg-type]
            self._now = start_s

    # ---- at a worker ----

    def _work(self, node: str) -> Sent | None:
        """Go back through the work of a worker, to the message that ended a wait, if known."""
        doing = self._evidence.own(node, self._now)
        if doing is None:
            self._step("unknown", self._start_s, node)
            return None
        if self._now > doing.end_s:
            self._step("other", doing.end_s, node)
        if doing.category == "compute":
            self._step("compute", doing.start_s, node)
            return None
        if self._now < doing.end_s - LATE_S:  # it waits, but had not sent everything
            self._handle(node, doing.start_s, rest="late")
            return None
        message = self._ended_by(node, doing.args)
        if message is None or message in self._seen:
            self._step("unknown", doing.start_s, node)
            return None
        return message

    def _ended_by(self, node: str, about: dict[str, int]) -> Sent | None:
        if "key" not in about:
            return self._evidence.arrived(node, self._now, "reply")
        known = "round" in about  # a wait ends with the last of these messages: none comes later
        by_s = self._now + (10 * self._evidence.late_s if known else 0.0)
        value = self._evidence.arrived(node, by_s, "value", about["key"], most=about.get("round"))
        return value if value is None or value.round == about.get("round", value.round) else None

    # ---- messages ----

    def _travel(self, message: Sent) -> tuple[str, Sent | None]:
        """Go back to the origin of `message`.

        Returns:
            The node that caused it, and the message that it reacted to; None for the latter if the
            node is
            a worker that was computing.
        """
        self._seen.add(message)
        self._receive(message)
        self._step("delay", message.left_s, message.source, peer=message.target, kind=message.kind)
        ahead, what = message, "send"
        while True:
            edge = self._evidence.limit(ahead.source, ahead.target, ahead.start_s, ahead.left_s)
            self._step(
                what, ahead.start_s, message.source, peer=message.target, kind=message.kind,
                edge=edge,
            )  # fmt: skip
            previous = self._evidence.before(ahead)
            if previous is None or previous in self._seen or self._now <= self._start_s:
                break
            self._seen.add(previous)
            ahead, what = previous, "queue"
        source = ahead.source
        cause = self._cause(ahead)
        if source in self._evidence.speed:
            near = cause is not None and self._now - cause.arrives_s < NEAR_S
            if ahead.kind in ("push", "report") and not near:
                return source, None
        if cause is None or cause in self._seen:
            return self._worker, None  # the cause is unknown; continue at the waiting worker
        return source, cause

    def _cause(self, message: Sent) -> Sent | None:
        """Return the message that made a node send `message`: the last possible arrival."""
        node, moment = message.source, self._now
        most = message.round if message.kind == "value" else None
        if message.kind in CAUSES:
            indices = [(kind, message.key, message.shard) for kind in CAUSES[message.kind]]
            found = [
                self._evidence.arrived(
                    node, moment, *index, most=most if index[0] == "push" else None
                )
                for index in indices
            ]
            found.append(self._evidence.arrived(node, moment, "reply"))
        elif message.kind == "reply":
            found = [self._evidence.arrived(node, moment, "report")]
        else:
            found = [self._evidence.arrived(node, moment)]
        known = [one for one in found if one is not None]
        return max(known, key=lambda one: one.arrives_s, default=None)

    def _receive(self, message: Sent) -> None:
        """Add what happened between a message's arrival and its effect.

        Where it may have waited in the kernel or in the network, on a way that is full, the time in
        which its receiver did nothing is that of earlier messages; the arrival is an estimate.
        """
        since_s = self._spend(message.target, message.arrives_s)
        edge = None
        if self._evidence.kernel and since_s < self._now:
            first = self._evidence.before(message) or message
            edge = self._evidence.limit(message.source, message.target, first.start_s, self._now)
        if edge is None:
            self._step("handle", since_s, message.target, kind="receive")
        else:
            self._step(
                "queue", since_s, message.source, peer=message.target, kind=message.kind, edge=edge
            )

    def _handle(self, node: str, since_s: float, rest: str = "receive") -> None:
        """Add what `node` did between an arrival and its effect; the order does not matter."""
        self._step("handle", self._spend(node, since_s), node, kind=rest)

    def _spend(self, node: str, since_s: float) -> float:
        """Add the work that `node` noted since a moment; return where the rest of it begins."""
        since_s = max(min(since_s, self._now), self._start_s)
        spent = self._evidence.handling(node, since_s, self._now)
        for kind, seconds in sorted(spent.items()):
            self._step("handle", max(since_s, self._now - seconds), node, kind=kind)
        return since_s
