"""Experiments, studies and sweeps, as the words of the command line describe them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from geomx.config import compose
from geomx.errors import GeomxError
from geomx.experiment.experiment import Experiment
from geomx.frameworks.mxnet_loader import compute_at_once
from geomx.live import resume
from geomx.live.fork_pool import kept
from geomx.live.resumption import Resumption
from geomx.pages.commands import repeating, setting
from geomx.results.tables import comparison_table
from geomx.runner import execute
from geomx.study.variants import conduct, gather, jobs_in
from geomx.terminal.output import WIDE, show, telling_where


def main(arguments: Sequence[str]) -> None:
    """Simulate, run live, or both, as `arguments` say."""
    if resume.asked(arguments):
        _run_one(*resume.read(arguments))
    else:
        with kept():
            compose.main(arguments, _run_one, _compare_sweep)


def _run_one(experiment: Experiment, directory: Path, resumption: Resumption | None = None) -> None:
    """Run one experiment, show its results, and print its directory as the last line."""
    if experiment.study is not None:
        _run_study(experiment, directory)
        return
    compute_at_once()  # live workers are processes of their own
    with telling_where(directory):
        results = execute(experiment, directory, resumption)
    show(results.table())
    if experiment.mode == "both":
        comparison, sim = (
            json.loads((directory / name).read_text(encoding="utf-8"))
            for name in ("comparison.json", "sim/summary.json")
        )
        show(comparison_table(comparison, sim))
    show(directory)


def _run_study(experiment: Experiment, directory: Path) -> None:
    """Run the variants of a study, show their comparison, and print its directory last."""
    try:
        comparison = conduct(experiment, directory)
    except KeyboardInterrupt:
        words = [*repeating(experiment.overrides), setting("hydra.run.dir", directory)]
        again = shlex.join(["python", "-m", "geomx", *words])
        show(f"finished variants are kept; to continue: {again}")
        raise
    show(comparison.table(), WIDE)
    show(directory)
    failed = [row for row in comparison.rows if row.status == "failed"]
    if failed:
        raise GeomxError(f"{failed[0].name} failed: {failed[0].reason}")


def _compare_sweep(directory: Path, overrides: Sequence[str]) -> None:
    """Write a report on a sweep beside its jobs, show its table, and print its directory."""
    if not directory.is_dir() or not any(jobs_in(directory)):
        return  # no job has begun
    comparison = gather(directory, overrides)
    if comparison is not None:
        show(comparison.table(), WIDE)
    show(directory)
