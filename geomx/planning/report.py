"""Output of a plan: the table, ``plan.json``, a chart, a page, and the command for a live run.

``plan.json`` is an interface like ``summary.json``: candidates are in the order of the ranking,
followed by those that are not ranked, with the reason.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from geomx.experiment.experiment import Experiment
from geomx.options.schema import TO_ACCURACY
from geomx.pages.bars import Chart, Panel
from geomx.pages.commands import command_line
from geomx.pages.markup import Markup, tag
from geomx.pages.page import document, footer, note, section
from geomx.pages.picture import standalone
from geomx.planning.candidates import BASELINE
from geomx.planning.certainty import Certainty, Fidelity
from geomx.planning.judge import Judge
from geomx.planning.outcome import Outcome, Standing, mean
from geomx.planning.verdict import verdict
from geomx.results.files import write_json, write_text
from geomx.terminal import units
from geomx.version import __version__

SCHEMA = 1
SHOWN = 10
"""Number of candidates in the terminal's table and in the chart."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """A finished plan.

    Attributes:
        directory: Directory of its files.
        content: Content of ``plan.json``.
    """

    directory: Path
    content: dict[str, Any]

    @classmethod
    def write(
        cls,
        directory: Path,
        overrides: Sequence[str],
        base: Experiment,
        judge: Judge,
        exhaustive: bool,
        error: Fidelity,
        certainty: Certainty | None,
    ) -> Plan:
        """Collect the results of `judge` and write the files of the plan.

        Args:
            directory: Directory of the plan.
            overrides: Overrides given to the plan.
            base: The experiment with the baseline's plugins.
            judge: The evaluated candidates.
            exhaustive: Whether all candidates were simulated.
            error: Error of the simulator.
            certainty: Certainty of the first choice; None if nothing is ranked.
        """
        ranking, candidates = judge.ranking(), judge.candidates()
        out = [standing for standing in candidates if standing not in ranking]
        baseline = judge.standings[BASELINE]
        rows = [_row(judge, standing) for standing in (*ranking, *out)]
        header = base.header()
        content = {
            "schema": SCHEMA,
            "geomx": __version__,
            "words": list(overrides),
            "network": header["network"],
            "workload": header["workload"],
            "by": judge.by,
            "target_accuracy": judge.target,
            "max_accuracy_loss": judge.max_loss,
            "numerics": judge.numerics,
            "exhaustive": exhaustive,
            "simulated": len(rows),
            "trained": sum(bool(s.outcomes) for s in candidates) if judge.numerics else 0,
            "simulator_error": {
                "median": error.median, "p95": error.p95, "source": error.source
            },
            "certainty": None if certainty is None else certainty.to_json(),
            "command": _command(judge.command(ranking[0])) if ranking else None,
            "live_first": _live_first(rows),
            "alone": None if judge.alone is None else _row(judge, judge.alone),
            "baseline": None if baseline in candidates else _row(judge, baseline),
            "candidates": rows,
        }  # fmt: skip
        made = cls(directory, content)
        write_json(directory / "plan.json", content)
        picture = standalone(made.chart().picture(), made.condition)
        write_text(directory / "chart.svg", picture)
        write_text(directory / "report.html", made.page())
        return made

    # ---- text ----

    @property
    def ranked(self) -> list[Row]:
        """The ranked candidates, the best first."""
        return [row for row in self.content["candidates"] if row["status"] == "ranked"]

    @property
    def aim(self) -> str:
        """The ranked quantity: ``time to 92.4 %``."""
        if self.content["by"] == TO_ACCURACY:
            return f"time to {units.share(self.content['target_accuracy'])}"
        return "time per iteration"

    @property
    def condition(self) -> str:
        """Workload, network, ranked quantity and number of candidates, in one line."""
        content = self.content
        how = "all" if content["exhaustive"] else "the most promising"
        trained = f", {content['trained']} trained" if content["numerics"] else ""
        return (
            f"{content['workload']['name']} on {content['network']['name']} · by {self.aim} · "
            f"{how} {content['simulated']} combinations simulated{trained}"
        )

    def verdict(self) -> list[str]:
        """Return sentences on what to run, how certain that is and why."""
        return verdict(self.content, self.aim, self.directory)

    # ---- table, chart and page ----

    def table(self) -> Table:
        """Return the best of the ranking and the baseline as a table for `rich.print`."""
        table = Table(
            title=Text(self.condition), title_justify="left", box=SIMPLE_HEAD, pad_edge=False,
            padding=(0, 1, 0, 0),
        )  # fmt: skip
        shown = self._columns()
        for number, (heading, _) in enumerate(shown):
            table.add_column(heading, justify="left" if number == 1 else "right", no_wrap=True)
        for rank, row in self._lines():
            table.add_row(*(Text(show(rank, row)) for _, show in shown))
        if self._notes():
            table.caption, table.caption_justify = Text("\n".join(self._notes())), "left"
        return table

    def _lines(self, most: int = SHOWN) -> list[tuple[str, Row]]:
        """Return rows with their ranks: the best, and the baseline.

        One party alone has no rank, and neither has the baseline if it is not to be chosen.
        """
        ranked = [(str(rank), row) for rank, row in enumerate(self.ranked, 1)]
        lines = ranked[:most]
        lines += [line for line in ranked[most:] if line[1]["name"] == BASELINE.name]
        beside = [self.content["alone"], self.content["baseline"]]
        lines += [("", row) for row in beside if row is not None and row["seconds"] is not None]
        return sorted(lines, key=lambda line: line[1]["seconds"]["mean"])

    def _notes(self) -> list[str]:
        """Return explanations of columns."""
        if not self.content["numerics"]:
            return []
        said = ["end: accuracy with which the row's command ends, simulated; a mean over seeds"]
        if any(self._guessed(row) for _, row in self._lines()):
            said.append("~ taken from a longer run; only the commands of the best are simulated")
        return said

    def _guessed(self, row: Row) -> bool:
        return self.content["by"] == TO_ACCURACY and row["ends"] is None

    def _columns(self) -> list[tuple[str, Any]]:
        """Return headings, each with a function that formats its cells."""
        columns: list[tuple[str, Any]] = [
            ("", lambda rank, row: rank),
            ("combination", lambda rank, row: row["name"] + ("" if row["lossless"] else " *")),
        ]
        if self.content["by"] == TO_ACCURACY:
            columns.append((self.aim, lambda rank, row: units.duration(row["seconds"]["mean"])))
            columns.append(("iterations", lambda rank, row: str(row["iterations"])))
        columns.append(
            ("per iteration", lambda rank, row: units.duration(row["seconds_per_iteration"]))
        )
        if self.content["numerics"]:
            columns.append(
                ("end", lambda rank, row: "~" * self._guessed(row) + units.share(row["accuracy"]))
            )
        columns.append(
            ("WAN per iteration", lambda rank, row: units.size(row["wan_bytes_per_iteration"]))
        )
        if any(row["live"] for row in self.ranked):
            columns.append((f"live: {self.aim}", lambda rank, row: units.duration(_live(row))))
        return columns

    def chart(self) -> Chart:
        """Return bars of the ranked time and of the bytes, the best first."""
        rows = [row for _, row in self._lines()]
        base = next((row for row in rows if row["name"] == BASELINE.name), None)
        panels = []
        columns: list[tuple[str, Callable[[Any], Any], Callable[[Any], str]]] = [
            (self.aim, lambda row: row["seconds"]["mean"], units.duration),
            ("WAN per iteration", lambda row: row["wan_bytes_per_iteration"], units.size),
        ]
        for title, figure, show in columns:
            values = [figure(row) for row in rows]
            texts = [show(value) for value in values]
            panels.append(Panel(title, values, texts, figure(base) if base else None))
        special = rows.index(base) if base else None
        return Chart(self.condition, [row["name"] for row in rows], panels, special)

    def page(self) -> str:
        """Return ``report.html``."""
        head = tag(
            "header",
            tag("p", "geomx · plan", class_="eyebrow"),
            tag("h1", self.ranked[0]["name"] if self.ranked else "Nothing can be ranked"),
            tag("p", self.condition, class_="lead"),
        )
        _, (_, name), *columns = self._columns()
        heads = [tag("th", "combination"), *(tag("th", h, class_="num") for h, _ in columns)]
        body = [
            tag(
                "tr",
                tag("th", f"{rank}. {name(rank, row)}" if rank else name(rank, row)),
                *(tag("td", show(rank, row), class_="num") for _, show in columns),
            )
            for rank, row in self._lines(len(self.ranked))
        ]
        ranking = tag(
            "table", tag("thead", tag("tr", *heads)), tag("tbody", *body), class_="compared"
        )
        out = [
            tag("tr", tag("th", row["name"]), tag("td", row["status"]), tag("td", row["reason"]))
            for row in self.content["candidates"]
            if row["status"] != "ranked"
        ]
        overrides = shlex.split(self.content["command"])[3:] if self.ranked else []
        command = command_line(overrides) if overrides else Markup("")
        beyond = [tag("table", tag("tbody", *out), class_="plain")] if out else []
        parts = [
            head,
            section("What to run", command, *(tag("p", sentence) for sentence in self.verdict())),
            section(
                "At a glance", self.chart().on_page(),
                note(f"The best comes first, by {self.aim}. The dashed line is {BASELINE.name}."),
            ),
            section("The ranking", ranking, *map(note, (STAR, *self._notes()))),
            section("Not ranked", *beyond),
            footer("plan.json, chart.svg; candidates/ and alone/ with a folder per run."),
        ]  # fmt: skip
        return document(f"plan · {self.condition}", parts)


STAR = "* trains with different values than the baseline: it may need more iterations or end lower."


def _row(judge: Judge, standing: Standing) -> Row:
    outcomes = list(standing.outcomes.values()) or ([standing.sized] if standing.sized else [])
    candidate, seconds = standing.candidate, judge.values(standing)
    ranked = math.isfinite(judge.value(standing))
    status, reason = ("ranked", "") if ranked else _reason(judge, standing)
    iterations = [o.iterations for o in outcomes if o.iterations is not None]
    reached = [o.held for o in outcomes if o.held is not None] if ranked else []
    accuracies = list(standing.ends.values()) or reached
    accuracies = accuracies or [o.accuracy for o in outcomes if o.accuracy is not None]
    return {
        "name": candidate.name,
        "words": judge.overrides(candidate),
        "sync": candidate.sync,
        "accel": list(candidate.accel),
        "settings": dict(candidate.settings),
        "lossless": standing.lossless,
        "status": status,
        "reason": reason,
        "seconds": {
            "mean": judge.value(standing), "min": min(seconds), "max": max(seconds),
            "seeds": len(standing.outcomes),
        } if ranked else None,
        "seconds_per_iteration": _mean([o.seconds_per_iteration for o in outcomes]),
        "iterations": max(iterations) if iterations else None,
        "accuracy": _mean(accuracies),
        "ends": {
            "min": min(standing.ends.values()), "max": max(standing.ends.values()),
            "seeds": len(standing.ends),
        } if standing.ends else None,
        "wan_bytes_per_iteration": _mean([o.wan_bytes for o in outcomes]),
        "live": None if standing.live is None else _outcome(judge, standing.live),
        "live_reason": standing.live_reason,
        "command_iterations": judge.iterations(standing),
        "command": _command(judge.command(standing)),
    }  # fmt: skip


def _reason(judge: Judge, standing: Standing) -> tuple[str, str]:
    if standing.reason:
        return "refused", standing.reason
    if not standing.outcomes:
        return "untrained", "could not be among the best"
    if judge.by == TO_ACCURACY:
        reached = sum(o.seconds is not None for o in standing.outcomes.values())
        seeds = f"{reached} of {len(standing.outcomes)} seeds"
        said = f"reached a lasting {units.share(judge.target)} with {seeds}"
        if math.isfinite(judge.value(judge.standings[BASELINE])):
            said += f" within the time of {BASELINE.name}"
        return "too slow", said
    lost = judge.shortfall(standing) + judge.max_loss
    return "loses accuracy", f"{units.share(lost)} less than {BASELINE.name}"


def _outcome(judge: Judge, outcome: Outcome) -> Row:
    by_accuracy = judge.by == TO_ACCURACY
    return {
        "seconds": outcome.seconds if by_accuracy else outcome.seconds_per_iteration,
        "seconds_per_iteration": outcome.seconds_per_iteration,
        "accuracy": outcome.accuracy,
        "iterations": outcome.iterations,
    }


def _live(row: Row) -> float | None:
    return row["live"]["seconds"] if row["live"] else None


def _live_first(rows: Sequence[Row]) -> str | None:
    """Return the fastest of the completed live runs, or None if there was none."""
    done = [row for row in rows if _live(row) is not None]
    return min(done, key=lambda row: row["live"]["seconds"])["name"] if done else None


def _command(overrides: Sequence[str]) -> str:
    return shlex.join(["python", "-m", "geomx", *overrides])


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None
