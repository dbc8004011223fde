"""What concerns the jobs of a sweep: how many run at once, and what is left of one that fails."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from geomx.errors import ConfigError, GeomxError
from geomx.options.schema import MODES
from geomx.plugin.calling import one_line
from geomx.results import refusals

REPORTED = "reported"  # attribute of the error of a sweep's job that has been printed already

_JOBS = "hydra.launcher.n_jobs"
_ON_ALL = f"{_JOBS}=${{geomx_jobs:}}"
_ZERO = re.compile(r"[+-]?0+")


def on_all_cores(overrides: Sequence[str]) -> list[str]:
    """Return overrides that run a sweep's jobs in parallel, unless a launcher is chosen.

    Empty if the mode is swept too, since then some jobs are live. They come after `overrides`, so
    the number of jobs is left out if it is among these.

    Raises:
        ConfigError: They ask for no jobs at all.
    """
    said = {
        override.partition("=")[0].lstrip("+"): override.partition("=")[2] for override in overrides
    }
    jobs = said.get(_JOBS, "")
    if _ZERO.fullmatch(jobs):
        raise ConfigError(_JOBS, jobs, "must be 1 or more, or -1 for one job per core")
    if "hydra/launcher" in said or said.get("mode", "sim") not in MODES:
        return []
    return ["hydra/launcher=joblib", *([] if _JOBS in said else [_ON_ALL])]


def one_at_a_time(words: Sequence[str]) -> list[str]:
    """Return what `on_all_cores` returned for jobs of which some must run alone."""
    return [word if word != _ON_ALL else f"{_JOBS}=1" for word in words]


def parallel_jobs(*, _root_: Any) -> int:
    """Return the number of parallel jobs of a sweep for joblib: -1, one per core.

    It is 1 for live runs, which would slow each other down, and for studies, which use all cores.
    """
    study = _root_.study
    alone = _root_.mode != "sim" or (study is not None and bool(study.each or study.variants))
    return 1 if alone else -1


@contextmanager
def noted(directory: Path, words: Sequence[str], plugins: Sequence[str]) -> Iterator[None]:
    """Leave a note of the error of a job's block, for the report of its sweep.

    Args:
        directory: Of the job.
        words: Its overrides.
        plugins: Its sync algorithm, then its accelerators.
    """
    (directory / refusals.NOTE).unlink(missing_ok=True)  # of an earlier sweep in the same folder
    try:
        yield
    except Exception as error:
        refusals.leave(directory, error, one_line(error), words, plugins)
        raise


@contextmanager
def killed_told() -> Iterator[None]:
    """Say in one sentence that a process of joblib's was killed in the block.

    Raises:
        GeomxError: One was, as the system does when memory is full.
    """
    try:
        yield
    except BrokenProcessPool as error:
        raise GeomxError(
            "a process that simulated was killed, perhaps as memory was full; what others have "
            "finished is kept; run fewer at a time (study.jobs, plan.jobs, hydra.launcher.n_jobs)"
        ) from error


@contextmanager
def reported(words: Sequence[str]) -> Iterator[None]:
    """Print the error of a job's block.

    Hydra continues with the next job and raises only the first failure at the end.
    """
    try:
        yield
    except GeomxError as error:
        print(f"{' '.join(words)}: {one_line(error)}", file=sys.stderr, flush=True)
        vars(error)[REPORTED] = True
        raise
