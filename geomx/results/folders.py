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
    both = [directory / mode for mode in ("sim", "live")]
    if found := [place for place in both if (place / "summary.json").is_file()]:
        return found
    single = {path.parent.name for path in directory.glob("*/summary.json")}
    double = {path.parent.parent.name for path in directory.glob("*/live/summary.json")}
    if inside := sorted(single | double):
        some = ", ".join(inside[:MOST_NAMED]) + (", ..." if len(inside) > MOST_NAMED else "")
        raise ConfigError("run", directory, f"holds {len(inside)} runs; name one of them: {some}")
    remedy = f"is no directory of a run: it has no summary.json{told(directory)}"
    raise ConfigError("run", directory, remedy)
