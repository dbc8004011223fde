"""Comparison of several runs with one of them: files, table and page of a study or a sweep.

Five quantities describe a variant: time per iteration, time until held-out accuracy first reaches
the target, bytes over the WAN, samples per second and final accuracy. Each is also given as a ratio
to that of the baseline: 0.5 is half of it. ``study.json`` is an interface like ``summary.json``;
``study.csv`` has the same rows for spreadsheets.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from geomx.pages.bars import Chart, Panel
from geomx.pages.commands import command_line, repeating
from geomx.pages.figures import DRAWN, FIGURES, Figure, Figures, ratio
from geomx.pages.markup import Markup, tag
from geomx.pages.page import document, footer, section
from geomx.pages.picture import standalone
from geomx.results.files import replacing, write_json, write_text
from geomx.results.results import Results
from geomx.results.tables import condition
from geomx.terminal import units

SCHEMA = 1
TARGET_SHARE = 0.95
"""Default target of a comparison, as a fraction of the baseline's best accuracy."""


@dataclass(frozen=True)
class Entry:
    """One variant and its results.

    Attributes:
        name: Name in tables.
        overrides: The overrides that distinguish it.
        directory: Its folder beside the report.
        status: ``done``; ``refused``, ``failed`` or ``unfinished`` with a `reason`.
        reason: One line.
        results: The run, if it is done.
    """

    name: str
    overrides: Sequence[str]
    directory: str
    status: str
    reason: str = ""
    results: Results | None = None

    @classmethod
    def of(cls, results: Results, name: str, overrides: Sequence[str], directory: str) -> Entry:
        """Return the entry of a run with results; an aborted run is unfinished.

        Args:
            results: The run.
            name: Name in tables.
            overrides: The overrides that distinguish it.
            directory: Its folder beside the report.
        """
        if "aborted" in results.summary:
            reason = str(results.summary["aborted"])
            return cls(name, overrides, directory, "unfinished", reason)
        return cls(name, overrides, directory, "done", "", results)

    def plain(self, sync: str) -> bool:
        """Return whether it uses the sync algorithm `sync` and no accelerators."""
        summary: Mapping[str, Any] = self.results.summary if self.results else {}
        return summary.get("sync", {}).get("name") == sync and not summary.get("accel")

    def figures(self, target: float | None) -> Figures:
        """Return the quantities of the run by field.

        Args:
            target: Accuracy of ``seconds_to_target``, 0..1; None for none.
        """
        if self.results is None:
            return {}
        summary = self.results.summary
        reached = (
            row["time_s"]
            for row in self.results.evaluations
            if target is not None and row["accuracy"] >= target
        )
        return {
            "seconds_per_iteration": summary["seconds_per_iteration"]["mean"],
            "seconds_to_target": next(reached, None),
            "wan_bytes": summary["bytes"]["wan_push"] + summary["bytes"]["wan_pull"],
            "samples_per_second": summary["samples_per_second"],
            "accuracy": summary["accuracy"]["final"],
        }


@dataclass(frozen=True)
class Row:
    """A line of ``study.json``; see `Entry` and `FIGURES`."""

    name: str
    words: list[str]
    directory: str
    status: str
    reason: str
    figures: Figures
    against_baseline: Figures


