"""Traffic of directed links, counted alike in both modes."""

from __future__ import annotations

from collections.abc import Sequence

from geomx.cluster import NodeSpec
from geomx.results.recorder import Recorder


def record_traffic(
    recorder: Recorder,
    source: NodeSpec,
    target: NodeSpec,
    push: Sequence[int],
    pull: Sequence[int],
    control_bytes: int,
    busy_s: float,
) -> None:
    """Record the traffic of a directed link; links without traffic are omitted.

    Args:
        recorder: Recorder of the run.
        source: Sending node.
        target: Receiving node.
        push: (bytes, messages) of training traffic towards the global servers.
        pull: The same for training traffic from them.
        control_bytes: Bytes of joins, initial values and reports.
        busy_s: Seconds during which the link carried anything.
    """
    kind = "lan" if source.party == target.party else "wan"
    ends = source.name, target.name
    for direction, (data, messages) in (("push", push), ("pull", pull)):
        if messages:
            recorder.link(*ends, kind, direction, data, messages, busy_s)
            busy_s = 0.0  # counted once per link
    if control_bytes:
        recorder.link(*ends, kind, "control", control_bytes, 0, 0.0)
