"""Output of the command line: lines, tables, warnings and error messages."""

from __future__ import annotations

import ctypes
import io
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import GeneratorType
from typing import Any, TextIO

from geomx.errors import GeomxError
from geomx.terminal.log import is_json, say, tell

WIDE = 110  # characters of a wide table where there is no terminal
STDOUT = "standard output"
_AGAIN_S = 0.05
"""Seconds after which an interruption is raised again, when what has ignored it is over."""
WHERE = "where"  # attribute of exceptions that end a run early: the end of the message


def show(what: Any, width: int | None = None) -> None:
    """Print a line or a table.

    Args:
        what: Text, a path, or a renderable of rich.
        width: Width of a table in a pipe or a file, in characters; None: rich's default.

    Raises:
        OSError: Standard output cannot be written.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if width is not None and not console.is_terminal:
        console.width = width
    with to_stdout():
        if isinstance(what, str | Path):
            print(what)
        else:
            console.print(what, crop=False)


@contextmanager
def to_stdout() -> Iterator[None]:
    """Write all that the block prints, and let errors of the operating system name the place.

    Raises:
        OSError: Standard output cannot be written.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        error.filename = STDOUT
        raise


def warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one line on standard error, without its place in the code.

    Replaces `warnings.showwarning`, whose arguments it takes.
    """
    text = " ".join(str(message).split())
    if is_json():
        say(text, "warning")
    else:
        print(f"warning: {text}", file=sys.stderr, flush=True)


def _interrupt(thread: int) -> None:
    """Raise KeyboardInterrupt in a thread of this process."""
    again = ctypes.py_object(KeyboardInterrupt)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), again)


def ignore_kept_generators(unraisable: sys.UnraisableHookArgs) -> None:
    """Suppress reports about generators that swallow GeneratorExit; report others as Python does.

    Such a generator is a plugin's, and the run has ended with an error message that names the
    plugin. An interruption that came while an object was deleted is raised again, after that.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt) and not sys.is_finalizing():
        raising = threading.Timer(_AGAIN_S, _interrupt, [threading.get_ident()])
        raising.daemon = True
        raising.start()
        return
    kept = isinstance(unraisable.object, GeneratorType)
    if not (kept and "GeneratorExit" in str(unraisable.exc_value)):
        sys.__unraisablehook__(unraisable)


def complain(message: object, status: int, error: BaseException | None = None) -> int:
    """Print one line on standard error, below the notes of an exception.

    Args:
        message: The line, or an exception.
        status: Exit status.
        error: The exception, if `message` is not one.

    Returns:
        `status`.
    """
    error = message if isinstance(message, BaseException) else error
    if getattr(error, "reported", False):
        return status
    notes = getattr(error, "__notes__", ())
    told = " ".join(f"{message}{getattr(error, WHERE, '')}".split())
    if not is_json():
        for note in notes:
            print(note, file=sys.stderr)
    tell(told, "error", facts={"status": status, "notes": list(notes)})
    return status


@contextmanager
def telling_where(directory: Path) -> Iterator[None]:
    """Add the location of results, or else of logs, to exceptions that end a run early."""
    try:
        yield
    except (KeyboardInterrupt, GeomxError, OSError) as error:
        if any(directory.glob("**/summary.json")):
            vars(error)[WHERE] = f"; results up to then are in {directory}"
        elif any(directory.glob("**/nodes/*.log")):
            told = "\n".join([str(error), *getattr(error, "__notes__", ())])
            if str(directory) not in told:
                vars(error)[WHERE] = f"; the logs are in {directory / 'nodes'}"
        raise


def drop_output() -> None:
    """Redirect standard output to /dev/null, so that Python exits without an error about it."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


@contextmanager
def printed_at_once() -> Iterator[None]:
    """Print at the end what the block prints and logs: Hydra tells of every line it cannot write.

    What the block sets up for logging, as Hydra's ``--info`` does, ends with it.

    Raises:
        OSError: Standard output cannot be written.
    """
    text, root = io.StringIO(), logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        with redirect_stdout(text):
            yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
        with to_stdout():
            print(text.getvalue(), end="")
