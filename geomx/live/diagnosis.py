"""Finds the node of a live run that failed first, and the reason, from the files of all nodes."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from geomx import _core
from geomx.cluster import Cluster, NodeSpec
from geomx.errors import NodeLost
from geomx.live.exit_status import BROKEN, DONE, LOST, signal_name
from geomx.live.files import Reader, has_left, stem
from geomx.live.files import path as file_of
from geomx.results.files import DELETED
from geomx.terminal.log import text_of

LeavesAny = Callable[[str], bool]
"""Returns whether processes of a node's command are still running."""

TAIL_LINES = 15
"""Lines of the log of the first failed node that are shown: the end of a traceback, and context."""

HOW_TO_JOIN = (
    "a script joins when it creates its store or its optimizer (geomx.kv.create, geomx.mxnet, "
    "geomx.torch)"
)

HOW_TO_LEAVE = (
    "a script that ends by os._exit must close its store before (geomx.kv.create().close())"
)

_BEGINNINGS = {"again", "recovered", "resumes", "started"}
"""Kinds of notes of which each process of a node writes some before others."""

JOIN_S = 1.0
"""Time, after a command has ended without joining, until its remaining processes are searched."""


def culprit(
    cluster: Cluster, directory: Path, ended: Mapping[str, int], terminal: str = ""
) -> NodeLost:
    """Return the node that failed first, and why, with the last lines of its log as notes.

    The scheduler learns of the first loss before its consequences, so its report takes precedence.
    Without one, the order in which processes ended decides, and a node's own failure takes
    precedence over the loss of another node.

    Args:
        cluster: The nodes of the run.
        directory: Directory of the run.
        ended: Exit status by node, in the order of their ends; at least one is not `DONE`.
        terminal: The node whose output went to the terminal and not to its log.

    Returns:
        The error to raise.
    """
    failed = {name: status for name, status in ended.items() if status != DONE}
    reported = _reported(cluster, directory, ended)
    own = [name for name, status in failed.items() if not lost_another(directory, name, status)]
    killed = [name for name in own if failed[name] < 0]
    if reported is None:
        reported = NodeLost(next(iter((*killed, *own, *failed))), "")
    name, reason = reported.name, reported.reason
    if name in own or not reason:
        nodes = file_of(stem(directory, name), ".log").parent
        words = _why(directory, name) if nodes.is_dir() else f"{nodes} {DELETED}"
        reason = _how_it_ended(failed[name], words, name == terminal)
    return with_log(NodeLost(name, reason), directory)


def lost_another(directory: Path, name: str, status: int) -> bool:
    """Return whether a process ended because another node was lost, or took its node for lost.

    Then its notes say so, too. The exit status alone may be a training script's own. A standby that
    has taken its place notes its own end there, which may be earlier or later.

    Args:
        directory: Directory of the run.
        name: Name of the node.
        status: Exit status of the process.
    """
    if status != LOST:
        return False
    lost = False
    for note in Reader(stem(directory, name)).new():
        if "again" in note:
            lost = False
        elif note.get("end", {}).get("status") == "lost":
            lost = True
    return lost


def at_fault(name: str, lost: NodeLost) -> bool:
    """Return whether the process of node `name` itself caused that it was lost.

    It did not if others took it for lost although it did nothing wrong.
    """
    why = lost.reason.removeprefix(_core.TAKEN_FOR_LOST)
    blameless = why != lost.reason and not why.startswith(_core.BROKE_PROTOCOL)
    return lost.name == name and not blameless


def _how_it_ended(status: int, words: str, shown: bool) -> str:
    if status < 0:
        return f"killed by {signal_name(status)}"
    if status == BROKEN:
        return words
    said = "its output is above" if shown and not words else words
    return f"exit status {status}" + (f": {said}" if said else "")


def with_log(lost: NodeLost, directory: Path) -> NodeLost:
    """Return the error with the last lines of the node's log, and the log's path, as notes.

    There are no notes if the terminal has already shown everything that the log contains.
    """
    log = file_of(stem(directory, lost.name), ".log")
    lines = _lines(log)[-TAIL_LINES:]
    if any(text_of(line) is None for line in lines):
        lost.add_note("\n".join([f"{lost.name}: the end of {log}:", *(f"  {x}" for x in lines)]))
    return lost


def last_words(directory: Path, name: str) -> str:
    """Return the last line of a node's log that is not empty."""
    last = next((line.strip() for line in _lines(file_of(stem(directory, name), ".log"))[-1:]), "")
    return text_of(last) or last


