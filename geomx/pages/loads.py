"""The load of edges over time, as a line chart of a run's report."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import networkx as nx

from geomx.pages.charts import Series, line_chart, time_axis
from geomx.pages.markup import Markup, join, tag
from geomx.pages.utilisation import Ways
from geomx.results.files import Row, read_table
from geomx.results.trace import Timeline
from geomx.terminal import units

MOST_EDGES = 6
BINS = 160
MOST_SPANS = 50_000
"""Of longer timelines nothing is drawn, so that the page of a large run is made quickly."""

Edge = tuple[str, str]


class Loads(NamedTuple):
    """Mbit/s by edge over time, and the time until which they are known (None: all of it)."""

    lines: Mapping[Edge, Sequence[tuple[float, float]]]
    until_s: float | None = None


def chart(
    directory: Path,
    timeline: Timeline,
    graph: nx.Graph | None,
    edges: Sequence[Row],
    clock: units.TimeUnit,
) -> Markup:
    """Draw the loads of the edges that are used most.

    Args:
        directory: That of the run, whose ``edges_over_time.csv`` has measured loads of a
            simulation; without it they follow from the messages in the timeline.
        timeline: The spans of the run.
        graph: The network, None if unknown.
        edges: Rows of ``edges.csv``.
        clock: Unit of the axis of time.

    Returns:
        A figure with a note; empty if nothing is known.
    """
    busiest = sorted((row for row in edges if row["utilisation"]), key=lambda r: -r["utilisation"])
    chosen = [(row["source"], row["target"]) for row in busiest[:MOST_EDGES]]
    if not chosen or graph is None:
        return Markup("")
    path = directory / "edges_over_time.csv"
    loads = sampled(path, chosen) if path.is_file() else of_messages(timeline, graph, chosen)
    series = [
        Series(f"{edge[0]} → {edge[1]}", f"series-{number}", loads.lines[edge])
        for number, edge in enumerate(chosen)
        if edge in loads.lines
    ]
    figure = line_chart(
        "Load over time, in Mbit/s", series, **time_axis(clock),
        y_text=lambda mbps: f"{mbps:.4g} Mbit/s", y_range=(0.0, None),
    )  # fmt: skip
    if not figure:
        return Markup("")
    told = f"The {len(series)} edges with the highest utilisation, of {len(edges):,}."
    if not path.is_file():
        told += " Each message counts with its mean rate."
    if loads.until_s is not None:
        told += f" Until {clock.show(loads.until_s)}, as far as the timeline has all messages."
    return join(tag("div", figure, class_="charts"), tag("p", told, class_="note"))


def sampled(path: Path, chosen: Sequence[Edge]) -> Loads:
    """Return the loads of ``edges_over_time.csv``.

    Args:
        path: The file.
        chosen: The edges.
    """
    lines: dict[Edge, list[tuple[float, float]]] = defaultdict(list)
    for row in read_table(path, ("time_s", "source", "target", "load_mbps")):
        if (edge := (row["source"], row["target"])) in chosen:
            lines[edge].append((row["time_s"], row["load_mbps"]))
    return Loads(lines)


def of_messages(timeline: Timeline, graph: nx.Graph, chosen: Sequence[Edge]) -> Loads:
    """Return the loads that follow from messages, each at its mean rate while it was sent.

    Args:
        timeline: The spans of the run.
        graph: The network.
        chosen: The edges.
    """
    if timeline.seen - timeline.dropped > MOST_SPANS:
        return Loads({})
    sends = [span for span in timeline.spans if span.category == "send" and span.args.get("bytes")]
    until_s = min((start_s for start_s, _ in timeline.all_gaps), default=None)
    end_s = max((span.end_s for span in sends), default=0.0) if until_s is None else until_s
    if not sends or not end_s > 0:
        return Loads({})
    width_s, routes = end_s / BINS, Ways(graph)
    megabits = {edge: [0.0] * BINS for edge in chosen}
    for span in sends:
        crossed = [edge for edge in routes(span.node, span.receiver) if edge in megabits]
        if not crossed or span.start_s >= end_s:
            continue
        first, last = span.start_s / width_s, min(span.end_s / width_s, float(BINS))
        whole = 8e-6 * span.args["bytes"]
        for bin_number in range(int(first), min(BINS, math.ceil(last)) if last > first else 0):
            inside = min(last, bin_number + 1) - max(first, bin_number)
            part = whole * inside * width_s / span.duration_s
            for edge in crossed:
                megabits[edge][bin_number] += part
        if last <= first and int(first) < BINS:  # it took no time
            for edge in crossed:
                megabits[edge][int(first)] += whole
    lines = {
        edge: [((number + 0.5) * width_s, value / width_s) for number, value in enumerate(bins)]
        for edge, bins in megabits.items()
    }
    return Loads(lines, until_s)
