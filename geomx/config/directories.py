"""Directories of runs: one that holds a run is refused, and a refused run leaves none."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from pathlib import Path

from geomx.errors import ConfigError, GeomxError
from geomx.experiment.experiment import Experiment
from geomx.results.files import read_json

A_RUN = ("summary.json", "comparison.json", "nodes")  # what the directory of a run holds
A_STUDY, A_PLAN = "study.json", "plan.json"  # what those of a study or a sweep, and a plan hold
_NUMBER = re.compile(r"\$\{hydra[.:]job\.num\}")  # Hydra's number of a sweep's job


def new_directory(base: str) -> str:
    """Create ``base/DATE/TIME``, with a number appended if it exists already."""
    stem = Path(base) / datetime.now().strftime("%Y-%m-%d/%H-%M-%S")
    for attempt in count(1):
        path = stem if attempt == 1 else stem.with_name(f"{stem.name}-{attempt}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return str(path)
    raise AssertionError("unreachable")


def refuse_used(directory: Path, key: str, experiment: Experiment, plans: bool = False) -> None:
    """Refuse a directory that contains a run, whose files would be lost, or its report.

    Studies and plans are resumed in their directories, where there can be no run.

    Args:
        directory: Of the run.
        key: What has chosen it.
        experiment: What is to be run there.
        plans: Whether it is the base of a plan.

    Raises:
        ConfigError: It contains a run, or the results of a study, a sweep or a plan.
    """
    reported = (directory / A_STUDY).exists()
    studied = reported and (experiment.study is None or _written_by(directory, "sweep"))
    planned = not plans and (directory / A_PLAN).exists()
    if studied or planned or _holds_run(directory):
        raise _used(key, directory.parent if key == "hydra.sweep.dir" else directory)


def refuse_used_sweep(directory: Path, subdirectory: str) -> None:
    """Refuse the directory of a sweep before its first job, as `refuse_used` that of a run.

    Jobs whose directories depend on more than their numbers may be added to those of an earlier
    sweep; `refuse_used` checks them one by one.

    Args:
        directory: Of the sweep.
        subdirectory: Of a job in it, as configured: ``${hydra.job.num}`` stands for its number.

    Raises:
        ConfigError: It contains a run, a study or a plan, or a job would be where a run is.
    """
    numbers = range(len(list(directory.glob("*"))))  # every job has left a folder
    jobs = {directory / _NUMBER.sub(str(number), subdirectory) for number in numbers}
    taken = (directory / A_PLAN).exists() or _written_by(directory, "study")
    if taken or any(map(_holds_run, (directory, *jobs))):
        raise _used("hydra.sweep.dir", directory)


def _written_by(directory: Path, kind: str) -> bool:
    """Return whether a directory holds the report of a study, or of a sweep, as `kind` says."""
    try:
        return read_json(directory / A_STUDY).get("by") == kind
    except (GeomxError, OSError):
        return False  # none, or a damaged one


def _holds_run(directory: Path) -> bool:
    return any((directory / name).exists() for name in A_RUN)


def _used(key: str, directory: Path) -> ConfigError:
    return ConfigError(key, directory, "already holds a run; choose another folder, or delete it")


@contextmanager
def removed(directory: Path) -> Iterator[None]:
    """Remove the directory of a run that the block refuses, if nothing else is in it."""
    try:
        yield
    except GeomxError:
        _remove_unused(directory)
        raise


def _remove_unused(directory: Path) -> None:
    """Remove the directory of a refused run, if it holds only what Hydra wrote into it.

    Folders above it, below the working directory, that this leaves empty go as well.
    """
    if [path.name for path in directory.iterdir()] != [".hydra"]:
        return
    shutil.rmtree(directory / ".hydra")
    here = Path.cwd()
    for folder in (directory, *directory.parents):
        ours = folder == directory != here or here in folder.parents
        if not ours or any(folder.iterdir()):
            return
        folder.rmdir()


def no_directory(error: OSError, key: str = "hydra.run.dir") -> GeomxError:
    """Return what to say, and to do, where a directory cannot be made that `key` chooses."""
    why: object = error
    if isinstance(error, FileExistsError | NotADirectoryError):
        inside = Path(str(error.filename))
        file = next((path for path in (inside, *inside.parents) if path.is_file()), inside)
        why = f"{file} is a file"
    remedy = f"work in a writable folder, or set {key}=FOLDER"
    return GeomxError(f"the run's directory cannot be made: {why}; {remedy}")
