"""``geomx node``: start one node of a run on this machine, watch over it, tell what it does.

Every launcher runs this one command. By hand, or by a launcher that only starts processes, the node
is named by its role and place, and its log goes to the terminal:

    geomx node --role scheduler --job job.yaml --host 10.0.0.1 --port 9000
    geomx node --role worker --party beijing --index 0 --scheduler 10.0.0.1:9000 --host 10.0.1.1

They may be started in any order. With ``--attached`` it is told by its launcher on standard input
what to be, and tells in turn what happens (`geomx.machines.frames`). It is a process of its own
beside the node's, so that it can end a node that hangs, and so that the end of its input ends
everything that the node started.
"""

from __future__ import annotations

import base64
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from geomx.live.exit_status import INTERRUPTED
from geomx.live.journal import path as file_of
from geomx.live.journal import stem
from geomx.live.lifetime import Tied
from geomx.machines.frames import ELSEWHERE, PIECE_BYTES, SILENCE_S, Opening, Voice

OPENING_S = 600.0
"""How long a launcher may take to say what the node is: the scheduler comes first."""

POLITE_S = 2.0  # after asking the node to end, until it is killed
KILLED_S = 2.0
TICK_S = 0.1
CHUNK = 64 * 1024


def node_words(
    name: str,
    id: int | None,
    host: str,
    notes: Path,
    *,
    experiment: Path | None = None,
    scheduler: str = "",
    patience_s: float | None = None,
) -> list[str]:
    """The command of a node's own process, a child of this one."""
    role = ["--experiment", str(experiment)] if experiment else ["--scheduler", scheduler]
    number = [] if id is None else ["--id", str(id)]
    patience = [] if patience_s is None else ["--patience", str(patience_s)]
    return [
        sys.executable, "-P", "-m", "geomx.live.node", *role, "--name", name, *number,
        "--host", host, "--notes", str(notes), "--parent", str(os.getpid()), *patience,
    ]  # fmt: skip


def tethered(command: Sequence[str]) -> list[str]:
    """Any command, as a child that ends with this process."""
    return [sys.executable, "-P", "-m", "geomx.live.lifetime", str(os.getpid()), *command]


def script_env(name: str, id: int | None, host: str, scheduler: str) -> dict[str, str]:
    """What tells a training script which worker it is."""
    env = {"GEOMX_SCHEDULER": scheduler, "GEOMX_NAME": name, "GEOMX_HOST": host}
    return env if id is None else {**env, "GEOMX_ID": str(id)}


def by_hand(words: Sequence[str], env: dict[str, str]) -> int:
    """Run a node whose log goes to the terminal. Returns the exit status."""
    child = Child(words, env, output="terminal")

    def leave(number: int, frame: object) -> None:
        child.end()
        os._exit(INTERRUPTED)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, leave)
    status = child.process.wait()
    child.sweep()
    return status if status >= 0 else 128 - status


