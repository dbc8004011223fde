"""The page of ``mode=both``: the prediction compared with the measurement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from geomx.pages.charts import Series, line_chart, time_axis
from geomx.pages.commands import command_line
from geomx.pages.markup import Markup, tag
from geomx.pages.page import (
    by_iteration,
    document,
    footer,
    iteration_s,
    note,
    section,
    training_loss,
)
from geomx.results.files import Row, write_json, write_text
from geomx.results.results import Results
from geomx.results.tables import comparison_rows, condition, costs_note, pace_note, title
from geomx.results.trace import merge
from geomx.terminal import units

STYLES = {"simulated": "series-0", "live": "series-1"}


def leave(sim: Results, live: Results, comparison: Mapping[str, Any], directory: Path) -> None:
    """Write ``comparison.json``, ``report.html`` and the ``trace.json`` of both runs.

    Args:
        sim: The prediction.
        live: The measurement.
        comparison: Content of ``comparison.json``.
        directory: Directory that contains the folders of both runs.
    """
    write_json(directory / "comparison.json", comparison)
    write_text(directory / "report.html", render(sim, live, comparison))
    traces = {"sim": sim.directory / "trace.json", "live": live.directory / "trace.json"}
    merge(traces, directory / "trace.json")


def render(sim: Results, live: Results, comparison: Mapping[str, Any]) -> str:
    """Return the page.

    Args:
        sim: The prediction.
        live: The measurement.
        comparison: Content of ``comparison.json``.
    """
    what, _, _ = title(live.summary).partition(" · ")
    where, _, _ = condition(live.summary).rpartition(" · ")
    header = tag(
        "header",
        tag("p", f"geomx {live.summary.get('geomx', '')} · simulated and live", class_="eyebrow"),
        tag("h1", what),
        tag("p", where, class_="lead"),
        command_line(live.summary.get("words", ())),
    )
    runs = {"simulated": sim, "live": live}
    links = [
        tag("a", f"{name} run", href=f"{run.directory.name}/report.html")
        for name, run in runs.items()
    ]
    body = [
        header,
        section("Both runs over time", tag("div", *_charts(runs), class_="charts")),
        section(
            "Prediction and measurement",
            _table(comparison),
            note(costs_note(sim.summary)),
            note(pace_note(live.summary)),
        ),
        tag("p", "Each run has its own report: ", links[0], ", ", links[1], ".", class_="note"),
        footer("comparison.json, the folders of both runs, and trace.json with both timelines."),
    ]
    return document(f"{what}, simulated and live", body)


def _charts(runs: Mapping[str, Results]) -> list[Markup]:
    def per_iteration(
        x: str, value: Callable[[Row], float], known: Callable[[Row], bool] = lambda row: True
    ) -> list[Series]:
        return [
            by_iteration(name, STYLES[name], list(filter(known, run.iterations)), x, value)
            for name, run in runs.items()
        ]

    def held_out(field: str) -> list[Series]:
        return [
            Series(
                name,
                STYLES[name],
                [(row["time_s"], row[field]) for row in run.evaluations],
                dots=True,
            )
            for name, run in runs.items()
        ]

    loss = per_iteration("end_s", training_loss, lambda row: row["loss"] is not None)
    longest_s = max((run.summary["seconds"] or 0.0 for run in runs.values()), default=0.0)
    time = time_axis(units.time_unit(longest_s))
    pace = units.time_unit(runs["live"].summary["seconds_per_iteration"]["mean"])
    figures = [
        line_chart("Training loss over time", loss, **time, y_text=units.decimals),
        line_chart("Held-out loss over time", held_out("loss"), **time, y_text=units.decimals),
        line_chart(
            "Accuracy over time",
            held_out("accuracy"),
            **time,
            y_text=units.share,
            y_range=(None, 1.0),
        ),
        line_chart(
            f"Time per iteration, in {pace.name}",
            per_iteration("iteration", iteration_s),
            x_label="iteration",
            x_text=lambda x: f"iteration {x:.0f}",
            y_text=pace.show,
            y_range=(0.0, None),
            y_unit=pace.seconds,
        ),
    ]
    return [figure for figure in figures if figure]


def _table(comparison: Mapping[str, Any]) -> Markup:
    head = [
        tag("th", text, class_="num" if text else None) for text in ("", "sim", "live", "error")
    ]
    rows = [
        tag("tr", tag("th", name), *(tag("td", text, class_="num") for text in values))
        for name, *values in comparison_rows(comparison)
    ]
    return tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows))
