"""The end of a worker's program: what is done then, and whether an error is the cause."""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from geomx import _core

_TRACEBACK = "Traceback (most recent call last):"


def at_end(act: Callable[[], object]) -> None:
    """Call a function when the program ends, but not when a process that it forks does.

    Such a process does not leave the job: its parent goes on.

    Args:
        act: The function.
    """
    program = os.getpid()
    atexit.register(lambda: act() if os.getpid() == program else None)


def watch_exit() -> None:
    """Let `failing` know of ``sys.exit(1)`` and the like from now on."""
    _core.watch_exit()
    if sys.version_info < (3, 12):
        sys.exit = _exit


def uncaught() -> str:
    """Return the exception that ends the program, in one line; empty: none does.

    Of a message of several lines it is the first, or the last if it begins with a traceback, as the
    messages of MXNet's operators do.
    """
    if (raised := getattr(sys, "last_value", None)) is None:
        return ""
    if isinstance(raised, SyntaxError):  # Python would begin with the file
        return f"{type(raised).__name__}: {raised}"
    text = "".join(traceback.format_exception_only(raised)).strip()
    first, *others = [line for line in text.splitlines() if line.strip()]
    if others and first.endswith(_TRACEBACK):
        return first.removesuffix(_TRACEBACK) + others[-1].strip()
    return first


def error() -> str:
    """Return the error that ends the program, in one line; empty: none does. See `failing`."""
    if raised := uncaught():
        return raised
    status, lines = _core.exit_status(), _core.exit_text().strip().splitlines()
    return lines[0] if status and lines else f"exit status {status}" if status else ""


def failing() -> bool:
    """Return whether the program ends by an uncaught exception, or an exit status that is not 0.

    True at the end of the program only. A `SystemExit` that the program catches is not its end, and
    one in another thread ends only that thread.
    """
    return error() != ""


def passing() -> bool:
    """Return whether an exception is on its way, by which the program may end, or may not."""
    return sys.exception() is not None


def _exit(status: object = None, /) -> NoReturn:
    """Do what `sys.exit` does, of which Python 3.11 keeps only the status, and no `SystemExit`."""
    raise SystemExit(status)
