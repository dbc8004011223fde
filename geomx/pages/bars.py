"""Bar charts: one line per run and one panel per quantity, to compare many runs at a glance.

The values are written in a column to the right of the bars. A panel may have a yardstick, a dashed
line at the reference value, which ends where this column begins; the run that is the reference
itself has a colour of its own, and the best value of each panel is bold. A panel whose values are
close together, compared with their size, may show dots on a scale of its own instead of bars; the
ends of that scale are written below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geomx.pages.markup import Markup, join, svg, tag

LINE, BAR, HEAD, FOOT = 24.0, 14.0, 30.0, 18.0
NAMES, PANEL, GAP, TEXT = 190.0, 218.0, 18.0, 80.0
_NARROW_NAMES = 120.0
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


@dataclass(frozen=True)
class Chart:
    """Bars of several runs.

    Attributes:
        title: Description of the drawing.
        names: Labels of the lines.
        panels: At least one; each has a scale from 0 to its largest value.
        special: The line of the reference; None if it is not among them.
    """

    title: str
    names: Sequence[str]
    panels: Sequence[Panel]
    special: int | None = None

    def picture(self) -> Markup:
        """Return an ``<svg>`` element with the panels side by side."""
        left = self._left(NAMES)
        height = self._height(any(panel.dots for panel in self.panels))
        drawn = [self._names(left)]
        for number, panel in enumerate(self.panels):
            drawn.append(_panel(panel, left + number * (PANEL + GAP), self.special))
        return svg(self._width, height, self.title, *drawn, class_="compare")

    def on_page(self) -> Markup:
        """Return `picture`, and for narrow screens the panels below each other."""
        left = self._left(_NARROW_NAMES)
        below = [
            svg(
                left + PANEL,
                self._height(panel.dots),
                f"{self.title}: {panel.title}",
                self._names(left),
                _panel(panel, left, self.special),
                class_="compare",
            )
            for panel in self.panels
        ]
        most = f"max-width:{self._width:g}px"
        return join(
            tag("div", self.picture(), class_="wide", style=most),
            tag("div", *below, class_="narrow"),
        )

    @property
    def _width(self) -> float:
        return self._left(NAMES) + len(self.panels) * (PANEL + GAP) - GAP

    def _left(self, least: float) -> float:
        """Return where the panels begin, to the right of the names."""
        return max([least, *(_LETTER * len(name) + 12 for name in self.names)])

    def _height(self, foot: bool) -> float:
        return HEAD + len(self.names) * LINE + FOOT * foot

    def _names(self, left: float) -> Markup:
        lines = enumerate(self.names)
        return join(
            *(
                tag("text", text, x=left - 12, y=_baseline(line), class_="end")
                for line, text in lines
            )
        )


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
        look = "end tick" if value is None else "end best" if text == panel.best else "end"
        parts.append(tag("text", text, x=left + PANEL, y=_baseline(line), class_=look))
    if panel.dots:
        shown = [
            (value, text)
            for value, text in zip(panel.values, panel.texts, strict=True)
            if value is not None
        ]
        for value, text in sorted({min(shown), max(shown)} if shown else ()):
            x = left + scale * (value - least)
            parts.append(tag("text", text, x=x, y=bottom + 14, class_="tick middle"))
    return join(*parts)


def _baseline(line: int) -> float:
    return HEAD + line * LINE + LINE / 2 + 4
