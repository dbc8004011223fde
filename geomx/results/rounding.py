"""Rounding of what is measured, so that memory and files agree."""

from __future__ import annotations

from typing import Any

from geomx.results.columns import EVALUATIONS


def rounded(seconds: float) -> float:
    """Round to nanoseconds, so that the file is readable."""
    return round(float(seconds), 9) + 0.0


def figure(value: float | None) -> float | None:
    """Round a loss or an accuracy to nine digits, the precision of float32."""
    return None if value is None else float(f"{value:.9g}")


def evaluation_row(
    time_s: float, iteration: int, accuracy: float | None, loss: float | None
) -> dict[str, Any]:
    """Return a row of ``evaluations.csv``: seconds since the start, step, accuracy and loss."""
    values = rounded(time_s), int(iteration), figure(accuracy), figure(loss)
    return dict(zip(EVALUATIONS, values, strict=True))
