"""The processes of a simulated script: one per worker, started, connected and ended.

The processes of as many workers start at once as the machine has cores. A worker's process connects
when its script creates its store, and then waits for the start of the run; so the time in which
processes import their frameworks belongs to no worker.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from geomx.cluster import NodeSpec
from geomx.errors import NodeLost
from geomx.live.diagnosis import HOW_TO_JOIN
from geomx.live.exit_status import signal_name
from geomx.live.files import path as file_of
from geomx.live.files import stem
from geomx.live.lifetime import Tied
from geomx.live.relay import Patience
from geomx.terminal.progress import stage
from geomx.virtual import wire

LOOK_S = 0.05  # between looks at processes that have not connected
LINGER_S = 10.0  # for the process of a broken connection to end: frameworks take their time
POLITE_S = 1.5  # between SIGTERM and SIGKILL
TRACEBACK = "Traceback (most recent call last):"
MOST_LINES = 60
"""Lines of a log that an error shows."""


@dataclass
class Channel:
    """The connection to one worker's process.

    Attributes:
        worker: The node.
        command: The command of the script.
        process: Its process.
        log: What it has written; of the first worker, whose output is on the terminal, nothing.
        startup_s: Real seconds until its store was created.
        started_s: When the process started, by the monotonic clock.
        patience_s: Seconds after which the user is told of a wait.
        leads: Always True: the process has replies of no other worker.
        failed: The exception by which the script ends, in one line, if its process has said so.
    """

    worker: NodeSpec
    command: str
    process: Tied
    log: Path
    started_s: float
    patience_s: float
    startup_s: float = 0.0
    leads: bool = True
    failed: str = ""
    connection: socket.socket | None = field(default=None, repr=False)

    def receive(self) -> wire.Message | None:
        """Wait, in real time, for the next request.

        Returns:
            The request; None if the process fails, has closed the connection, or has ended.
        """
        assert self.connection is not None
        patience = Patience(self.patience_s)
        while not select.select([self.connection], [], [], 1.0)[0]:
            if self.process.poll() is not None and not self.process.leaves_any():
                return None
            patience.waits("the simulation", lambda: f"{self.worker.name}, which computes")
        message = wire.receive(self.connection)
        if message is not None and message[0].get("op") == "fails":
            self.failed = str(message[0]["why"])
            return None
        return message

    def send(self, fields: dict[str, object], content: object = b"") -> None:
        """Reply to the last request; no effect if the process has ended."""
        assert self.connection is not None
        with contextlib.suppress(OSError):  # the next call of `receive` says so
            wire.send(self.connection, fields, content)

    def lost(self, without: str) -> NodeLost:
        """Return the error that this process has ended.

        Args:
            without: What it did not do before, if it ended with status 0.
        """
        status = None  # a process with large libraries may still be ending
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self.process.wait(LINGER_S)
        lines = self._last_lines()
        if status is None:
            reason = f"it closed its connection {without}"
            if lines and lines[0].startswith(TRACEBACK):
                reason += f": {self.failed or lines[-1].strip()}"
        elif status < 0:
            reason = f"killed by {signal_name(status)}"
        elif status == 0:
            reason = f"its command, {self.command}, ended with exit status 0 {without}"
        else:
            said = (self.failed or lines[-1].strip()) if lines else "its output is above"
            reason = f"exit status {status}: {said}"
        error = NodeLost(self.worker.name, reason)
        if lines:
            shown = "\n".join(f"  {line}" for line in lines)
            error.add_note(f"{self.worker.name}: the end of {self.log}:\n{shown}")
        return error

    def _last_lines(self) -> list[str]:
        """Return the last traceback in the log, or the last lines without one."""
        if not self.log.exists():
            return []
        lines = self.log.read_text("utf-8", errors="replace").splitlines()
        lines = [line.rstrip() for line in lines if line.strip()]
        starts = [number for number, line in enumerate(lines) if line.startswith(TRACEBACK)]
        return lines[max(starts[-1] if starts else 0, len(lines) - MOST_LINES) :]


class Processes:
    """The processes of all workers. Use it as a context manager; when it exits, all have ended.

    Args:
        workers: The workers, in order of rank.
        command: The command of the script.
        directory: Directory of the run; logs are written to its folder ``nodes``.
        experiment: What every process is told of the experiment (`geomx.live.spec`).
        patience_s: Seconds after which the user is told of a wait.
    """

    def __init__(
        self,
        workers: Sequence[NodeSpec],
        command: Sequence[str],
        directory: Path,
        experiment: str,
        patience_s: float,
    ) -> None:
        self.channels: dict[int, Channel] = {}
        self._workers, self._command = workers, list(command)
        self._directory, self._experiment = directory, experiment
        self._patience_s = patience_s
        self._folder = tempfile.mkdtemp(prefix="geomx-")  # only this user may enter it
        self._path = os.path.join(self._folder, "socket")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> Processes:
        """Start all processes, and wait until their scripts have created their stores.

        Raises:
            NodeLost: One has ended before.
        """
        (self._directory / "nodes").mkdir(parents=True, exist_ok=True)
        try:
            self._listener.bind(self._path)
            self._listener.listen(len(self._workers))
            abreast = max(1, len(os.sched_getaffinity(0)))
            waiting: dict[str, Channel] = {}
            for number, node in enumerate(stage(self._workers, "starting scripts")):
                waiting[node.name] = self._start(node, shown=number == 0)
                while len(waiting) >= abreast:
                    self._accept(waiting)
            while waiting:
                self._accept(waiting)
            self._listener.close()
            os.unlink(self._path)  # a process that comes later is refused at once
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        """End the processes that are still running."""
        self.end()

    def _start(self, node: NodeSpec, shown: bool) -> Channel:
        tie = [sys.executable, "-P", "-m", "geomx.live.lifetime", str(os.getpid())]
        environment: Mapping[str, str] = {wire.SOCKET: self._path, wire.WORKER: node.name}
        log = file_of(stem(self._directory, node.name), ".log")
        with log.open("wb") as file:
            # The first worker writes to the terminal, like a script that is run alone.
            to = None if shown else file
            process = Tied([*tie, *self._command], environment, stdout=to, stderr=to)
        channel = Channel(
            node,
            shlex.join(self._command),
            process,
            log,
            time.monotonic(),
            self._patience_s,
        )
        self.channels[node.id] = channel
        return channel

    def _accept(self, waiting: dict[str, Channel]) -> None:
        """Wait until one of the processes that have not connected does."""
        patience = Patience(self._patience_s)
        while not select.select([self._listener], [], [], LOOK_S)[0]:
            for channel in waiting.values():
                if channel.process.poll() is not None and not channel.process.leaves_any():
                    raise channel.lost(f"without joining the simulation: {HOW_TO_JOIN}")
            patience.waits("the simulation", lambda: f"{', '.join(waiting)} to create a store")
        connection, _ = self._listener.accept()
        request = wire.receive(connection)
        name = request[0].get("name") if request else None
        if name not in waiting:
            wire.send(connection, {"error": f"{name} cannot join: another process of it has"})
            connection.close()
            return
        channel = waiting.pop(name)
        channel.connection = connection
        channel.startup_s = time.monotonic() - channel.started_s
        channel.send({"experiment": self._experiment})

    def wait_ended(self) -> None:
        """Wait, in real time, until all processes have ended by themselves.

        Raises:
            NodeLost: One failed after it had left the run.
        """
        patience = Patience(self._patience_s)
        running = list(self.channels.values())
        while running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running[0].process.wait(1.0)
            patience.waits("the simulation", lambda: f"{running[0].worker.name} to end")
            while running and running[0].process.poll() is not None:
                ended = running.pop(0)
                if ended.process.returncode != 0:
                    raise ended.lost("")

    def end(self) -> None:
        """End every process, and their descendants: SIGTERM, then SIGKILL."""
        try:
            running = [each.process for each in self.channels.values()]
            for process in running:
                process.signal_all(signal.SIGTERM)
            deadline = time.monotonic() + POLITE_S
            while time.monotonic() < deadline and any(p.poll() is None for p in running):
                time.sleep(LOOK_S)
        finally:  # also after a second Ctrl-C
            for channel in self.channels.values():
                channel.process.signal_all(signal.SIGKILL)
                channel.process.wait()
                if channel.connection is not None:
                    channel.connection.close()
            self._listener.close()
            shutil.rmtree(self._folder, ignore_errors=True)
