"""Tells the launcher of waits by which it finds coordinators that give no orders."""

from __future__ import annotations

import time

from geomx.live.journal import Notes
from geomx.live.member import Member


class LongWaits:
    """Notes that a node has waited for longer than ``runtime.failure_timeout_s``.

    A node with the coordinator of an overlay notes that everything waits for its order, and every
    node that it is idle: orders are missing only where no worker computes and nothing is under
    way, because a coordinator may wait for reports that are still to come.

    Args:
        member: The node.
        notes: Receives the notes.
    """

    def __init__(self, member: Member, notes: Notes) -> None:
        self._member, self._notes = member, notes
        self._limit_s = member.spec.runtime.failure_timeout_s
        self._is_worker = member.node.role == "worker"
        self._coordinated = bool(member.selection.coordinators(member.spec.cluster))
        self._since_s = time.monotonic()
        self._order, self._idle = -1, False

    def look(self) -> None:
        """Note what has changed; called several times within the limit."""
        if not self._coordinated:
            return
        if (order := self._member.loop.order_due) != self._order:
            self._order = order
            cluster, selection = self._member.spec.cluster, self._member.selection
            whom = "" if order < 0 else f"an order of {selection.coordinator(cluster, order)}"
            self._notes.waits(whom)
        if (idle := self._is_idle()) != self._idle:
            self._idle = idle
            self._notes.idle(idle)

    def _is_idle(self) -> bool:
        """Whether the worker has waited, and all that the node sent has arrived, for the limit."""
        # Nothing here waits for the loop, which may itself wait for a plugin that does not return.
        loop, now_s = self._member.loop, time.monotonic()
        works = self._is_worker and not loop.waits
        if works or not loop.settled:
            self._since_s = now_s
        return now_s - self._since_s >= self._limit_s