@dataclass(frozen=True)
class Comparison:
    """A study, finished or interrupted.

    Attributes:
        directory: Directory of its files.
        entries: The variants, the baseline first.
        target: Accuracy of ``seconds_to_target``, 0..1; None if there is none.
        overrides: Overrides of the study or the sweep.
        rows: Content of ``study.json``, under ``variants``.
    """

    directory: Path
    entries: Sequence[Entry]
    target: float | None
    overrides: Sequence[str]
    rows: Sequence[Row]

    @classmethod
    def write(
        cls,
        directory: Path,
        entries: Sequence[Entry],
        target: float | None,
        overrides: Sequence[str],
        by: Literal["study", "sweep"],
    ) -> Comparison:
        """Compare `entries`, and write the files to `directory`.

        Args:
            directory: An existing directory.
            entries: At least one; the first is the baseline.
            target: Accuracy, 0..1; None for `TARGET_SHARE` of the baseline's best.
            overrides: Overrides of the study or the sweep.
            by: Which of the two it is.
        """
        baseline = entries[0]
        if target is None and baseline.results is not None:
            best = baseline.results.summary["accuracy"]["best"]
            target = None if best is None else TARGET_SHARE * best
        base = baseline.figures(target)
        rows = []
        for entry in entries:
            figures = entry.figures(target)
            ratios = {figure.field: figure.ratio(figures, base) for figure in FIGURES}
            rows.append(
                Row(
                    entry.name,
                    list(entry.overrides),
                    entry.directory,
                    entry.status,
                    entry.reason,
                    figures,
                    ratios if figures else {},
                )
            )
        made = cls(directory, entries, target, repeating(overrides), rows)
        made._write_files(by)
        return made

    def table(self) -> Table:
        """Return the comparison for `rich.print`: every quantity and its ratio."""
        done = self._ranked()
        table = Table(
            title=Text(self.title), title_justify="left", caption_justify="left",
            box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), expand=not done,
        )  # fmt: skip
        table.add_column("variant", overflow="fold")
        shown = [figure for figure in self._shown() if figure.field in DRAWN]
        best = self._best(shown)
        for figure in shown:
            table.add_column(self.label(figure, short=True), justify="right", no_wrap=True)
            table.add_column("ratio", justify="right", style="dim", no_wrap=True)
        if not shown:  # no variant has results
            table.add_column("reason", overflow="fold")
        for row in (*done, *(row for row in self.rows if row not in done)):
            cells = []
            for figure in shown:
                told = figure.show(row.figures.get(figure.field))
                cells.append(Text(told, style="bold" if told == best[figure.field] else ""))
                cells.append(Text(ratio(row.against_baseline.get(figure.field))))
            if not shown:
                cells.append(Text(f"{row.status}: {row.reason}"))
            table.add_row(Text(row.name), *cells)
        told = [f"{row.name}: {row.status}: {row.reason}" for row in self.rows if row.reason]
        if told and shown:
            table.caption = Text("\n".join(told))
        return table

    @property
    def title(self) -> str:
        """What is compared, in one line."""
        done = next((entry.results for entry in self.entries if entry.results), None)
        return f"{self._variants()} · {condition(done.summary)}" if done else self._variants()

    def _variants(self) -> str:
        if all(row.status in ("refused", "failed") for row in self.rows):
            return f"{len(self.entries)} variants, none of which has results"
        return f"{len(self.entries)} variants against {self.entries[0].name}"

    def label(self, figure: Figure, short: bool = False) -> str:
        """Return the label of a quantity, with the target's value in place of the word.

        Args:
            figure: The quantity.
            short: Whether to use the short label.
        """
        label = figure.short if short else figure.label
        return label.replace("target", units.share(self.target))

    def chart(self) -> Chart:
        """Return a chart with a panel of bars per quantity and a line per finished variant."""
        done = self._ranked()
        panels = []
        for figure in self._shown():
            if figure.field not in DRAWN:
                continue
            values = [row.figures[figure.field] for row in done]
            texts = [figure.show(value) if value is not None else "not reached" for value in values]
            base = self.rows[0].figures.get(figure.field)
            best, dots = self._best([figure])[figure.field], figure.field == "accuracy"
            panels.append(Panel(self.label(figure), values, texts, base, best, dots))
        special = 0 if done and done[0] is self.rows[0] else None
        return Chart(self.title, [row.name for row in done], panels, special)

    def caption(self) -> str:
        """Return the conditions of the comparison and the command that repeats it."""
        done = next((entry.results for entry in self.entries if entry.results), None)
        if done is None:
            return ""
        summary = done.summary
        workload, network = summary["workload"], summary["network"]
        said = [
            f"{condition(summary)}: {workload['elements']:,} parameters",
            f"{network['parties']} parties, {network['workers']} workers",
            f"{summary['iterations']} iterations, seed {summary['seed']}",
            f"geomx {summary['geomx']}",
            shlex.join(["python", "-m", "geomx", *self.overrides]),
        ]
        return " · ".join(said)

    def _shown(self) -> list[Figure]:
        """Return the quantities that at least one variant has."""
        rows = [row.figures for row in self.rows]
        return [figure.alike(rows) for figure in FIGURES if figure.of(rows)]

    def _best(self, shown: Sequence[Figure]) -> dict[str, str]:
        """Return the best value of each quantity as it is shown."""
        rows = [row.figures for row in self._ranked()]
        return {figure.field: figure.best(rows) for figure in shown}

    def _ranked(self) -> list[Row]:
        """Return the finished variants: the baseline, then the others by time to the target.

        Those that do not reach it come last, by time per iteration.
        """

        def rank(row: Row) -> tuple[bool, bool, float]:
            reached = row.figures.get("seconds_to_target")
            time_s = row.figures.get("seconds_per_iteration") if reached is None else reached
            return row is not self.rows[0], reached is None, time_s or 0.0

        return sorted((row for row in self.rows if row.status == "done"), key=rank)

    def _write_files(self, by: str) -> None:
        content = {
            "schema": SCHEMA,
            "by": by,
            "words": list(self.overrides),
            "baseline": self.entries[0].name,
            "target_accuracy": self.target,
            "variants": [asdict(row) for row in self.rows],
        }
        write_json(self.directory / "study.json", content)
        fields = [figure.field for figure in FIGURES]
        with replacing(self.directory / "study.csv") as file:
            writer = csv.writer(file, lineterminator="\n")
            ratios = [f"{field}_ratio" for field in fields]
            writer.writerow(["name", "directory", "status", "reason", *fields, *ratios, "words"])
            for row in self.rows:
                told = [row.name, row.directory, row.status, row.reason]
                values = [row.figures.get(field) for field in fields]
                values += [row.against_baseline.get(field) for field in fields]
                writer.writerow([*told, *values, shlex.join(row.words)])
        picture = standalone(self.chart().picture(), self.caption())
        write_text(self.directory / "chart.svg", picture)
        write_text(self.directory / "report.html", self._page())

    def _page(self) -> str:
        done = next((entry.results for entry in self.entries if entry.results), None)
        lead = condition(done.summary) if done else "nothing was finished"
        head = tag(
            "header",
            tag("p", "geomx · comparison", class_="eyebrow"),
            tag("h1", self._variants()),
            tag("p", lead, class_="lead"),
            command_line(self.overrides),
        )
        told = (
            "The best values are bold. The dashed line is the baseline; others are sorted by time."
        )
        if any(figure.field == "accuracy" for figure in self._shown()):
            told += " Accuracy has a scale of its own, from the lowest to the highest."
        figures = [
            section("At a glance", self.chart().on_page(), tag("p", told, class_="note")),
            section("In figures", self._html_table(), tag("p", RATIO_NOTE, class_="note")),
        ]
        body = [
            head,
            *(figures if done else ()),
            section("Without results", *self._unfinished()),
            footer("study.json and study.csv, chart.svg, and one folder per variant."),
        ]
        return document(self.title, body)

    def _html_table(self) -> Markup:
        shown = self._shown()
        head = [tag("th", "variant")]
        for figure in shown:
            head += [
                tag("th", self.label(figure), class_="num"),
                tag("th", "ratio", class_="num soft"),
            ]
        body = []
        best = self._best(shown)
        for row in self._ranked():
            cells = []
            for figure in shown:
                told = figure.show(row.figures[figure.field])
                look = "num best" if told == best[figure.field] else "num"
                cells.append(tag("td", told, class_=look))
                text = ratio(row.against_baseline[figure.field])
                cells.append(tag("td", text, class_="num soft"))
            link = tag("a", row.name, href=f"{row.directory}/report.html")
            body.append(tag("tr", tag("th", link), *cells))
        parts = (tag("thead", tag("tr", *head)), tag("tbody", *body))
        return tag("table", *parts, class_="compared")

    def _unfinished(self) -> list[Markup]:
        rows = [
            tag("tr", tag("th", row.name), tag("td", row.status), tag("td", row.reason))
            for row in self.rows
            if row.reason
        ]
        return [tag("table", tag("tbody", *rows), class_="plain")] if rows else []


RATIO_NOTE = (
    "Ratios are to the baseline: 0.50 is half of it. Time to an accuracy is the time of the first "
    "evaluation that reaches it. A variant's name leads to its own report."
)
