"""Whether the program of a worker ends because of an error."""

from __future__ import annotations

import sys
from typing import NoReturn

from geomx import _core


def watch_exit() -> None:
    """Let `failing` know of ``sys.exit(1)`` and the like from now on."""
    _core.watch_exit()
    if sys.version_info < (3, 12):
        sys.exit = _exit


def failing() -> bool:
    """Return whether the program ends by an uncaught exception, or an exit status that is not 0.

    True at the end of the program only. A `SystemExit` that the program catches is not its end, and
    one in another thread ends only that thread.
    """
    return getattr(sys, "last_value", None) is not None or _core.exit_status() != 0


def _exit(status: object = None, /) -> NoReturn:
    """Do what `sys.exit` does, of which Python 3.11 keeps only the status, and no `SystemExit`."""
    raise SystemExit(status)
