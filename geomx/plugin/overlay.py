"""What a coordinator of an overlay hears, and what it says: numbers on the wire, words here.

A plugin's coordinator in Python reads reports with `OverlayReport.read` and answers with
`overlay_order`; those in C++ use the same numbers (runtime_cpp/core/overlay.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from geomx import _core


class OverlayReport(NamedTuple):
    """What a group tells its coordinator (runtime_cpp/core/overlay.h).

    Attributes:
        what: ``ready``: this member holds a contribution. ``merged``: the root, and no member, took
            one in. ``origin``: the root has a new value for all `members`. ``has``: this member
            holds the value now.
        root: Node id of the group's root.
        key: The tensor.
        shard: Its shard.
        round: Of that shard.
        priority: Of that shard.
        source: Whose transfer has just been received, if one has.
        bytes: Of that transfer.
        members: With ``origin``.
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
        """A report from the numbers that a coordinator hears.

        Raises:
            ValueError: They are none.
        """
        return cls(*_core.read_overlay_report(list(values)))


def overlay_order(direction: str, report: OverlayReport, target: int) -> list[float]:
    """Tell a member to send its contribution (``push``) or value (``pull``) of a report's shard.

    It obeys once, if it holds one of that round.
    """
    where = report.root, report.key, report.shard, report.round
    return list(_core.overlay_order(direction, *where, target))
