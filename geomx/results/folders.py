"""Finds the runs in a directory that a user names on the command line."""

from __future__ import annotations

from pathlib import Path

from geomx.errors import ConfigError
from geomx.results.refusals import told

MOST_NAMED = 8
"""Limit on the number of runs of a directory that an error message names."""


def runs_in(directory: Path) -> list[Path]:
    """Return `directory` if it is that of a run, or those of the runs of ``mode=both`` in it.

    Raises:
        ConfigError: There is no run, or there are several of a sweep.
    """
    if (directory / "summary.json").is_file():
        return [directory]
    if found := _of_both_modes(directory):
        return found
    if inside := _below(directory):
        remedy = f"holds {len(inside)} runs; name one of them: {_some(inside)}"
        raise ConfigError("run", directory, remedy)
    remedy = f"is no directory of a run: it has no summary.json{told(directory)}"
    raise ConfigError("run", directory, remedy)


def elsewhere(directory: Path) -> str:
    """Return what to add to the sentence that a directory holds no run: which runs are in it.

    Args:
        directory: Which has no ``summary.json``.
    """
    places = [str(place) for place in _of_both_modes(directory)]
    if places:
        return f"; the runs of mode=both are in {' and '.join(places)}"
    inside = _below(directory)
    return f"; there are runs in it: {_some(inside)}" if inside else ""


def _of_both_modes(directory: Path) -> list[Path]:
    both = [directory / mode for mode in ("sim", "live")]
    return [place for place in both if (place / "summary.json").is_file()]


def _below(directory: Path) -> list[str]:
    single = {path.parent.name for path in directory.glob("*/summary.json")}
    double = {path.parent.parent.name for path in directory.glob("*/live/summary.json")}
    return sorted(single | double)


def _some(inside: list[str]) -> str:
    return ", ".join(inside[:MOST_NAMED]) + (", ..." if len(inside) > MOST_NAMED else "")
