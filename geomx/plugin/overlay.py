"""The messages between a group's members and the coordinator of their overlay.

Messages consist of numbers. A coordinator in Python reads reports with `OverlayReport.read` and
replies with `overlay_order`; those in C++ use runtime_cpp/core/overlay.h.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from geomx import _core


class OverlayReport(NamedTuple):
    """A member's report to the coordinator (runtime_cpp/core/overlay.h).

    Attributes:
        what: ``ready``: the member has a contribution. ``merged``: the root has added a
            contribution. ``origin``: the root has a new value for all `members`. ``has``: the
            member has the value.
        root: Node id of the group's root.
        key: Number of the tensor.
        shard: Number of the shard within it.
        round: Round of the shard.
        priority: Priority of the shard.
        source: Node id of the sender of the transfer that has just been received; None if there was
            none.
        bytes: Size of that transfer; if there was none, of the dense contribution or value.
        members: Node ids, with ``origin``.
    """

    what: str
    root: int
    key: int
    shard: int
    round: int
    priority: int
    source: int | None
    bytes: int
    members: Sequence[int]

    @classmethod
    def read(cls, values: Sequence[float]) -> OverlayReport:
        """Read a report.

        Args:
            values: The numbers that `Coordinator.on_report` received.

        Returns:
            The report.

        Raises:
            ValueError: The numbers are not a report.
        """
        return cls(*_core.read_overlay_report(list(values)))


def overlay_order(direction: str, report: OverlayReport, target: int) -> list[float]:
    """Return an order to a member to send its contribution or value to another member.

    The member carries out the order once, if it has the contribution or value of that round.

    Args:
        direction: ``push`` for the contribution, ``pull`` for the value.
        report: A report, which identifies the shard and the round.
        target: Node id of the receiver.

    Returns:
        The order as numbers, for a reply of `Coordinator.on_report`.

    Example:
        >>> report = OverlayReport("ready", 1, 0, 0, 3, 0, None, 0, ())
        >>> order = overlay_order("push", report, 2)
        >>> all(isinstance(number, float) for number in order)
        True
    """
    where = report.root, report.key, report.shard, report.round
    return list(_core.overlay_order(direction, *where, target))
