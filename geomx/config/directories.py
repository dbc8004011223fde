"""Directories of runs: one that holds a run is refused, and a refused run leaves none."""

from __future__ import annotations

import shutil
from pathlib import Path

from geomx.errors import ConfigError, GeomxError
from geomx.experiment.experiment import Experiment

A_RUN = ("summary.json", "comparison.json", "nodes")  # what the directory of a run holds


def refuse_used(directory: Path, key: str, experiment: Experiment) -> None:
    """Refuse a directory that contains a run, which would be lost.

    A study is resumed in its directory, and a plan's base experiment is not run there.

    Raises:
        ConfigError: It contains a run.
    """
    if experiment.study is None and any((directory / name).exists() for name in A_RUN):
        place = directory.parent if key == "hydra.sweep.dir" else directory
        raise ConfigError(key, place, "already holds a run; choose another folder, or delete it")


def remove_unused(directory: Path) -> None:
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


def no_directory(error: OSError) -> GeomxError:
    """Return what to say, and to do, where the directory of a run cannot be made."""
    remedy = "work in a writable folder, or set hydra.run.dir=FOLDER"
    return GeomxError(f"the run's directory cannot be made: {error}; {remedy}")
