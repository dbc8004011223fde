"""What both modes count on a directed link, as rows of the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geomx.cluster import NodeSpec
    from geomx.results import Recorder


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
