"""Line charts: a line, optionally with a band, two axes, and values under the mouse.

The picture is complete without scripts. Positions and labels of the points are stored in an
attribute; a few lines of JavaScript (page.js) show the one nearest to the pointer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from geomx.pages.markup import Markup, join, svg, tag
from geomx.terminal.units import TimeUnit

WIDTH, HEIGHT = 340.0, 220.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 36.0, 8.0, 8.0, 36.0
_MOST_POINTS = 400


@dataclass(frozen=True)
class Series:
    """One line.

    Attributes:
        name: For the legend and under the mouse.
        style: CSS class, ``series-0`` and so on.
        points: (x, y), sorted by x.
        low, high: Lower and upper edge of the band around each point, or empty.
        dots: Whether to draw the points as well.
    """

    name: str
    style: str
    points: Sequence[tuple[float, float]]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dots: bool = False


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about `about` round numbers within [low, high]."""
    if not high > low:
        return [low]
    raw = (high - low) / max(about, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 12) + 0.0 for index in range(first, last + 1)]


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
    y_range: tuple[float | None, float | None] = (None, None),
    x_unit: float = 1.0,
    y_unit: float = 1.0,
) -> Markup:
    """Draw a chart with a heading and a legend.

    Args:
        title: Heading.
        series: Lines; points that are not finite are left out.
        x_label: Label of the x axis.
        x_text: Formats a value of x, for the text under the mouse.
        y_text: The same for y.
        y_range: Fixed ends of the y axis; None takes the end from the data.
        x_unit: The value of x for which its axis says 1: 0.001 for seconds on an axis in ms.
        y_unit: The same for y.

    Returns:
        A ``<figure>`` element; empty without finite points.
    """
    series = [thin for line in series if (thin := _thinned(line)).points]
    if not series:
        return Markup("")
    xs = [x for line in series for x, _ in line.points]
    ys = [y for line in series for _, y in line.points]
    ys += [edge for line in series for edge in (*line.low, *line.high)]
    x_axis = _Axis(min(xs), max(xs), _LEFT, WIDTH - _RIGHT)
    margin = (max(ys) - min(ys)) * 0.06 or abs(max(ys)) * 0.1 or 1.0
    floor = min(ys) - margin if min(ys) < 0 else max(0.0, min(ys) - margin)
    low = floor if y_range[0] is None else y_range[0]
    high = max(ys) + margin if y_range[1] is None else y_range[1]
    y_axis = _Axis(low, high, HEIGHT - _BOTTOM, _TOP)
    drawing = [_grid(x_axis, y_axis, x_label, all(x == int(x) for x in xs), (x_unit, y_unit))]
    drawing += [_band(line, x_axis, y_axis) for line in series if line.low]
    drawing += [_line(line, x_axis, y_axis) for line in series]
    drawing.append(tag("g", class_="focus"))
    hover = [
        {
            "name": line.name,
            "style": line.style,
            "points": [
                [round(x_axis(x), 1), round(y_axis(y), 1), x_text(x), y_text(y)]
                for x, y in line.points
            ],
        }
        for line in series
    ]
    picture = svg(
        WIDTH,
        HEIGHT,
        f"{title}: {', '.join(line.name for line in series)}",
        *drawing,
        class_="chart",
        data_hover=json.dumps(hover, ensure_ascii=False, separators=(",", ":")),
    )
    keys = [legend_key(line.name, line.style) for line in series]
    caption = tag("figcaption", tag("h3", title), tag("span", *keys, class_="legend"))
    return tag("figure", caption, picture)


def time_axis(unit: TimeUnit) -> dict[str, Any]:
    """Return the arguments of `line_chart` for an axis of time, whose values are in seconds."""
    return {"x_label": f"time in {unit.name}", "x_text": unit.show, "x_unit": unit.seconds}


def legend_key(name: str, style: str) -> Markup:
    """Return a legend entry.

    Args:
        name: Its label.
        style: CSS class of its coloured square.
    """
    return tag("span", tag("i", class_=f"key {style}"), name)


class _Axis:
    def __init__(self, low: float, high: float, first: float, last: float) -> None:
        self.low, self.high = low, high if high > low else low + 1.0
        self.first, self.last = first, last

    def __call__(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low)
        return self.first + part * (self.last - self.first)


def _grid(
    x_axis: _Axis, y_axis: _Axis, x_label: str, whole_x: bool, of_one: tuple[float, float]
) -> Markup:
    parts, (x_unit, y_unit) = [], of_one
    for value in ticks(y_axis.low / y_unit, y_axis.high / y_unit):
        y = y_axis(value * y_unit)
        parts.append(tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", f"{value:g}", x=_LEFT - 7, y=y + 4, class_="tick end"))
    for value in ticks(x_axis.low / x_unit, x_axis.high / x_unit):
        if whole_x and value != int(value):
            continue
        place = {"x": x_axis(value * x_unit), "y": HEIGHT - _BOTTOM + 16}
        parts.append(tag("text", f"{value:g}", **place, class_="tick middle"))
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(tag("text", x_label, x=middle, y=HEIGHT - 5, class_="tick middle"))
    return join(*parts)


def _band(line: Series, x_axis: _Axis, y_axis: _Axis) -> Markup:
    xs = [x_axis(x) for x, _ in line.points]
    upper = list(zip(xs, map(y_axis, line.high), strict=True))
    lower = list(zip(xs, map(y_axis, line.low), strict=True))
    return tag("path", d=_path([*upper, *reversed(lower)]) + "Z", class_=f"band {line.style}")


def _line(line: Series, x_axis: _Axis, y_axis: _Axis) -> Markup:
    places = [(x_axis(x), y_axis(y)) for x, y in line.points]
    path = tag("path", d=_path(places), class_=f"line {line.style}")
    if not line.dots and len(places) > 1:
        return path
    dots = [tag("circle", cx=x, cy=y, r=2.4, class_=f"dot {line.style}") for x, y in places]
    return join(path, *dots)


def _path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _thinned(line: Series) -> Series:
    """Return the line with its finite points only, at most `_MOST_POINTS` of them."""
    kept = [i for i, (x, y) in enumerate(line.points) if math.isfinite(x) and math.isfinite(y)]
    if len(kept) > _MOST_POINTS:
        last = len(kept) - 1
        kept = [kept[round(i * last / (_MOST_POINTS - 1))] for i in range(_MOST_POINTS)]
    return Series(
        line.name,
        line.style,
        [line.points[i] for i in kept],
        [line.low[i] for i in kept] if line.low else (),
        [line.high[i] for i in kept] if line.high else (),
        line.dots,
    )
