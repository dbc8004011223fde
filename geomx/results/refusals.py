"""Jobs of a sweep that left no results: the note that says why, and who reads it.

A job is refused, or fails, in a process of its own, maybe on another machine; its folder is all
that it shares with the report of the sweep. The note is therefore a file there, ``refused.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from geomx.errors import ConfigError, GeomxError
from geomx.results.files import read_json, write_json

NOTE = "refused.json"
KINDS = ("refused", "failed")


@dataclass(frozen=True)
class Refusal:
    """Why a job has no results.

    Attributes:
        status: ``refused``, or ``failed`` if it had begun.
        reason: The sentence that the job printed.
        words: Its overrides.
        sync: Its sync algorithm, as in ``summary.json``.
        accel: Its accelerators, as there.
    """

    status: str
    reason: str
    words: Sequence[str]
    sync: Mapping[str, Any]
    accel: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, directory: Path) -> Refusal | None:
        """Return the note in a directory; None if there is none, or none that is understood."""
        try:
            content = read_json(directory / NOTE)
            found = cls(**{name: content[name] for name in cls.__dataclass_fields__})
        except (OSError, GeomxError, KeyError, TypeError):
            return None
        return found if found.status in KINDS else None


def leave(
    directory: Path, error: Exception, reason: str, words: Sequence[str], plugins: Sequence[str]
) -> None:
    """Leave a note in the directory of a job, unless it holds results.

    Args:
        directory: Of the job.
        error: What it raised.
        reason: The same as one line.
        words: Overrides of the job.
        plugins: Its sync algorithm, then its accelerators.
    """
    if (directory / "summary.json").exists():  # which says by itself why a run was aborted
        return
    status = KINDS[0] if isinstance(error, ConfigError) else KINDS[1]
    sync, *accel = ({"name": name} for name in plugins)
    write_json(directory / NOTE, asdict(Refusal(status, reason, list(words), sync, accel)))


def told(directory: Path) -> str:
    """Return what to add to the sentence that a directory holds no run: nothing without a note."""
    found = Refusal.of(directory)
    return "" if found is None else f"; the job was {found.status}: {found.reason}"
