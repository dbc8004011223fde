"""Bar charts: one line per run and one panel per quantity, to compare many runs at a glance.

A panel may have a yardstick, a dashed line at the reference value; the run that is the reference
itself has a colour of its own, and the best value of each panel is bold. A panel whose values are
close together, compared with their size, may show dots on a scale of its own instead of bars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geomx.pages.markup import Markup, join, svg, tag

LINE, BAR, HEAD = 24.0, 14.0, 30.0
NAMES, PANEL, GAP, TEXT = 190.0, 210.0, 18.0, 68.0
_LETTER = 6.6  # generous width of a letter in the names' size


@dataclass(frozen=True)
class Panel:
    """One quantity of every run.

    Attributes:
        title: What the bars show.
        values: One per run, 0 or more; None draws no bar.
        texts: Labels at the ends of the bars.
        yardstick: Reference value; None for none.
        best: The label of the best values; empty if it is unknown.
        dots: Whether to show dots on a scale from the smallest to the largest value.
    """

    title: str
    values: Sequence[float | None]
    texts: Sequence[str]
    yardstick: float | None = None
    best: str = ""
    dots: bool = False


def bars(
    title: str, names: Sequence[str], panels: Sequence[Panel], special: int | None = None
) -> Markup:
    """Draw panels side by side, each with a scale from 0 to its largest value.

    Args:
        title: Description of the drawing.
        names: Labels of the lines.
        panels: At least one.
        special: The line of the reference; None if it is not among them.

    Returns:
        An ``<svg>`` element.
    """
    left = max([NAMES, *(_LETTER * len(name) for name in names)])
    width = left + len(panels) * (PANEL + GAP)
    height = HEAD + len(names) * LINE
    parts: list[Markup] = []
    for line, name in enumerate(names):
        parts.append(tag("text", name, x=left - 12, y=_baseline(line), class_="end"))
    for number, panel in enumerate(panels):
        parts.append(_panel(panel, left + number * (PANEL + GAP), special))
    return svg(width, height, title, *parts, class_="compare")


def _panel(panel: Panel, left: float, special: int | None) -> Markup:
    known = [value for value in (*panel.values, panel.yardstick) if value is not None]
    least, most = (
        (min(known, default=0.0), max(known, default=0.0))
        if panel.dots
        else (0.0, max(known, default=0.0))
    )
    scale = (PANEL - TEXT) / ((most - least) or most or 1.0)
    top, bottom = HEAD - 6, HEAD + len(panel.values) * LINE
    parts = [tag("text", panel.title, x=left, y=14.0, class_="tick")]
    if not panel.dots:
        parts.append(tag("line", x1=left, x2=left, y1=top, y2=bottom, class_="grid"))
    if panel.yardstick is not None:
        at = left + scale * (panel.yardstick - least)
        parts.append(tag("line", x1=at, x2=at, y1=top, y2=bottom, class_="yardstick"))
    for line, (value, text) in enumerate(zip(panel.values, panel.texts, strict=True)):
        length = 0.0 if value is None else scale * (value - least)
        middle = HEAD + line * LINE + LINE / 2
        style = "series-1" if line == special else "series-0"
        if value is not None and panel.dots:
            parts.append(tag("circle", cx=left + length, cy=middle, r=5.0, class_=f"fill {style}"))
        elif value is not None:
            size = {"width": length, "height": BAR}
            parts.append(tag("rect", x=left, y=middle - BAR / 2, **size, class_=f"fill {style}"))
        look = "halo tick" if value is None else "halo best" if text == panel.best else "halo"
        beside = 5.0 + (5.0 if panel.dots else 0.0)
        parts.append(tag("text", text, x=left + length + beside, y=_baseline(line), class_=look))
    return join(*parts)


def _baseline(line: int) -> float:
    return HEAD + line * LINE + LINE / 2 + 4
