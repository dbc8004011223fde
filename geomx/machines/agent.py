"""``geomx node``: starts one node of a run on this machine, supervises it, and reports on it.

All launchers run this command. By hand, or under a launcher that only starts processes, the node is
selected by role and position, and its log goes to the terminal:

    geomx node --role scheduler --job job.yaml --host 10.0.0.1 --port 9000
    geomx node --role worker --party beijing --index 0 --scheduler 10.0.0.1:9000 --host 10.0.1.1

Nodes may be started in any order. With ``--attached`` the launcher sends the node's description on
standard input, and the agent reports on standard output (`geomx.machines.frames`). The agent is a
process of its own beside the node's, so that it can end a node that hangs, and so that the end of
its input ends everything that the node started.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Literal

from geomx.errors import GeomxError
from geomx.live.access import TLS, write_files
from geomx.live.descriptors import readable
from geomx.live.exit_status import INTERRUPTED
from geomx.live.files import Reader, stem
from geomx.live.files import path as file_of
from geomx.live.lifetime import Tied
from geomx.machines.frames import ELSEWHERE, PIECE_BYTES, SILENCE_S, FrameWriter, Opening
from geomx.machines.lines import Lines, Output

OPENING_S = 600.0
"""Limit on the wait for the launcher's description of the node; the scheduler starts first."""

POLITE_S = 2.0  # from the request to end until the node is killed
KILLED_S = 2.0
TICK_S = 0.1

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def node_argv(
    name: str,
    id: int | None,
    host: str,
    notes: Path,
    *,
    experiment: Path | None = None,
    scheduler: str = "",
    patience_s: float | None = None,
    again: bool = False,
    stands_by: bool = False,
    journal: Path | None = None,
) -> list[str]:
    """Return the command of a node's own process, a child of this one.

    Args:
        name: Name of the node.
        id: Its id; None: assigned by the scheduler.
        host: Address that it listens on.
        notes: Stem of its files.
        experiment: File of the experiment, for the scheduler.
        scheduler: Address of the scheduler, for other nodes.
        patience_s: Limit on the wait for other nodes, in seconds; None: the default.
        again: Whether an earlier process of the node was lost.
        stands_by: Whether it is the standby of a global server.
        journal: Its journal; None: it keeps none.
    """
    role = ["--experiment", str(experiment)] if experiment else ["--scheduler", scheduler]
    number = [] if id is None else ["--id", str(id)]
    patience = [] if patience_s is None else ["--patience", str(patience_s)]
    return [
        sys.executable, "-P", "-m", "geomx.live", *role, "--name", name, *number,
        "--host", host, "--notes", str(notes), "--parent", str(os.getpid()), *patience,
        *(["--again"] if again else []), *(["--stands-by"] if stands_by else []),
        *(["--journal", str(journal)] if journal else []),
    ]  # fmt: skip


def tethered(command: Sequence[str]) -> list[str]:
    """Wrap `command` so that it ends when this process does."""
    return [sys.executable, "-P", "-m", "geomx.live.lifetime", str(os.getpid()), *command]


def script_env(
    name: str,
    id: int | None,
    host: str,
    scheduler: str,
    notes: Path,
    patience_s: float | None = None,
) -> dict[str, str]:
    """Return the environment variables by which a training script knows its worker.

    Args:
        name: Name of the worker.
        id: Its id; None: assigned by the scheduler.
        host: Address that it listens on.
        scheduler: Address of the scheduler.
        notes: Stem of its files.
        patience_s: Limit on the wait for other nodes, in seconds; None: the default.
    """
    env = {"GEOMX_SCHEDULER": scheduler, "GEOMX_NAME": name, "GEOMX_HOST": host}
    env["GEOMX_NOTES"] = str(notes.resolve())
    if patience_s is not None:
        env["GEOMX_PATIENCE"] = str(patience_s)
    return env if id is None else {**env, "GEOMX_ID": str(id)}


def by_hand(argv: Sequence[str], env: dict[str, str], leaves: bool) -> int:
    """Run a node with its log on the terminal.

    Args:
        argv: Command of the node.
        env: Its environment.
        leaves: Whether the first signal that ends this process asks the node to leave the run.

    Returns:
        The exit status.
    """
    child = Child(argv, env, output="terminal")
    asked = Asked(not leaves)

    while (status := child.process.poll()) is None:
        if asked.to_leave():
            child.process.ask_to_leave()
        if asked.to_end:
            child.end()
            return INTERRUPTED
        time.sleep(TICK_S)
    child.sweep()
    return status if status >= 0 else 128 - status