class Child:
    """The node's process, and all that it starts."""

    def __init__(
        self,
        words: Sequence[str],
        env: dict[str, str],
        directory: str = "",
        output: Literal["apart", "merged", "terminal"] = "apart",
    ) -> None:
        errors = {"apart": subprocess.PIPE, "merged": subprocess.STDOUT, "terminal": None}
        self.process = Tied(
            words,
            env,
            stdout=None if output == "terminal" else subprocess.PIPE,
            stderr=errors[output],
            cwd=directory or None,
        )

    def end(self) -> None:
        """Ask it to end, wait, kill it with all its children."""
        self.process.signal_all(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(POLITE_S)
        self.sweep()

    def sweep(self) -> None:
        """Kill what is left of it."""
        self.process.signal_all(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(KILLED_S)


def attached() -> int:
    """Be the node that the launcher names on standard input. Returns the exit status."""
    launcher = _Lines(sys.stdin.fileno())
    deadline = time.monotonic() + OPENING_S
    lines: list[str] = []
    while not lines:
        wait_s = max(0.0, deadline - time.monotonic())
        if launcher.closed or not select.select([launcher.number], [], [], wait_s)[0]:
            return INTERRUPTED  # the launcher ended before it began
        lines = list(launcher.take())
    opening = Opening.read(lines[0])
    with tempfile.TemporaryDirectory(prefix="geomx-") as folder:
        return _Attached(opening, Path(folder), launcher).run()


class _Attached:
    """One node at the end of a launcher's line."""

    def __init__(self, opening: Opening, folder: Path, launcher: _Lines) -> None:
        self._opening = opening
        self._launcher = launcher
        self._folder = folder
        self._voice = Voice(sys.stdout.buffer)
        self._stem = stem(folder, opening.name)
        self._stem.parent.mkdir()
        self._told = 0  # bytes of the notes
        self._beats: deque[tuple[int, float]] = deque()  # answers that are due
        self._gone = threading.Lock()
        words, env = self._plan(folder)
        self._child = Child(words, env, opening.directory, "merged" if opening.command else "apart")

    def run(self) -> int:
        """Tell of the node until it ends."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._leave())
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            self._tell()
            status = self._child.process.wait()
            self._tell_files()
            self._voice.say(end=status)
        except OSError:
            self._leave()
        return status if 0 <= status < 128 else 1

    def _plan(self, folder: Path) -> tuple[list[str], dict[str, str]]:
        opening = self._opening
        host = os.environ.get("GEOMX_HOST", "") if opening.host == ELSEWHERE else opening.host
        env = {**opening.env, "GEOMX_TOKEN": opening.token, "PYTHONUNBUFFERED": "1"}
        if opening.tls:
            from geomx.live.access import TLS, write_files

            env[TLS] = str(write_files(folder / "tls", opening.tls))
        if opening.command:
            env |= script_env(opening.name, opening.id, host, opening.scheduler)
            return tethered(opening.command), env
        experiment = None
        if opening.experiment:
            experiment = folder / "experiment.json"
            experiment.write_text(opening.experiment, encoding="utf-8")
        words = node_words(
            opening.name, opening.id, host, self._stem,
            experiment=experiment, scheduler=opening.scheduler,
        )  # fmt: skip
        return words, env

    # ---- telling ----

    def _tell(self) -> None:
        """Pass on what the node says, until it has ended and all is said."""
        process = self._child.process
        streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
        lines = [_Lines(stream.fileno()) for stream in streams]
        speaks = bool(self._opening.experiment)  # the scheduler's first line is its address
        ended, more = False, True
        while more or not ended:
            if not ended and process.poll() is not None:
                ended = True
                self._child.sweep()  # whatever it started and left
            open_lines = {each.number: each for each in lines if not each.closed}
            wait_s = 0.0 if ended else TICK_S
            ready = select.select(list(open_lines), [], [], wait_s)[0] if open_lines else []
            if not open_lines and not ended:
                time.sleep(TICK_S)
            for number in ready:
                for text in open_lines[number].take():
                    if speaks and number == lines[0].number:
                        self._voice.say(listening=text)
                        speaks = False
                    else:
                        self._voice.say(log=text)
            more = bool(ready)
            while self._beats:
                beat, heard_s = self._beats.popleft()
                self._voice.say(beat=beat, heard=heard_s, said=time.monotonic())
            self._tell_notes()

    def _tell_notes(self) -> None:
        file = file_of(self._stem, ".jsonl")
        if not file.exists():
            return
        with file.open("rb") as notes:
            notes.seek(self._told)
            data = notes.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._told += len(complete)
        for line in complete.splitlines():
            self._voice.say(note=line.decode())

    def _tell_files(self) -> None:
        """The final parameters, where this node left any."""
        file = file_of(self._stem, ".npz")
        if not file.exists():
            return
        with file.open("rb") as content:
            for piece in iter(lambda: content.read(PIECE_BYTES), b""):
                self._voice.say(file=".npz", data=base64.b64encode(piece).decode())

    # ---- the launcher ----

    def _listen(self) -> None:
        """A thread: hear the launcher's beats, and end everything when there are none."""
        while not self._launcher.closed:
            if not select.select([self._launcher.number], [], [], SILENCE_S)[0]:
                break
            heard_s = time.monotonic()
            for line in self._launcher.take():
                word, _, count = line.partition(" ")
                if word == "beat" and count.isdigit():
                    self._beats.append((int(count), heard_s))
        self._leave()

    def _leave(self) -> None:
        """End the node and this process. From any thread; standard output may be stuck."""
        if self._gone.acquire(blocking=False):
            self._child.end()
            shutil.rmtree(self._folder, ignore_errors=True)
            os._exit(INTERRUPTED)
        threading.Event().wait()  # somebody is at it


class _Lines:
    """Cuts what comes from a descriptor into lines."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.closed = False
        self._left = b""

    def take(self) -> Iterator[str]:
        """What has become complete; does not wait if the descriptor is readable."""
        data = os.read(self.number, CHUNK)
        self.closed = not data
        *lines, self._left = (self._left + data).split(b"\n")
        if self.closed and self._left:
            lines.append(self._left)
        for line in lines:
            yield line.decode(errors="replace")
