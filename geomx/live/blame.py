"""Which node of a live run was the first to go, and why, from what all of them left behind."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

from geomx.cluster import Cluster
from geomx.errors import NodeLost
from geomx.live.notes import Reader, stem
from geomx.live.notes import path as file_of
from geomx.live.status import DONE, LOST


def culprit(cluster: Cluster, directory: Path, ended: Mapping[str, int]) -> NodeLost:
    """Who was the first to go, and why.

    Args:
        cluster: Who took part.
        directory: Of the run.
        ended: Exit status by node, in the order in which they ended; one at least is not `DONE`.
    """
    failed = {name: status for name, status in ended.items() if status != DONE}
    for name, status in failed.items():
        if status < 0:
            return NodeLost(name, f"killed by {signal.Signals(-status).name}")
    reported = _reported(cluster, directory)
    own = [name for name, status in failed.items() if status != LOST]
    if reported is not None and reported.name not in own:
        return reported
    name = reported.name if reported is not None else next(iter((*own, *failed)))
    words = last_words(directory, name)
    return NodeLost(name, f"exit status {failed[name]}" + (f": {words}" if words else ""))


def last_words(directory: Path, name: str) -> str:
    """The last line of a node's log that is not empty."""
    log = file_of(stem(directory, name), ".log")
    lines = [line.strip() for line in log.read_text("utf-8", errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")


def _reported(cluster: Cluster, directory: Path) -> NodeLost | None:
    """What the scheduler, or else the first other node that knows, says of the loss."""
    for node in cluster.nodes:
        for note in Reader(stem(directory, node.name)).new():
            lost = note.get("end", {}).get("lost")
            if lost:
                return NodeLost(*lost)
    return None
