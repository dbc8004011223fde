"""The timeline of the page: the activity of nodes in the first iterations and in the last one.

Where parties do not synchronise in the first iterations, the whole of their first synchronisation
is drawn instead, from the first push over the WAN to the last answer.

A node has one row: its own work as a bar, what it sends as a thin bar below. Adjacent short spans
of one category are merged, so that the size of the page does not depend on that of the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from geomx.pages.charts import legend_key, ticks
from geomx.pages.markup import Markup, join, svg, tag
from geomx.results.files import Row
from geomx.results.trace import Span
from geomx.terminal import units

CATEGORIES = ("compute", "encode", "send", "wait", "aggregate", "update")
MOST_NODES = 24
FIRST_ITERATIONS = 3
MOST_ITERATIONS = 32
"""Iterations in one picture; of a longer synchronisation those around the exchange are drawn."""
_WIDTH, _GUTTER, _ROW, _GAP = 1000.0, 176.0, 22.0, 8.0
_HAIR = 0.6  # drawing units below which a gap is invisible

Window = tuple[str, float, float]


def timeline(
    spans: Sequence[Span], iterations: Sequence[Row], order: Sequence[str], clock: units.TimeUnit
) -> Markup:
    """Draw the windows of `windows`, with legend and notes.

    Args:
        spans: All recorded spans, by start.
        iterations: Rows of ``iterations.csv``, which determine the windows.
        order: Preferred order of nodes; others follow in the order of their appearance.
        clock: Unit of the axes.
    """
    if not spans:
        return tag("p", "Nothing was recorded for the timeline.", class_="note")
    party = {span.node: span.party for span in spans}
    position = {name: index for index, name in enumerate(order)}
    nodes = sorted(party, key=lambda name: position.get(name, len(position)))
    shown = sample(nodes, party)
    seen = {span.category for span in spans}
    keys = [legend_key(name, f"c-{name}") for name in CATEGORIES if name in seen]
    parts = [tag("div", *keys, class_="legend")]
    for title, start, end in windows(spans, iterations):
        picture = _chart(title, [(name, party[name]) for name in shown], spans, start, end, clock)
        parts.append(tag("figure", tag("figcaption", tag("h3", title)), picture))
    if len(shown) < len(nodes):
        note = f"{len(shown)} of {len(nodes)} nodes are drawn; trace.json has them all."
        parts.append(tag("p", note, class_="note"))
    return join(*parts)


def windows(spans: Sequence[Span], iterations: Sequence[Row]) -> list[Window]:
    """Return title, start and end (seconds) of the stretches to draw.

    Args:
        spans: All recorded spans.
        iterations: Rows of ``iterations.csv``.
    """
    whole = ("The whole run", 0.0, max(span.end_s for span in spans))
    numbers = sorted({row["iteration"] for row in iterations})
    if len(numbers) <= FIRST_ITERATIONS + 1:
        return [whole]
    title, chosen = f"The first {FIRST_ITERATIONS} iterations", numbers[:FIRST_ITERATIONS]
    exchange = _first_exchange(spans, _bounds(iterations, chosen)[0])
    first, last = (numbers.index(_iteration(iterations, when_s)) for when_s in exchange or (0, 0))
    if exchange and last >= FIRST_ITERATIONS:
        begin = 0 if last < MOST_ITERATIONS else max(first - 1, 0)
        chosen = numbers[begin : min(last + 1, begin + MOST_ITERATIONS)]
        title = f"Iterations {chosen[0]} to {chosen[-1]}, with the first synchronisation"
    if chosen == numbers:
        return [whole]
    return [
        (title, *_bounds(iterations, chosen)),
        (f"The last iteration (number {numbers[-1]}, counted from 0)",
         *_bounds(iterations, numbers[-1:])),
    ]  # fmt: skip


def _first_exchange(spans: Sequence[Span], begin_s: float) -> tuple[float, float] | None:
    """Return start and end of the first round of messages between parties, pushes and answers.

    Args:
        spans: All recorded spans.
        begin_s: The start of training; what is sent before is not part of a round.

    Returns:
        None without messages. In a run of one party, the messages between its nodes count.
    """
    party = {span.node: span.party for span in spans}
    sent = [span for span in spans if span.category == "send" and span.start_s >= begin_s]
    crossing = [span for span in sent if party.get(span.receiver) not in (None, span.party)]
    if not sent:
        return None
    first = min(crossing or sent, key=lambda span: span.start_s)
    round_number = first.args.get("round")
    same = [span for span in crossing or sent if span.args.get("round") == round_number]
    return first.start_s, max(span.end_s for span in same)


def _iteration(iterations: Sequence[Row], when_s: float) -> int:
    """Return the number of the earliest iteration that includes an instant, or follows it."""
    numbers = (int(row["iteration"]) for row in iterations if when_s <= row["end_s"])
    return min(numbers, default=max(int(row["iteration"]) for row in iterations))


def _bounds(iterations: Sequence[Row], chosen: Sequence[int]) -> tuple[float, float]:
    rows = [row for row in iterations if row["iteration"] in chosen]
    return min(row["start_s"] for row in rows), max(row["end_s"] for row in rows)


def sample(nodes: Sequence[str], party: dict[str, str]) -> list[str]:
    """Return at most `MOST_NODES` nodes, in order: a few parties rather than a part of each."""
    if len(nodes) <= MOST_NODES:
        return list(nodes)
    members: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        members[party[node]].append(node)
    parties = spread(list(members), 5)
    each = MOST_NODES // len(parties)
    chosen = {node for name in parties for node in spread(members[name], each)}
    return [node for node in nodes if node in chosen]


def spread(items: Sequence[str], most: int) -> list[str]:
    """Return at most `most` of `items`, evenly spaced, including the first and the last."""
    if len(items) <= most:
        return list(items)
    if most == 1:
        return [items[0]]
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _chart(
    title: str,
    rows: Sequence[tuple[str, str]],
    spans: Sequence[Span],
    start: float,
    end: float,
    clock: units.TimeUnit,
) -> Markup:
    scale = (_WIDTH - _GUTTER - 8) / max(end - start, 1e-12)
    lanes: dict[tuple[str, bool], list[Span]] = defaultdict(list)
    for span in spans:
        if span.end_s > start and span.start_s < end:
            lanes[span.node, span.category == "send"].append(span)
    parts, y, previous = [], 4.0, rows[0][1]
    for name, party in rows:
        y += _GAP if party != previous else 0
        previous = party
        parts.append(tag("text", name, x=_GUTTER - 10, y=y + 12, class_="tick end"))
        whole = {"x": _GUTTER, "width": _WIDTH - _GUTTER - 8}
        parts.append(tag("rect", **whole, y=y, height=_ROW - 4, class_="lane"))
        for sends, top, height in ((False, y + 1, 11.0), (True, y + 13.0, 4.0)):
            for bar in _bars(lanes[name, sends], start, end, scale):
                parts.append(bar.draw(name, top, height))
        y += _ROW
    height = y + 28
    for value in ticks(start / clock.seconds, end / clock.seconds, 8):
        x = _GUTTER + (value * clock.seconds - start) * scale
        parts.insert(0, tag("line", x1=x, x2=x, y1=2.0, y2=y, class_="grid"))
        parts.append(tag("text", f"{value:.10g} {clock.name}", x=x, y=y + 16, class_="tick middle"))
    return svg(_WIDTH, height, title, *parts, class_="gantt")


class _Bar:
    """One span, or several adjacent ones of one category."""

    def __init__(self, span: Span, x: float, width: float) -> None:
        self.category, self.name, self.args = span.category, span.name, span.args
        self.x, self.end_x = x, x + width
        self.start_s, self.end_s, self.busy_s = span.start_s, span.end_s, span.duration_s
        self.count = 1

    def absorb(self, span: Span, x: float, width: float) -> bool:
        """Merge `span` if it is indistinguishable from this bar; return whether it was merged."""
        touches = x - self.end_x < _HAIR and span.category == self.category
        if not touches or min(width, self.end_x - self.x) > 4:
            return False
        self.end_x = max(self.end_x, x + width)
        self.end_s = max(self.end_s, span.end_s)
        self.busy_s += span.duration_s
        self.count += 1
        return True

    def draw(self, node: str, top: float, height: float) -> Markup:
        """Return the bar with its tooltip."""
        what = self.name if self.count == 1 else f"{self.count} {self.category} spans"
        lines = [f"{node}: {what}"]
        lines.append(f"{self.start_s:.6g} s to {self.end_s:.6g} s, {units.duration(self.busy_s)}")
        if self.count == 1 and self.args:
            lines.append(", ".join(f"{key} {value}" for key, value in self.args.items()))
        category = self.category if self.category in CATEGORIES else "other"
        return tag(
            "rect",
            x=self.x,
            width=max(self.end_x - self.x, _HAIR),
            y=top,
            height=height,
            class_=f"bar c-{category}",
            data_tip="\n".join(lines),
        )


def _bars(spans: Sequence[Span], start: float, end: float, scale: float) -> list[_Bar]:
    bars: list[_Bar] = []
    for span in sorted(spans, key=lambda span: (span.category != "wait", span.start_s)):
        first, last = max(span.start_s, start), min(span.end_s, end)
        x, width = _GUTTER + (first - start) * scale, (last - first) * scale
        if not (bars and bars[-1].absorb(span, x, width)):
            bars.append(_Bar(span, x, width))
    return bars
