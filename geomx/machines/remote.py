"""The launcher's side: a connection to the agent of every node, supervised like local processes.

Everything that an agent reports is written as in a run on one machine: logs, notes and final
parameters below ``nodes``. Times are converted to this machine's clock: every beat and its answer
give an estimate of the offset, and the one with the shortest round trip is used.
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

from geomx.cluster import NodeSpec
from geomx.errors import GeomxError, NodeLost, refused_file
from geomx.live import access
from geomx.live.diagnosis import Unjoined, culprit
from geomx.live.exit_status import BROKEN, DONE
from geomx.live.journal import path as file_of
from geomx.live.journal import stem
from geomx.live.relay import Patience
from geomx.live.restarts import Joins, Restarts
from geomx.live.spec import Spec
from geomx.machines.frames import BEAT_S, Opening, heard
from geomx.results.files import naming

NOTICE_S = 2.0  # after the first failure: time for the other nodes to notice it themselves
POLITE_S = 6.0  # agents take up to four seconds to end their nodes
KILLED_S = 5.0
POLL_S = 0.05
Tell = Callable[[str, str], None]


class Line:
    """One agent, as seen by the launcher.

    Args:
        node: Its node.
        argv: Command that reaches it.
        directory: Directory of the run.
        tell: Called with the node's name and each line of its log.
        again: Whether an earlier agent of this node has written to its files.

    Raises:
        OSError: The command cannot be started.
    """

    def __init__(
        self,
        node: NodeSpec,
        argv: Sequence[str],
        directory: Path,
        tell: Tell,
        again: bool = False,
    ) -> None:
        self.node = node
        self._mode: Literal["a", "w"] = "a" if again else "w"
        self.status: int | None = None  # once it has ended
        self.address = ""
        self._argv = argv
        self._stem = stem(directory, node.name)
        self._tell = tell
        self._opening: bytes | None = None
        self._opened = threading.Event()
        self._hung_up = False
        self._sent_s: dict[int, float] = {}
        self._ahead_s = 0.0  # offset of the other clock
        self._shortest_s = float("inf")
        self.heard = False  # whether the agent has sent anything
        self.refused = ""  # why its data could not be written
        self._said = ""  # last line on standard error
        self._lock = threading.Lock()
        log = file_of(self._stem, ".log")
        self._log = log.open(self._mode, encoding="utf-8", buffering=1)
        pipe = subprocess.PIPE
        # A session of its own: Ctrl-C reaches the launcher alone, which ends the others in order.
        self._process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        self._errors = threading.Thread(target=self._hear_errors, daemon=True)
        self._errors.start()
        for each in (self._hear, self._beat):
            threading.Thread(target=each, daemon=True).start()

    def open(self, opening: Opening) -> None:
        """Send the description of the node, `opening`."""
        self._opening = opening.line()
        self._opened.set()

    @property
    def opened(self) -> bool:
        """Whether the agent has received its description, so that it must answer."""
        return self._opening is not None

    @property
    def way(self) -> str:
        """The command that reaches the agent, with its last line on standard error."""
        argv = shlex.join(self._argv[:8]) + (" ..." if len(self._argv) > 8 else "")
        return f"`{argv}`" + (f", which said: {self._said}" if self._said else "")

    def hang_up(self) -> None:
        """Ask the agent to end its node; does not wait."""
        self._hung_up = True
        self._opened.set()

    def kill(self) -> None:
        """Kill the process that reaches the agent, which then notices the end of its input."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    # ---- threads ----

    def _beat(self) -> None:
        assert self._process.stdin is not None
        count = 0
        # Closing flushes, so it may raise as well if the reader has ended.
        with contextlib.suppress(OSError), self._process.stdin as out:
            self._opened.wait()
            if self._opening is not None:
                out.write(self._opening)
            while not self._hung_up and self.status is None:
                count += 1
                self._sent_s[count] = time.monotonic()
                out.write(f"beat {count}\n".encode())
                out.flush()
                time.sleep(BEAT_S)

    def _hear(self) -> None:
        """Store what the agent sends; end the node if a file cannot be written."""
        try:
            self._keep()
        except OSError as error:
            self.refused = refused_file(error) or str(error)
            self.kill()
            self.status = BROKEN

    def _keep(self) -> None:
        assert self._process.stdout is not None
        status: int | None = None
        with (
            contextlib.ExitStack() as files,
            file_of(self._stem, ".jsonl").open(self._mode, encoding="utf-8", buffering=1) as notes,
        ):
            kept: dict[str, IO[bytes]] = {}
            for line in self._process.stdout:
                self.heard = True
                frame = heard(line)
                if "note" in frame:
                    with naming(Path(notes.name)):
                        notes.write(self._on_this_clock(frame["note"]) + "\n")
                elif "file" in frame and frame["file"] == ".npz":
                    if ".npz" not in kept:
                        file = file_of(self._stem, ".npz").open("wb")
                        kept[".npz"] = files.enter_context(file)
                    kept[".npz"].write(base64.b64decode(frame["data"]))
                elif "beat" in frame:
                    self._compare(frame["beat"], frame["heard"], frame["said"])
                elif "listening" in frame:
                    self.address = str(frame["listening"])
                elif "end" in frame:
                    status = int(frame["end"])
                else:
                    self._say(str(frame.get("log", line.decode(errors="replace").strip())))
        ended = self._process.wait()
        self._errors.join(1.0)  # the last lines on standard error
        if status is None and not self._hung_up:
            how = f"exit status {ended}" if ended >= 0 else signal.Signals(-ended).name
            argv = f"{self._said}; " if self._said else ""
            self._say(f"{argv}the connection to it broke ({self._argv[0]}: {how})")
        self.status = BROKEN if status is None else status

    def _hear_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said = line.decode(errors="replace").rstrip("\r\n")
            self._say(self._said)

    def _say(self, text: str) -> None:
        with self._lock, naming(Path(self._log.name)):
            self._log.write(text + "\n")
        self._tell(self.node.name, text)

    # ---- clocks ----

    def _compare(self, beat: int, heard_s: float, said_s: float) -> None:
        now_s, sent_s = time.monotonic(), self._sent_s.pop(beat, None)
        if sent_s is None:
            return
        round_trip_s = (now_s - sent_s) - (said_s - heard_s)
        if round_trip_s < self._shortest_s:
            self._shortest_s = round_trip_s
            self._ahead_s = ((heard_s - sent_s) + (said_s - now_s)) / 2

    def _on_this_clock(self, note: str) -> str:
        if not note.startswith('{"started"'):
            return note
        return json.dumps({"started": json.loads(note)["started"] - self._ahead_s})


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
        self._ended: dict[str, int] = {}  # exit status by node, in the order in which they ended
        self._address = ""  # of the scheduler
        self._patience = Patience(spec.runtime.failure_timeout_s)
        self._unjoined = Unjoined(spec.cluster, directory, command)
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

    def poll(self) -> bool:
        """Process reports, and return whether any node is still running.

        Raises:
            NodeLost: A node died or lost another, or its connection broke; names the first one.
            GeomxError: Data of a node could not be written, for example because the disk is full.
        """
        if not self._address and self._lines[0].address:
            self._address = self._lines[0].address
            self._joins.announce(self._address)
            for line in self._lines[1:]:
                self._open(line)
        self._collect()
        for line in self._lines:
            if line.refused:
                raise GeomxError(line.refused)
        for node in (*self._restarts.due(), *self._joins.due()):
            self._restarts.begins(node.name)
            self._connect(node, again=True)
            self._open(self._lines[-1], again=self._restarts.journal(node) is None)
        silent = [line for line in self._lines if line.opened and not line.heard]
        if silent:
            self._patience.waits(
                "the launcher",
                lambda: (
                    f"{len(silent)} agents to answer; the first is that of "
                    f"{silent[0].node.name}, reached by {silent[0].way}"
                ),
            )
        if any(status != DONE for status in self._ended.values()):
            self._wait(NOTICE_S)
            raise culprit(self.spec.cluster, self.directory, self._ended)
        # Agents end all processes of their command.
        self._unjoined.check(self._ended, lambda name: False)
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
        try:
            self._lines.append(Line(node, argv, self.directory, self._tell, again))
        except OSError as error:
            raise NodeLost(node.name, f"{argv[0]}: {error.strerror}") from error

    def _open(self, line: Line, again: bool = False) -> None:
        node = line.node
        about = self._opening(node) | {"again": again}
        if node.role == "scheduler":
            about["experiment"] = self.spec.to_json()
        else:
            about["scheduler"] = self._address
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
            late = over and self._restarts.again(name)  # it came too late to take part
            if late or (not line.refused and self._restarts.take(name, status)):
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
    """Return a function that prints lines of logs, with the node's name in a column of `width`."""
    lock = threading.Lock()

    def tell(name: str, text: str) -> None:
        with lock:
            print(f"{name:<{width}} | {text}", file=sys.stderr, flush=True)

    return tell
