"""Errors that users see, each with one sentence on what is wrong and what to do.

`GeomxError` is the root. The command line turns a `ConfigError` into one line and exit status 2,
any other `GeomxError` into one line and exit status 1; in Python they are ordinary exceptions.
"""

from __future__ import annotations

import difflib
import errno
import os
import shlex
from collections.abc import Iterable, Sequence

_IN_ANOTHER_FOLDER = "work in a writable folder"
_MAKE_ROOM = "make room, and run it again"
REMEDIES = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), and run it again",
    errno.EROFS: _IN_ANOTHER_FOLDER,
    errno.EACCES: _IN_ANOTHER_FOLDER,
    errno.EPERM: _IN_ANOTHER_FOLDER,
    errno.EMFILE: "raise the limit on open files (ulimit -n), and run it again",
    errno.ENFILE: "end other processes: the machine has reached its limit on open files",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.EIO: "check the disk or its mount, which reports an input/output error",
}
"""Remedies for errors of the operating system that users may encounter."""


NO_TLS = (
    "this geomx was built without TLS: install OpenSSL's headers (libssl-dev, openssl-devel) and "
    "install geomx again"
)
"""What to do about runs between machines without TLS."""

PARTS = ("geomx._core", "geomx.sim", "geomx.conf", "geomx.plugins")
"""Modules that are missing in a source folder until it is built."""


def unbuilt() -> str:
    """Return the error message for a missing one of `PARTS`."""
    folder = os.path.dirname(os.path.abspath(__file__))
    return (
        f"{folder} is a source folder without geomx's compiled core: where geomx is installed, "
        "start Python in another folder; otherwise run `pip install -e .` beside it"
    )


def refused_file(error: OSError) -> str | None:
    """Return the error message for a file that could not be read or written, with the remedy.

    Args:
        error: The operating system's error.

    Returns:
        The sentence; None if the error names no file, or has no remedy.
    """
    if error.filename is None or error.errno not in REMEDIES:
        return None
    return f"{error.filename}: {error.strerror}; {REMEDIES[error.errno]}"


def unreadable(path: str | os.PathLike[str]) -> str | None:
    """Return why there is nothing to read at a path, as part of a sentence; None if there is.

    Args:
        path: Of a file or folder.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "there is no such file"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None


class GeomxError(Exception):
    """Root of geomx's errors: a sentence for the user on what failed and what to do."""


class Left(SystemExit):
    """Ends a script whose worker leaves the run, as it was asked to; exit status 0.

    The calls that begin a step raise it: `push` of a store, and those of `geomx.torch.Optimizer`.
    """

    def __init__(self) -> None:
        super().__init__(0)


class ConfigError(GeomxError):
    """A request that cannot be carried out as written (exit status 2).

    Args:
        key: The option at fault, as typed on the command line (``sync.k1``).
        value: Its value, as typed.
        remedy: What is allowed, or what to do instead.

    Example:
        >>> raise ConfigError("sync.k1", 0, "must be 1 or more")
        Traceback (most recent call last):
        geomx.errors.ConfigError: sync.k1=0: must be 1 or more
    """

    def __init__(self, key: str, value: object, remedy: str) -> None:
        self.key = key
        self.value = value
        self.remedy = remedy
        super().__init__(f"{key}={value}: {remedy}")

    def __reduce__(self) -> tuple[type[GeomxError], tuple[object, ...], dict[str, object]]:
        return type(self), (self.key, self.value, self.remedy), vars(self)


class UsageError(ConfigError):
    """A command line that lacks a word, or has one too many.

    Args:
        words: All words after ``geomx``.
        remedy: What is wrong with them, and what is allowed.

    Example:
        >>> raise UsageError(["launch", "seed=1"], "needs a command: geomx launch ... -- COMMAND")
        Traceback (most recent call last):
        geomx.errors.UsageError: geomx launch seed=1: needs a command: geomx launch ... -- COMMAND
    """

    def __init__(self, words: Sequence[str], remedy: str) -> None:
        super().__init__("geomx", shlex.join(words), remedy)
        self.words = tuple(words)
        self.args = (f"{shlex.join(['geomx', *words])}: {remedy}",)

    def __reduce__(self) -> tuple[type[GeomxError], tuple[object, ...], dict[str, object]]:
        return type(self), (self.words, self.remedy), vars(self)


class PluginError(GeomxError):
    """A plugin violates its contract: a misspelt hook, a wrong type, a broken promise."""


class Refused(GeomxError, ValueError):  # noqa: N818 (public name)
    """Raised by a codec's ``decode`` for bytes that its ``encode`` cannot have produced.

    Bytes come over a network. A codec may decode any bytes of the right length to something, or
    refuse them with this error and a reason; the peer that sent them is then at fault. Any other
    exception from ``decode`` is a failure of the plugin itself.
    """


BETWEEN = " <-> "
"""Separator of two node names if the connection between them was lost, but neither node."""


class NodeLost(GeomxError):  # noqa: N818 (the event's name in protocol and logs)
    """A node of a live run died or stopped responding.

    Args:
        name: Name of the node (``beijing/worker0``), or two names separated by `BETWEEN`.
        reason: What was observed.
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        what = "the connection" if BETWEEN in name else "node"
        super().__init__(f"{what} {name} was lost: {reason}")

    def __reduce__(self) -> tuple[type[NodeLost], tuple[str, str], dict[str, object]]:
        return type(self), (self.name, self.reason), vars(self)


def no_initial_value(worker: str, lost: bool, tensor: str) -> str:
    """Return the sentence that a run cannot continue without the initial value of a tensor.

    Args:
        worker: Name of the worker that gives initial values.
        lost: Whether it was lost; else it has left the run.
        tensor: Name of the tensor.
    """
    how = "was lost" if lost else "left the run"
    what = f"it gave the initial value of {tensor}"
    return f"{worker} {how} before {what}, without which no worker can train"


def near(word: str, allowed: Iterable[str]) -> str:
    """Return ``did you mean X? allowed: X, Y``: the closest of `allowed`, and each of them once."""
    names = sorted(set(map(str, allowed)))
    if not names:
        return "nothing is allowed here"
    likeness = 0.6 if len(str(word)) > 3 else 0.5  # a letter of two may be wrong
    close = difflib.get_close_matches(str(word), names, n=1, cutoff=likeness)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}allowed: {', '.join(names)}"
