"""Formatting of bytes, seconds and shares, for tables and pages.

Bytes are decimal (1 MB is 1,000,000 bytes), like link speeds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

DASH = "-"


def size(count: float | None) -> str:
    """Format a number of bytes with three significant digits: ``12.4 MB``."""
    if count is None:
        return DASH
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.5:
            return f"{_three_digits(value)} {unit}"
        value /= 1000
    return f"{_three_digits(value)} TB"


def duration(seconds: float | None) -> str:
    """Format seconds with three significant digits: ``83.1 ms``, ``12.4 s``."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds == 0:
        return "0 s"
    if abs(seconds) < 0.9995e-3:
        return f"{_three_digits(seconds * 1e6)} µs"
    if abs(seconds) < 0.9995:
        return f"{_three_digits(seconds * 1e3)} ms"
    return f"{_three_digits(seconds)} s"


class TimeUnit(NamedTuple):
    """A unit in which all values of one quantity are shown, so that they can be compared.

    Attributes:
        name: ``s``, ``ms`` or ``µs``.
        seconds: Its length.
    """

    name: str
    seconds: float

    def show(self, seconds: float | None) -> str:
        """Format seconds in this unit: ``1,204 ms``, ``0.0831 s``."""
        if seconds is None or not math.isfinite(seconds):
            return DASH
        value = seconds / self.seconds
        if 0 < abs(value) < 0.995:
            told = f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"
        else:
            told = _three_digits(value)
        return f"{told} {self.name}"


def time_unit(seconds: float | None) -> TimeUnit:
    """Return the unit in which `duration` shows a time; seconds where it is unknown."""
    if seconds is None or seconds >= 0.9995 or not seconds > 0:
        return TimeUnit("s", 1.0)
    return TimeUnit("ms", 1e-3) if seconds >= 0.9995e-3 else TimeUnit("µs", 1e-6)


def number(value: float | None) -> str:
    """Format a plain number with three significant digits and separated thousands."""
    return DASH if value is None or not math.isfinite(value) else _three_digits(value)


def share(part: float | None, digits: int = 1) -> str:
    """Format a fraction in per cent: ``93.4 %``."""
    if part is None or not math.isfinite(part):
        return DASH
    return f"{100 * part:.{digits}f} %"


def signed_share(part: float | None) -> str:
    """Format a relative error in per cent with its sign: ``+3.20 %``; ``equal`` for exactly 0."""
    if part is None:
        return DASH
    return "equal" if part == 0 else f"{100 * part:+.2f} %"


def decimals(value: float | None, digits: int = 4) -> str:
    """Format a loss or an accuracy with a fixed number of decimals."""
    return DASH if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def _three_digits(value: float) -> str:
    if value == int(value) or abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}"
