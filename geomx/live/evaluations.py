"""The evaluations that a launched script reports, as a file of its run."""

from __future__ import annotations

from pathlib import Path

from geomx.live.journal import Reader, stem
from geomx.results.files import Table
from geomx.results.rounding import EVALUATIONS, evaluation_row


def write_evaluations(directory: Path, worker: str) -> None:
    """Write ``evaluations.csv``; no effect if the script has reported nothing.

    Args:
        directory: Directory of the run.
        worker: Name of the worker whose reports count.
    """
    notes = [note for note in Reader(stem(directory, worker)).new() if "evaluation" in note]
    if not notes:
        return
    table = Table(directory / "evaluations.csv", EVALUATIONS)
    for note in notes:
        told = note["time_s"], note["evaluation"], note["accuracy"], note["loss"]
        table.add(evaluation_row(*told))
    table.close()
