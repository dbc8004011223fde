"""Ends processes with their launcher: the kernel kills a child when its parent ends.

The setting survives `exec`, so ``python -m geomx.live.lifetime PID COMMAND...`` ties any command to
the process PID, even if that is killed and cannot clean up. Descendants of a `Tied` process are
found by a mark in their environment, even in another session; torchrun's workers, for
example, lead their own sessions.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
MARK = "GEOMX_MARK"
"""The environment variable that marks the descendants of a process."""

LEAVE = signal.SIGUSR1
"""The signal that asks the process of a node to leave its run, while others continue."""


def new_mark() -> str:
    """Return a unique value of `MARK`."""
    return secrets.token_hex(16)


class Family:
    """A process that leads a group, and its descendants.

    Attributes:
        pid: Id of the process.
        mark: The value of `MARK` in the environment of its descendants.
    """

    pid: int
    mark: str

    def signal_all(self, number: int) -> None:
        """Send a signal to the process, if it runs, and to its remaining descendants."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
        for pid in self._elsewhere():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def ask_to_leave(self) -> None:
        """Send `LEAVE` to the node: the process of the family that handles it.

        It would end a shell, or a launcher of scripts, that has started that process, and is not
        meant for processes that the node has forked. Before there is a node, it ends the process
        that leads the family.
        """
        handle = dict(self._handling(LEAVE))
        for pid in [pid for pid in handle if handle[pid] not in handle] or [self.pid]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, LEAVE)

    def leaves_any(self) -> bool:
        """Return whether the process or one of its descendants is still running."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, 0)
            return True
        return any(self._elsewhere())

    def _elsewhere(self) -> Iterator[int]:
        """Yield the ids of descendants that have left the process group."""
        for pid in self._marked():
            with contextlib.suppress(OSError):
                if os.getpgid(pid) != self.pid:
                    yield pid

    def _handling(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield the ids of marked processes that handle a signal, and of their parents."""
        for pid in self._marked():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
                facts = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
                if int(facts["SigCgt"], 16) >> (number - 1) & 1:
                    yield pid, int(facts["PPid"])

    def _marked(self) -> Iterator[int]:
        """Yield the ids of processes that have the mark: descendants, and a `Tied` process."""
        marked = f"{MARK}={self.mark}".encode()
        for entry in Path("/proc").glob("[0-9]*"):  # empty on systems without /proc
            with contextlib.suppress(OSError):
                if marked in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)


class Tied(subprocess.Popen[bytes], Family):
    """A process in its own session, without input, that can be ended with all its descendants.

    Args:
        argv: Its command.
        env: Its environment variables, in addition to this process' own.
        stdout: As for `subprocess.Popen`; so are the others.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        cwd: str | None = None,
        pass_fds: Collection[int] = (),
    ) -> None:
        self.mark = new_mark()
        super().__init__(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, **env, MARK: self.mark},
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        )


def tie_to_parent(parent: int) -> None:
    """Request that this process is killed when its parent, process `parent`, ends.

    Raises:
        SystemExit: The parent has already ended.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(f"process {parent}, which started this one, is gone")


def main(arguments: list[str]) -> None:
    """Tie this process to PID, then execute COMMAND."""
    tie_to_parent(int(arguments[0]))
    try:
        os.execvp(arguments[1], arguments[1:])
    except OSError as error:
        raise SystemExit(f"{arguments[1]}: {error.strerror}") from error


if __name__ == "__main__":
    main(sys.argv[1:])
