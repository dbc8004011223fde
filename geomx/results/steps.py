"""Values of ``summary.json`` that are computed from the rows of a run's tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from geomx.results.files import Row
from geomx.results.rounding import figure, rounded


def measured(
    rows: Sequence[Row], evaluations: Sequence[Row], seconds: float | None
) -> dict[str, Any]:
    """Return these values; those of ``steps`` are at the top of the file.

    Args:
        rows: Of ``iterations.csv``.
        evaluations: Of ``evaluations.csv``.
        seconds: Duration of the run so far; None: unknown.
    """
    samples = sum(row["samples"] for row in rows)
    accuracies, losses = (
        [row[name] for row in evaluations if row[name] is not None] for name in ("accuracy", "loss")
    )
    made = unequal(rows)
    return {
        "steps": {
            "seconds_per_iteration": durations(rows),
            "samples_per_second": samples / seconds if seconds and samples else None,
            **({"iterations_made": made} if made else {}),
        },
        "accuracy": {
            "final": accuracies[-1] if accuracies else None,
            "best": max(accuracies, default=None),
        },
        "loss": {"final": (losses or [None])[-1] if evaluations else last_loss(rows)},
    }


def unequal(rows: Sequence[Row]) -> list[int]:
    """Return the fewest and the most steps that a worker has made; empty if all made as many."""
    made = Counter(row["worker"] for row in rows).values()
    fewest, most = min(made, default=0), max(made, default=0)
    return [fewest, most] if fewest < most else []


def durations(rows: Sequence[Row]) -> dict[str, float | None]:
    """Return mean, median (``p50``) and 95th percentile of the steps' durations in seconds."""
    if not rows:
        return dict.fromkeys(("mean", "p50", "p95"))
    took = np.array([row["end_s"] - row["start_s"] for row in rows])
    half, most = np.percentile(took, [50, 95])
    return {"mean": rounded(took.mean()), "p50": rounded(half), "p95": rounded(most)}


def last_loss(rows: Sequence[Row]) -> float | None:
    """Return the mean training loss of the last iteration, for runs without held-out data."""
    last = max((row["iteration"] for row in rows), default=None)
    losses = [row["loss"] for row in rows if row["iteration"] == last and row["loss"] is not None]
    return figure(sum(losses) / len(losses)) if losses else None
