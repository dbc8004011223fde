"""``geomx collect``: the files of a run from what its nodes left in one folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomx.cli import overrides
from geomx.live.launcher import collect
from geomx.machines import jobfile
from geomx.machines.launch import composed_experiment
from geomx.terminal.output import show


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("job", metavar="JOB.yaml", help="the job file of the run")
    parser.add_argument(
        "directory", metavar="DIRECTORY", help="the directory that its nodes shared"
    )
    overrides.add(parser, "overrides, as given to the scheduler")


def main(options: argparse.Namespace) -> None:
    """Convert the files that the nodes of a run left in one folder to those of a run.

    Raises:
        ConfigError: The job file is invalid.
        GeomxError: The run did not finish.
    """
    experiment = composed_experiment(jobfile.read(Path(options.job)), overrides.given(options))
    results = collect(experiment, Path(options.directory))
    show(results.table())
    show(results.directory)