def _why(directory: Path, name: str) -> str:
    """Return the error that a node has noted, or else the last line of its log.

    An error may have several lines, of which the first says what is wrong. There is no log of the
    worker whose output went to the terminal.
    """
    reason = ""
    for note in Reader(stem(directory, name)).new():
        reason = note["end"].get("reason", "") if "end" in note else reason
    words = last_words(directory, name)
    return reason if reason and words else words


def _lines(log: Path) -> list[str]:
    """Return the lines of a log that are not empty; none if there is no log."""
    if not log.exists():
        return []
    text = log.read_text("utf-8", errors="replace")
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _reported(cluster: Cluster, directory: Path, ended: Mapping[str, int]) -> NodeLost | None:
    """Return the loss that the scheduler, or else the first other node with a report, reported.

    What the run survived does not count: reports of processes that others have replaced, and of
    nodes without which it went on, which are not among those that have ended now.
    """
    for node in cluster.nodes:
        if node.role != "scheduler" and node.name not in ended:
            continue
        lost: list[str] = []
        for note in Reader(stem(directory, node.name)).new():
            if "end" in note:
                lost = note["end"].get("lost", [])
            elif not note.keys().isdisjoint(_BEGINNINGS):
                lost = []
        if lost:
            return NodeLost(*lost)
    return None


class Unjoined:
    """Detects that a worker's command has ended without joining, so that the run can never start.

    A command may start processes (a launcher of scripts, a daemon) that join in its place; it has
    ended when none of them is left.

    Args:
        cluster: The nodes of the experiment.
        directory: Directory of the run.
        command: The workers' command; empty for a workload, whose workers fail if they do not join.
    """

    def __init__(self, cluster: Cluster, directory: Path, command: Sequence[str]) -> None:
        self._cluster = cluster
        self._directory = directory
        self._command = shlex.join(command)
        self._scheduler = Reader(stem(directory, cluster.scheduler.name))
        self._began = not command
        self._since: float | None = None

    def check(self, ended: Mapping[str, int], leaves_any: LeavesAny) -> None:
        """Check once; fast as long as no worker has ended.

        Args:
            ended: Exit status by node.
            leaves_any: Returns whether processes of a node's command are still running.

        Raises:
            NodeLost: The command of a worker has ended without joining.
        """
        if self._began:
            return
        gone = [node.name for node in self._cluster.workers if ended.get(node.name) == DONE]
        if not gone:
            return
        self._since = self._since or time.monotonic()
        self._began = any("started" in note for note in self._scheduler.new())
        if self._began or time.monotonic() - self._since < JOIN_S:
            return
        gone = [name for name in gone if not leaves_any(name)]
        if not gone:
            return
        name, more = gone[-1], len(gone) - 1  # the last, as the first worker writes no log
        others = f" (so did {more} other{'s' if more > 1 else ''})" if more else ""
        log = file_of(stem(self._directory, name), ".log")
        reason = (
            f"its command, {self._command}, ended with exit status 0 without joining the run"
            f"{others}: {HOW_TO_JOIN}; its log is {log}"
        )
        raise with_log(NodeLost(name, reason), self._directory)


class Unleft:
    """Detects that a worker's command has ended with status 0, while its node has not left the run.

    Its process ended by ``os._exit``, or was killed without the command that had started it. Others
    take the worker for lost. As in `Unjoined`, a command has ended when none of its processes is
    left.

    Args:
        directory: Directory of the run.
        command: The workers' command; empty for a workload, whose workers always leave.
    """

    def __init__(self, directory: Path, command: Sequence[str]) -> None:
        self._directory = directory
        self._command = shlex.join(command)
        self._known: set[str] = set()  # those that have left, and those that were found
        self._since: dict[str, float] = {}

    def find(
        self, workers: Iterable[NodeSpec], ended: Mapping[str, int], leaves_any: LeavesAny
    ) -> list[NodeLost]:
        """Return the losses of such workers; of each one once.

        Args:
            workers: All workers.
            ended: Exit status by node.
            leaves_any: Returns whether processes of a node's command are still running.
        """
        done = [node.name for node in workers if ended.get(node.name) == DONE and self._command]
        lost = []
        for name in done:
            since = self._since.setdefault(name, time.monotonic())
            if name in self._known or time.monotonic() - since < JOIN_S:
                continue
            self._since[name] = time.monotonic()
            left = has_left(stem(self._directory, name))
            if not left and leaves_any(name):
                continue
            self._known.add(name)
            if not left:
                lost.append(with_log(NodeLost(name, self._reason), self._directory))
        return lost

    @property
    def _reason(self) -> str:
        ended = f"its command, {self._command}, ended with exit status 0"
        return f"{ended} without leaving the run: {HOW_TO_LEAVE}"