class Asked:
    """What the signals to this process ask for: first to leave the run, then to end.

    Args:
        at_once: Whether the first signal asks to end.

    Attributes:
        to_end: Whether all nodes must end now.
    """

    def __init__(self, at_once: bool = False) -> None:
        self.to_end = False
        self._signals = 1 if at_once else 0
        self._told = at_once
        for number in _ENDING:
            signal.signal(number, self._hear)

    def to_leave(self) -> bool:
        """Return, once, that the nodes must leave."""
        told, self._told = self._told, self._signals > 0
        return self._told and not told

    def _hear(self, number: int, frame: object) -> None:
        self._signals += 1
        self.to_end = self._signals > 1


class Child:
    """The node's process with all its descendants.

    Args:
        argv: Command of the node.
        env: Its environment.
        directory: Its working directory; empty: this one.
        output: Whether stdout and stderr are piped apart, merged, or go to the terminal or a file.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: dict[str, str],
        directory: str = "",
        output: Literal["apart", "merged", "terminal"] | IO[bytes] = "apart",
    ) -> None:
        pipe, merged = subprocess.PIPE, subprocess.STDOUT
        places: dict[str, tuple[int | None, int | None]] = {
            "apart": (pipe, pipe),
            "merged": (pipe, merged),
            "terminal": (None, None),
        }
        stdout, stderr = places[output] if isinstance(output, str) else (output, merged)
        self.process = Tied(
            argv,
            env,
            stdout=stdout,
            stderr=stderr,
            cwd=directory or None,
        )

    def end(self) -> None:
        """Ask it to end, wait, then kill it with all its descendants."""
        self.process.signal_all(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(POLITE_S)
        self.sweep()

    def sweep(self) -> None:
        """Kill its remaining processes."""
        self.process.signal_all(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(KILLED_S)


def attached() -> int:
    """Run the node that the launcher describes on standard input.

    Returns:
        The exit status.
    """
    launcher = Lines(sys.stdin.fileno())
    deadline = time.monotonic() + OPENING_S
    lines: list[str] = []
    while not lines:
        wait_s = max(0.0, deadline - time.monotonic())
        if launcher.closed or not readable([launcher.number], wait_s):
            return INTERRUPTED  # the launcher ended before it began
        lines = list(launcher.take())
    heard_s = time.monotonic()
    opening = Opening.read(lines[0])
    with tempfile.TemporaryDirectory(prefix="geomx-") as folder:
        node = _Attached(opening, Path(folder), launcher)
        node.hear(lines[1:], heard_s)
        return node.run()


class _Attached:
    """A node that is controlled by a launcher."""

    def __init__(self, opening: Opening, folder: Path, launcher: Lines) -> None:
        self._opening = opening
        self._launcher = launcher
        self._folder = folder
        self._writer = FrameWriter(sys.stdout.buffer)
        self._stem = stem(folder, opening.name)
        self._stem.parent.mkdir()
        self._notes = {"note": Reader(self._stem)}  # by their frames
        if opening.stands_by:
            self._notes["taken"] = Reader(stem(folder, opening.stands_by))
        self._beats: deque[tuple[int, float]] = deque()  # beats to be answered
        self._gone = threading.Lock()
        self._journal = _journal(opening) if opening.journals else None
        # The scheduler's first line is its address. One that resumes has that of the one before.
        self._speaks = bool(opening.experiment) and not (self._journal and self._journal.exists())
        argv, env = self._plan(folder)
        self._child = Child(argv, env, opening.directory, "merged" if opening.command else "apart")

    def run(self) -> int:
        """Report on the node until it ends; return its exit status."""
        for number in _ENDING:
            signal.signal(number, lambda *_: self._leave())
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            self._tell()
            status = self._child.process.wait()
            if status >= 0:
                self._forget()
            self._tell_files()
            self._writer.say(end=status)
        except OSError:
            self._leave()
        return status if 0 <= status < 128 else 1

    def _plan(self, folder: Path) -> tuple[list[str], dict[str, str]]:
        opening = self._opening
        host = os.environ.get("GEOMX_HOST", "") if opening.host == ELSEWHERE else opening.host
        if not host:
            remedy = "set it to this machine's address, or give that in the job file"
            raise GeomxError(
                f"the address is {ELSEWHERE}, but GEOMX_HOST is not set here; {remedy}"
            )
        if opening.directory and not Path(opening.directory).is_dir():
            remedy = "make it, or name another one (`directory` of the job file)"
            raise GeomxError(f"{opening.directory}: there is no such folder here; {remedy}")
        env = {**opening.env, "GEOMX_TOKEN": opening.token, "PYTHONUNBUFFERED": "1"}
        if opening.tls:
            env[TLS] = str(write_files(folder / "tls", opening.tls))
        if opening.command:
            env |= script_env(opening.name, opening.id, host, opening.scheduler, self._stem)
            return tethered(opening.command), env
        experiment = None
        if opening.experiment:
            experiment = folder / "experiment.json"
            experiment.write_text(opening.experiment, encoding="utf-8")
        argv = node_argv(
            opening.name, opening.id, host, self._stem,
            experiment=experiment, scheduler=opening.scheduler, again=opening.again,
            stands_by=bool(opening.stands_by), journal=self._journal,
        )  # fmt: skip
        return argv, env

    # ---- reports ----

    def _tell(self) -> None:
        """Forward the node's output until it has ended and everything is sent."""
        process = self._child.process
        streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
        lines = [Output(stream.fileno()) for stream in streams]
        speaks = self._speaks
        ended, more = False, True
        while more or not ended:
            if not ended and process.poll() is not None:
                ended = True
                self._child.sweep()  # the processes that it left behind
            open_lines = {each.number: each for each in lines if not each.closed}
            wait_s = 0.0 if ended else TICK_S
            ready = readable(list(open_lines), wait_s) if open_lines else []
            if not open_lines and not ended:
                time.sleep(TICK_S)
            for number in ready:
                for text in open_lines[number].take():
                    if speaks and number == lines[0].number:
                        self._writer.say(listening=text)
                        speaks = False
                    else:
                        self._writer.say(log=text)
            more = bool(ready)
            while self._beats:
                beat, heard_s = self._beats.popleft()
                self._writer.say(beat=beat, heard=heard_s, said=time.monotonic())
            self._tell_notes()

    def _tell_notes(self) -> None:
        for frame, notes in self._notes.items():
            for line in notes.lines():
                self._writer.say(**{frame: line})

    def _tell_files(self) -> None:
        """Send the final parameters, if this node wrote any."""
        file = file_of(self._stem, ".npz")
        if not file.exists():
            return
        with file.open("rb") as content:
            for piece in iter(lambda: content.read(PIECE_BYTES), b""):
                self._writer.say(file=".npz", data=base64.b64encode(piece).decode())

    # ---- the launcher ----

    def _listen(self) -> None:
        """Receive the launcher's beats, in a thread; end everything when they stop."""
        while not self._launcher.closed:
            if not readable([self._launcher.number], SILENCE_S):
                break
            heard_s = time.monotonic()
            self.hear(self._launcher.take(), heard_s)
        self._leave()

    def hear(self, lines: Iterable[str], heard_s: float) -> None:
        """Take lines of the launcher that were read at a time; the beats will be answered."""
        for line in lines:
            word, _, count = line.partition(" ")
            if word == "beat" and count.isdigit():
                self._beats.append((int(count), heard_s))

    def _forget(self) -> None:
        """Delete the journal of a node that was not killed, so that nothing resumes it."""
        if self._journal is not None:
            self._journal.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # other nodes of the run are on this machine
                self._journal.parent.rmdir()

    def _leave(self) -> None:
        """End the node and this process, from any thread, even if standard output is blocked."""
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:  # a handler would come here again, and this would never end
                signal.signal(number, signal.SIG_IGN)
        if self._gone.acquire(blocking=False):
            self._child.end()
            self._forget()
            shutil.rmtree(self._folder, ignore_errors=True)
            os._exit(INTERRUPTED)
        threading.Event().wait()  # another thread is doing it


def _journal(opening: Opening) -> Path:
    """Return the path of a node's journal; its folder exists, and is the user's alone."""
    states = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    folder = states / "geomx" / opening.journals
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{stem(Path(), opening.name).name}.journal"
