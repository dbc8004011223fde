"""The launcher's side of the connection to one agent (`geomx.machines.frames`).

What the agent reports is written as in a run on one machine: the log, notes and final parameters of
its node below ``nodes``. Times are converted to this machine's clock: every beat and its answer
give an estimate of the offset, and the one with the shortest round trip is used. Notes that contain
such times wait for the first good estimate.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shlex
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Literal

from geomx.cluster import NodeSpec
from geomx.errors import refused_file
from geomx.live.exit_status import BROKEN, signal_name
from geomx.live.files import Reader, members_noted, stem
from geomx.live.files import path as file_of
from geomx.machines.frames import BEAT_S, Opening, heard
from geomx.results.files import naming

Tell = Callable[[str, str], None]

_TIMES = ('{"started"', '{"recovered"')  # beginnings of notes that contain a time of the clock


class Line:
    """One agent, as seen by the launcher.

    Args:
        node: Its node.
        argv: Command that reaches it.
        directory: Directory of the run.
        tell: Called with the node's name and each line of its log.
        again: Whether an earlier agent of this node has written to its files.
        stands_by: Of a standby: its global server.

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
        stands_by: NodeSpec | None = None,
    ) -> None:
        self.node = node
        self._mode: Literal["a", "w"] = "a" if again else "w"
        self.status: int | None = None  # once it has ended
        self.address = ""
        self._argv = argv
        self._stem = stem(directory, node.name)
        self._notes = _Notes(self._stem)
        self._taken = _Notes(stem(directory, stands_by.name)) if stands_by else None
        self._tell = tell
        self._opening: bytes | None = None
        self._opened = threading.Event()
        self._hung_up = False
        self._sent_s: dict[int, float] = {}
        self._ahead_s = 0.0  # offset of the other clock
        self._shortest_s = float("inf")
        self._answered_s: float | None = None  # when the agent first answered a beat
        self._knows_clock = False  # whether it has answered one that was sent after that
        self._hurry = threading.Event()  # to the next beat
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
    def awaited(self) -> bool:
        """Whether the agent has received its description and must answer, but has not yet."""
        return self._opening is not None and not self.heard and self.status is None

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
                self._hurry.wait(BEAT_S)
                self._hurry.clear()

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
        file_of(self._stem, ".jsonl").open(self._mode).close()
        waiting: deque[tuple[_Notes, str]] = deque()
        with contextlib.ExitStack() as files:
            for notes in filter(None, (self._notes, self._taken)):
                files.callback(notes.close)
            kept: dict[str, IO[bytes]] = {}
            for line in self._process.stdout:
                self.heard = True
                frame = heard(line)
                if "note" in frame:
                    waiting.append((self._notes, frame["note"]))
                elif "taken" in frame and self._taken is not None:
                    waiting.append((self._taken, frame["taken"]))
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
                self._write(waiting, last=False)
            self._write(waiting, last=True)
        ended = self._process.wait()
        self._errors.join(1.0)  # the last lines on standard error
        if status is None and not self._hung_up:
            how = f"exit status {ended}" if ended >= 0 else signal_name(ended)
            argv = f"{self._said}; " if self._said else ""
            self._say(f"{argv}the connection to it broke ({self._argv[0]}: {how})")
        self.status = BROKEN if status is None else status

    def _write(self, waiting: deque[tuple[_Notes, str]], last: bool) -> None:
        """Write notes in order: all (`last`), or until one whose time cannot be converted yet."""
        while waiting and (last or self._knows_clock or not waiting[0][1].startswith(_TIMES)):
            notes, text = waiting.popleft()
            notes.write(self._on_this_clock(text))

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
        # What was sent before the agent began to answer has waited for it to begin.
        if self._answered_s is None:
            self._answered_s = now_s
            self._hurry.set()
        self._knows_clock = self._knows_clock or sent_s > self._answered_s
        round_trip_s = (now_s - sent_s) - (said_s - heard_s)
        if round_trip_s < self._shortest_s:
            self._shortest_s = round_trip_s
            self._ahead_s = ((heard_s - sent_s) + (said_s - now_s)) / 2

    def _on_this_clock(self, note: str) -> str:
        if not note.startswith(_TIMES):
            return note
        return json.dumps({what: at - self._ahead_s for what, at in json.loads(note).items()})


class _Notes:
    """Adds to the notes of a node what a process has noted on another machine.

    A process that takes another one's place repeats changes of members; what the file had before is
    not added again.

    Args:
        stem: Path of the node's files without suffix.
    """

    def __init__(self, stem: Path) -> None:
        self._stem, self._path = stem, file_of(stem, ".jsonl")
        self._file: IO[str] | None = None
        self._before: set[str] = set()  # changes of members

    def write(self, line: str) -> None:
        """Add a note, unless it is of a change that the file had before."""
        with naming(self._path):
            if self._file is None:
                self._before = members_noted(Reader(self._stem).new())
                self._file = self._path.open("a", encoding="utf-8", buffering=1)
            if line.startswith('{"member"') and members_noted([json.loads(line)]) <= self._before:
                return
            self._file.write(line + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
