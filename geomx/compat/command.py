"""``geomx compat -- COMMAND``: runs a launch script of GeoMX or MXNet and all its processes.

Such scripts start most of their processes in the background and discard their output. Here every
process that imports MXNet writes its log and its counters to the run's directory; the command ends
when the last process has ended, and fails if one has failed. Ctrl-C, or a failure, ends all of
them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import count
from pathlib import Path

from geomx.compat.addresses import FOLDER, REMARKS
from geomx.errors import ConfigError, GeomxError, UsageError
from geomx.live.exit_status import DONE
from geomx.live.files import Reader
from geomx.live.relay import Relay, warned
from geomx.options.schema import RuntimeOptions

HOOK = Path(__file__).with_name("hook")
_PR_SET_CHILD_SUBREAPER = 36
FAILURE_TIMEOUT_S = RuntimeOptions().failure_timeout_s
_POLL_S = 0.1
_NOTICE_S = 10.0  # time for the others to end by themselves after a failure
_POLITE_S = 5.0


def run(arguments: Sequence[str]) -> None:
    """Run the command after ``--``, and print the run's directory as the last line.

    Args:
        arguments: ``--`` and the command.

    Raises:
        ConfigError: There is no command, or it cannot be started.
        GeomxError: The command or one of its processes failed; the message says which.
        KeyboardInterrupt: Ctrl-C; all processes have ended.
    """
    if arguments[:1] != ["--"] or len(arguments) < 2:
        raise UsageError(["compat", *arguments], "needs a command: geomx compat -- COMMAND")
    command, folder = list(arguments[1:]), _new_folder(Path("outputs"))
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans become our children
    try:
        process = subprocess.Popen(command, env=_environment(folder), start_new_session=True)
    except OSError as error:
        raise ConfigError("compat", command[0], f"cannot be run: {error.strerror}") from error
    watch = _Watch(process.pid, folder)
    try:
        watch.until_the_end()
    finally:
        watch.end_all()
    failed = watch.failed()
    if failed:
        raise GeomxError(f"{failed}; logs are in {folder}")
    if not any(folder.iterdir()):
        warned(
            f"no process of {command[0]} imported mxnet with DMLC_ROLE or DMLC_ROLE_GLOBAL among "
            "its environment variables (export), so there was no job"
        )
    print(folder, flush=True)


class _Watch:
    """The processes of a command: those of its session, and its descendants that left it."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid = pid
        self._folder = folder
        self._statuses: dict[int, int] = {}
        self._said = False

    def until_the_end(self) -> None:
        """Wait until all have ended, or until one failed and the others had time to end."""
        deadline: float | None = None
        logs = Relay(lambda: sorted(self._folder.glob("*.log")), FAILURE_TIMEOUT_S)
        while self._reap():
            self._say_remarks()
            logs.look()
            if deadline is None and self.failed():
                deadline = time.monotonic() + _NOTICE_S
            if deadline is not None and time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)
        self._say_remarks()
        logs.look(last=True)

    def end_all(self) -> None:
        """End the remaining processes: ask, then kill."""
        for number, patience_s in ((signal.SIGTERM, _POLITE_S), (signal.SIGKILL, _POLITE_S)):
            deadline = time.monotonic() + patience_s
            while self._reap() and time.monotonic() < deadline:
                for pid in self._processes():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(_POLL_S)

    def failed(self) -> str:
        """Return a sentence about the first failure; empty if there was none."""
        failures = []
        for path in self._folder.glob("*.jsonl"):
            for note in Reader(path.with_suffix("")).new():
                end = note.get("end", {})
                if end.get("status", DONE) != DONE:
                    failures.append((end["at_s"], end["name"], path.with_suffix(".log")))
        if failures:
            _, name, log = min(failures)
            return f"{name} failed: {_last_line(log)}"
        status = self._statuses.get(self._pid, 0)
        if status:
            return f"the command failed with exit status {status}"
        broken = [status for status in self._statuses.values() if status]
        return f"a process failed with exit status {broken[0]}" if broken else ""

    def _reap(self) -> bool:
        """Collect exit statuses; return whether any process is left."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                self._statuses[pid] = os.waitstatus_to_exitcode(status)
        return False

    def _processes(self) -> Iterator[int]:
        """Yield the processes of the command's session and our own children, from ``/proc``."""
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parent, session = int(fields[1]), int(fields[3])
                if session == self._pid or parent == os.getpid():
                    yield int(entry.name)

    def _say_remarks(self) -> None:
        """Print the remarks of the job's scheduler once."""
        remarks = self._folder / REMARKS
        if self._said or not remarks.exists():
            return
        self._said = True
        for line in remarks.read_text(encoding="utf-8").splitlines():
            print(f"geomx: {line}", file=sys.stderr, flush=True)


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment with the hook first on the path and this interpreter as ``python``."""
    own = {
        FOLDER: str(folder.resolve()),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(HOOK), os.environ.get("PYTHONPATH")])),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }
    return {**os.environ, **own}


def _new_folder(base: Path) -> Path:
    """Create ``base/DATE/TIME``, with a number appended if it exists already."""
    stem = base / datetime.now().strftime("%Y-%m-%d/%H-%M-%S")
    for attempt in count(1):
        path = stem if attempt == 1 else stem.with_name(f"{stem.name}-{attempt}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise GeomxError(f"the run's directory cannot be made: {error}") from error
        return path
    raise AssertionError("unreachable")


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")
