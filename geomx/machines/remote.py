"""The nodes of a run on many machines: an agent for each, supervised like local processes."""

from __future__ import annotations

import secrets
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from geomx.cluster import NodeSpec
from geomx.errors import GeomxError, NodeLost
from geomx.live import access
from geomx.live.diagnosis import Unjoined, Unleft, culprit
from geomx.live.exit_status import DONE
from geomx.live.relay import Patience
from geomx.live.restarts import Joins, Restarts
from geomx.live.spec import Spec
from geomx.machines.frames import Opening
from geomx.machines.line import Line, Tell
from geomx.terminal.log import is_json, text_of

NOTICE_S = 2.0  # after the first failure: time for the other nodes to notice it themselves
POLITE_S = 6.0  # agents take up to four seconds to end their nodes
KILLED_S = 5.0
POLL_S = 0.05


class RemoteJob:
    """The nodes of one run on many machines. Use as a context manager, like `geomx.live.job.Job`.

    Args:
        spec: The experiment.
        directory: Directory of the run; logs and notes go to its folder ``nodes``.
        argv: Returns the command that reaches the agent of a node.
        opening: Returns the fields of a node's `Opening` that depend on its machine.
        tell: Called with a node's name and each line of its log.
        command: Command that workers run instead of the workload of `spec`: a training script.
    """

    def __init__(
        self,
        spec: Spec,
        directory: Path,
        argv: Callable[[NodeSpec], Sequence[str]],
        opening: Callable[[NodeSpec], dict[str, Any]],
        tell: Tell,
        command: Sequence[str] = (),
    ) -> None:
        self.spec = spec
        self.directory = directory
        self._argv = argv
        self._opening = opening
        self._tell = tell
        self._token = access.new_token()
        self._lines: list[Line] = []
        self.failed_s: float | None = None
        self._ended: dict[str, int] = {}  # exit status by node, in the order in which they ended
        self._address = ""  # of the scheduler
        self._patience = Patience(spec.runtime.failure_timeout_s)
        self._unjoined = Unjoined(spec.cluster, directory, command)
        self._unleft = Unleft(directory, command)
        self._restarts = Restarts(spec, directory, elsewhere=True)
        self._journals = secrets.token_hex(16)  # folder of this run's journals on each machine
        self._joins = Joins(spec, directory)
        self._replaced: list[Line] = []  # of processes that have ended, and whose nodes go on

    def __enter__(self) -> RemoteJob:
        """Connect to every machine.

        Raises:
            NodeLost: A command could not be started.
        """
        (self.directory / "nodes").mkdir(parents=True, exist_ok=True)
        try:
            for node in self.spec.cluster.nodes:  # the scheduler comes first
                if node.id not in self._joins.late:
                    self._connect(node)
            self._open(self._lines[0])
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all nodes that are still running."""
        self.end()

    @property
    def gone(self) -> set[str]:
        """Names of the nodes that no process is, or will be."""
        return self._restarts.gone

    def poll(self) -> bool:
        """Process reports, and return whether any node is still running.

        Raises:
            NodeLost: A node died or lost another, or its connection broke; names the first one.
            GeomxError: Data of a node could not be written, for example because the disk is full.
        """
        if not self._address and self._lines[0].address:
            self._address = self._lines[0].address
            self._joins.announce(self._address)
            for line in [line for line in self._lines[1:] if line.status is None]:
                self._open(line)
        self._collect()
        for line in self._lines:
            if line.refused:
                raise GeomxError(line.refused)
        for node in (*self._restarts.due(), *self._joins.due()):
            self._restarts.begins(node.name)
            self._connect(node, again=True)
            if self._address:  # otherwise when the scheduler has reported it, with all others
                self._open(self._lines[-1])
        silent = [line for line in self._lines if line.awaited]
        if silent:
            self._patience.waits(
                "the launcher",
                lambda: (
                    f"{len(silent)} agents to answer; the first is that of "
                    f"{silent[0].node.name}, reached by {silent[0].way}"
                ),
            )
        if any(status != DONE for status in self._ended.values()):
            self.failed_s = time.monotonic()
            self._wait(NOTICE_S)
            raise culprit(self.spec.cluster, self.directory, self._ended)
        # Agents end all processes of their command.
        self._unjoined.check(self._ended, lambda name: False)
        if self._ended.get(self.spec.cluster.scheduler.name) != DONE:
            workers = self.spec.cluster.workers
            for lost in self._unleft.find(workers, self._ended, lambda name: False):
                if not self._restarts.continues_without(lost.name):
                    self.failed_s = time.monotonic()
                    raise lost
        return self._restarts.pending or any(line.status is None for line in self._lines)

    def end(self) -> None:
        """End every node: ask, wait, and leave unreachable ones to their agents."""
        try:
            for line in self._lines:
                line.hang_up()
            self._wait(POLITE_S)
        finally:  # also on a second Ctrl-C
            for line in self._lines:
                if line.status is None:
                    line.kill()
            self._wait(KILLED_S)

    def _connect(self, node: NodeSpec, again: bool = False) -> None:
        """Start the command that reaches the agent of a node; its line is the last."""
        argv = list(self._argv(node))
        stands_by = self.spec.cluster.stood_by(node) if node.role == "standby" else None
        try:
            self._lines.append(Line(node, argv, self.directory, self._tell, again, stands_by))
        except OSError as error:
            raise NodeLost(node.name, f"{argv[0]}: {error.strerror}") from error

    def _open(self, line: Line) -> None:
        node = line.node
        again = self._restarts.again(node.name) and self._restarts.journal(node) is None
        about = self._opening(node) | {"again": again}
        if node.role == "scheduler":
            about["experiment"] = self.spec.to_json()
        else:
            about["scheduler"] = self._address
        if node.role == "standby":
            about["stands_by"] = self.spec.cluster.stood_by(node).name
        if self._restarts.journal(node) is not None:
            about["journals"] = self._journals
        line.open(Opening(name=node.name, id=node.id, token=self._token, **about))

    def _collect(self) -> None:
        """Take note of nodes that have ended; those that continue get another process."""
        scheduler = self.spec.cluster.scheduler.name
        over = any(line.node.name == scheduler and line.status == DONE for line in self._lines)
        for line in [line for line in self._lines if line.status is not None]:
            name, status = line.node.name, line.status
            if status is None or name in self._ended or line in self._replaced:
                continue
            spare = over and self._restarts.spare(name, status)
            if spare or (not line.refused and self._restarts.take(name, status)):
                self._replaced.append(line)
            else:
                self._ended[name] = status
        if over:
            self._restarts.cancel()
            self._joins.cancel()
            for line in self._lines:
                if line.status is None and self._restarts.idle(line.node.name):
                    line.hang_up()

    def _wait(self, seconds: float) -> None:
        """Wait until all have ended, which nothing replaces any more, or time is up."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(line.status is None for line in self._lines):
            time.sleep(POLL_S)
        for line in self._lines:
            if line.status is not None and line not in self._replaced:
                self._ended.setdefault(line.node.name, line.status)


def to_terminal(width: int) -> Tell:
    """Return a function that prints lines of logs, with the node's name in a column of `width`.

    Lines in JSON (`geomx.terminal.log`) stay as they are: they have the name.
    """
    lock = threading.Lock()

    def tell(name: str, text: str) -> None:
        named = is_json() and text_of(text) is not None
        with lock:
            print(text if named else f"{name:<{width}} | {text}", file=sys.stderr, flush=True)

    return tell
