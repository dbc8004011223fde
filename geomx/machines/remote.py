"""The launcher's end: a line to an agent for every node, watched like processes of this machine.

Whatever an agent tells is written where a run on one machine would have left it: logs, notes and
final parameters below ``nodes``. Times are told by this machine's clock: every beat and its answer
say how far the other's is off, and the answer that took least counts.
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
from typing import IO, Any

from geomx.cluster import NodeSpec
from geomx.errors import GeomxError, NodeLost, refused_file
from geomx.live.diagnosis import Unjoined, culprit
from geomx.live.exit_status import DONE
from geomx.live.journal import path as file_of
from geomx.live.journal import stem
from geomx.live.relay import Patience
from geomx.live.spec import Spec
from geomx.machines.frames import BEAT_S, Opening, heard
from geomx.results.files import naming

NOTICE_S = 2.0  # after the first death: until the others should have noticed by themselves
POLITE_S = 6.0  # agents take up to four seconds to end their nodes
KILLED_S = 5.0
POLL_S = 0.05
BROKEN = 255
"""How a node ended of which nothing is known but that its line broke."""

Tell = Callable[[str, str], None]


class Line:
    """One agent, as seen from here.

    Args:
        node: Which node it has.
        words: What reaches it.
        directory: Of the run.
        tell: Called with the node's name and each line of its log.
    """

    def __init__(self, node: NodeSpec, words: Sequence[str], directory: Path, tell: Tell) -> None:
        self.node = node
        self.status: int | None = None  # once it has ended
        self.address = ""
        self._words = words
        self._stem = stem(directory, node.name)
        self._tell = tell
        self._opening: bytes | None = None
        self._opened = threading.Event()
        self._hung_up = False
        self._sent_s: dict[int, float] = {}
        self._ahead_s = 0.0  # of the other's clock
        self._shortest_s = float("inf")
        self.heard = False  # anything, of the agent
        self.refused = ""  # why what it told could not be kept
        self._said = ""  # last, by what reaches the agent
        self._lock = threading.Lock()
        self._log = file_of(self._stem, ".log").open("w", encoding="utf-8", buffering=1)
        pipe = subprocess.PIPE
        # A group of its own: Ctrl-C reaches the launcher alone, which ends the others in order.
        self._process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        self._errors = threading.Thread(target=self._hear_errors, daemon=True)
        self._errors.start()
        for each in (self._hear, self._beat):
            threading.Thread(target=each, daemon=True).start()

    def open(self, opening: Opening) -> None:
        """Say what the node is."""
        self._opening = opening.line()
        self._opened.set()

    @property
    def opened(self) -> bool:
        """Whether the agent has been told what it is, and so has something to say."""
        return self._opening is not None

    @property
    def way(self) -> str:
        """What reaches the agent, and what that last said."""
        words = shlex.join(self._words[:8]) + (" ..." if len(self._words) > 8 else "")
        return f"`{words}`" + (f", which said: {self._said}" if self._said else "")

    def hang_up(self) -> None:
        """Tell the agent to end its node; does not wait."""
        self._hung_up = True
        self._opened.set()

    def kill(self) -> None:
        """End what reaches the agent; it will notice."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    # ---- threads ----

    def _beat(self) -> None:
        assert self._process.stdin is not None
        count = 0
        # Closing writes what is left, so it meets an ended reader as well.
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
        """Keep what the agent tells; a file that cannot be written ends the node."""
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
            file_of(self._stem, ".jsonl").open("w", encoding="utf-8", buffering=1) as notes,
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
        self._errors.join(1.0)  # what the line itself had to say
        if status is None and not self._hung_up:
            how = f"exit status {ended}" if ended >= 0 else signal.Signals(-ended).name
            words = f"{self._said}; " if self._said else ""
            self._say(f"{words}the line to it broke ({self._words[0]}: {how})")
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
        directory: Logs and notes go to its folder ``nodes``.
        words: What reaches the agent of a node.
        opening: What to tell it; token, experiment and scheduler are filled in.
        tell: Called with a node's name and each line of its log.
        command: What workers run instead of the workload of `spec`: a training script.
    """

    def __init__(
        self,
        spec: Spec,
        directory: Path,
        words: Callable[[NodeSpec], Sequence[str]],
        opening: Callable[[NodeSpec], dict[str, Any]],
        tell: Tell,
        command: Sequence[str] = (),
    ) -> None:
        self.spec = spec
        self.directory = directory
        self._words = words
        self._opening = opening
        self._tell = tell
        self._token = secrets.token_hex(16)
        self._lines: list[Line] = []
        self._ended: dict[str, int] = {}  # exit status by node, in the order in which they ended
        self._introduced = False
        self._patience = Patience(spec.runtime.failure_timeout_s)
        self._unjoined = Unjoined(spec.cluster, directory, command)

    def __enter__(self) -> RemoteJob:
        """Reach every machine."""
        (self.directory / "nodes").mkdir(parents=True, exist_ok=True)
        try:
            for node in self.spec.cluster.nodes:  # the scheduler comes first
                words = list(self._words(node))
                try:
                    self._lines.append(Line(node, words, self.directory, self._tell))
                except OSError as error:
                    raise NodeLost(node.name, f"{words[0]}: {error.strerror}") from error
            self._open(self._lines[0], experiment=self.spec.to_json())
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
        """End what is still running."""
        self.end()

    def poll(self) -> bool:
        """Whether anything is still running.

        Raises:
            NodeLost: A node died or lost another, or its line broke; says who was the first.
            GeomxError: What a node told could not be kept: the disk is full.
        """
        scheduler = self._lines[0]
        if not self._introduced and scheduler.address:
            self._introduced = True
            for line in self._lines[1:]:
                self._open(line, scheduler=scheduler.address)
        self._collect()
        for line in self._lines:
            if line.refused:
                raise GeomxError(line.refused)
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
        # An agent ends whatever its command has left, so nothing is.
        self._unjoined.check(self._ended, lambda name: False)
        return len(self._ended) < len(self._lines)

    def end(self) -> None:
        """End every node: ask, wait, and leave those that cannot be reached to their agents."""
        try:
            for line in self._lines:
                line.hang_up()
            self._wait(POLITE_S)
        finally:  # also when Ctrl-C comes again
            for line in self._lines:
                if line.status is None:
                    line.kill()
            self._wait(KILLED_S)

    def _open(self, line: Line, **more: str) -> None:
        node = line.node
        about = {**self._opening(node), **more}
        line.open(Opening(name=node.name, id=node.id, token=self._token, **about))

    def _collect(self) -> None:
        for line in self._lines:
            if line.status is not None:
                self._ended.setdefault(line.node.name, line.status)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while len(self._ended) < len(self._lines) and time.monotonic() < deadline:
            self._collect()
            time.sleep(POLL_S)


def to_terminal(width: int) -> Tell:
    """Shows lines of logs with the node's name in front, `width` wide."""
    lock = threading.Lock()

    def tell(name: str, text: str) -> None:
        with lock:
            print(f"{name:<{width}} | {text}", file=sys.stderr, flush=True)

    return tell
