"""Nothing outlives the launcher: a child asks the kernel to be killed when its parent ends.

The request survives `exec`, so ``python -m geomx.live.tether PID COMMAND...`` ties any command to
the process PID, even one that is killed outright and cannot clean up.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tie_to_parent(parent: int) -> None:
    """Be killed when process `parent`, which must be the one that started us, ends.

    Raises:
        SystemExit: It has ended already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(f"process {parent}, which started this one, is gone")


def main(arguments: list[str]) -> None:
    """Tie this process to PID, then become COMMAND."""
    tie_to_parent(int(arguments[0]))
    try:
        os.execvp(arguments[1], arguments[1:])
    except OSError as error:
        raise SystemExit(f"{arguments[1]}: {error.strerror}") from error


if __name__ == "__main__":
    main(sys.argv[1:])
