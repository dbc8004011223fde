"""What a coordinator of an overlay hears, and what it says: numbers on the wire, words here.

A plugin's coordinator in Python reads reports with `OverlayReport.read` and answers with
`overlay_order`; those in C++ use the same numbers (runtime_cpp/core/overlay.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from geomx import _core


class OverlayReport(NamedTuple):
    """What a member of a group tells the group's coordinator (runtime_cpp/core/overlay.h).

    Attributes:
        what: ``ready``: this member holds a contribution. ``merged``: the root, and no member, took
            one in. ``origin``: the root has a new value for all `members`. ``has``: this member
            holds the value now.
        root: Node id of the group's root.
        key: The tensor.
        shard: Its shard.
        round: Of that shard.
        priority: Of that shard.
        source: Node id of the sender whose transfer has just been received; None if none has.
        bytes: Of that transfer.
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
        """Read a report from the numbers that a coordinator gets.

        Args:
            values: As they come to `Coordinator.on_report`.

        Returns:
            The report.

        Raises:
            ValueError: The numbers are no report.
        """
        return cls(*_core.read_overlay_report(list(values)))


def overlay_order(direction: str, report: OverlayReport, target: int) -> list[float]:
    """Make the message that tells a member of a group to send what a report is about.

    The member obeys once, if it holds a value of that round.

    Args:
        direction: ``push`` for its contribution, ``pull`` for the value.
        report: The report about the shard and the round.
        target: Node id of the member that is to receive it.

    Returns:
        The numbers of the message.

    Example:
        >>> report = OverlayReport("ready", 1, 0, 0, 3, 0, None, 0, ())
        >>> order = overlay_order("push", report, 2)
        >>> all(isinstance(number, float) for number in order)
        True
    """
    where = report.root, report.key, report.shard, report.round
    return list(_core.overlay_order(direction, *where, target))
