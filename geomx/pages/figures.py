"""The quantities of a comparison: how they are called and shown, and which value is best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from geomx.terminal import units

Figures = dict[str, float | None]


@dataclass(frozen=True)
class Figure:
    """A quantity: field, label, short label, its format, and which of several values is best."""

    field: str
    label: str
    short: str
    show: Any
    better: Callable[..., float] = min

    def of(self, rows: Sequence[Figures]) -> list[float]:
        """Return the known values of `rows`, in order."""
        values = (row.get(self.field) for row in rows)
        return [value for value in values if value is not None]

    def best(self, rows: Sequence[Figures]) -> str:
        """Return the best value as it is shown; empty if none is known."""
        known = self.of(rows)
        return str(self.show(self.better(known))) if known else ""

    def alike(self, rows: Sequence[Figures]) -> Figure:
        """Return the same quantity with times in one unit: that of the first known value."""
        if self.show is not units.duration:
            return self
        return replace(self, show=units.time_unit(next(iter(self.of(rows)), None)).show)

    def ratio(self, figures: Mapping[str, float | None], base: Mapping[str, float | None]) -> Any:
        """Return the quantity over the baseline's; None if one is missing or the latter is 0."""
        mine, theirs = figures.get(self.field), base.get(self.field)
        return None if mine is None or not theirs else mine / theirs


FIGURES = (
    Figure("seconds_per_iteration", "time per iteration", "iteration", units.duration),
    Figure("seconds_to_target", "time to target", "to target", units.duration),
    Figure("wan_bytes", "over the WAN", "WAN", units.size),
    Figure("samples_per_second", "samples per second", "samples/s", units.number, max),
    Figure("accuracy", "final accuracy", "accuracy", units.share, max),
)
DRAWN = ("seconds_per_iteration", "seconds_to_target", "wan_bytes", "accuracy")
"""Quantities in the chart and in the terminal's table, where space is limited."""


def ratio(value: float | None) -> str:
    """Format a ratio with its significant decimals: ``0.028``, ``0.79``, ``12.4``."""
    if value is None:
        return units.DASH
    digits = 1 if value >= 9.95 else 2 if value >= 0.0995 else 3
    return f"{value:.{digits}f}"
