"""``geomx run --help``: the options of an experiment, which Hydra lists; nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from geomx.config import compose
from geomx.experiment.experiment import Experiment


def main(arguments: Sequence[str]) -> None:
    """Print the help of the experiment that `arguments` describe."""
    compose.main(arguments, _nothing)


def _nothing(experiment: Experiment, directory: Path) -> None:
    """Stand in for the job, which Hydra does not start."""
