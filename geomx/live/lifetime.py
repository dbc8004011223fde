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

    def leaves_any(self) -> bool:
        """Return whether the process or one of its descendants is still running."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, 0)
            return True
        return any(self._elsewhere())

    def _elsewhere(self) -> Iterator[int]:
        """Yield the ids of descendants that have left the process group."""
        marked = f"{MARK}={self.mark}".encode()
        for entry in Path("/proc").glob("[0-9]*"):  # empty on systems without /proc
            with contextlib.suppress(OSError):
                descends = marked in (entry / "environ").read_bytes().split(b"\0")
                if descends and os.getpgid(int(entry.name)) != self.pid:
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
