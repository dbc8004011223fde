"""Rounding of what is measured, so that memory and files agree."""

from __future__ import annotations


def rounded(seconds: float) -> float:
    """Round to nanoseconds, so that the file is readable."""
    return round(float(seconds), 9) + 0.0


def figure(value: float | None) -> float | None:
    """Round a loss or an accuracy to nine digits, the precision of float32."""
    return None if value is None else float(f"{value:.9g}")
