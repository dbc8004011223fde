"""A plan for a training script: ``geomx plan ... -- COMMAND``.

The script is simulated with plain full synchrony, which gives its tensors and the computing of its
steps. All combinations are then ranked by time, with a workload that has these
(`geomx.explaining.stand_in`). The script itself is simulated with the best of them: only that shows
what they do to the accuracy and the loss that it reports.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from geomx import planning
from geomx.config.compose import compose
from geomx.errors import ConfigError, GeomxError
from geomx.explaining.evidence import Evidence
from geomx.explaining.stand_in import stand_in
from geomx.pages.commands import OF_ONE_SCRIPT, repeating, setting
from geomx.planning.candidates import BASELINE
from geomx.planning.report import SCHEMA
from geomx.plugin.calling import one_line
from geomx.results.files import write_json
from geomx.results.results import Results
from geomx.results.words import key_of
from geomx.runner import simulate_command
from geomx.terminal import units
from geomx.terminal.log import say
from geomx.version import __version__

TIMES, RUNS = "times", "script"
"""Folders of the plan by time, and of the script's simulations."""
FASTEST, LOSES, REFUSED, BASE = "ranked", "loses accuracy", "refused", "baseline"
"""Statuses of rows; a baseline that is not among ``plan.sync`` is only there for comparison."""
OF_THE_SCRIPT = "is the script's; leave it out"
NOT_OF_SCRIPTS = {
    "workload": OF_THE_SCRIPT,
    "iterations": OF_THE_SCRIPT,
    "plan.by": "a script is ranked by time per iteration; its accuracy is shown, and limited by "
    "plan.max_loss",
    "plan.target": "a script is ranked by time per iteration; leave it out",
    "plan.live": "a script is launched by the command that the plan prints; leave it out",
}

Row = dict[str, Any]

FIRST: Row = {
    "name": BASELINE.name,
    "words": list(BASELINE.overrides),
    "sync": BASELINE.sync,
    "accel": list(BASELINE.accel),
    "lossless": True,
}
"""The baseline, as a row of ``plan.json`` describes it."""


@dataclass(frozen=True)
class ScriptPlan:
    """A finished plan for a script.

    Attributes:
        directory: Directory of its files.
        content: Content of ``script.json``: ``candidates`` are the combinations with which the
            script was simulated, the fastest first, then those with a reason against them;
            ``command`` launches the first, and is None if none can be chosen.
    """

    directory: Path
    content: dict[str, Any]

    def table(self) -> Table:
        """Return the combinations with which the script was simulated, for `rich.print`."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left")
        table.title = Text(f"{self.content['script']} on {self.content['network']}")
        for heading in ("combination", "per iteration", "accuracy", "loss", "WAN per iteration"):
            left = heading == "combination"
            table.add_column(heading, justify="left" if left else "right", no_wrap=True)
        for row in self.content["candidates"]:
            name = row["name"] + ("" if row["lossless"] else " *")
            if row["status"] == REFUSED:
                continue
            table.add_row(
                Text(name),
                units.duration(row["seconds_per_iteration"]),
                "-" if row["accuracy"] is None else units.share(row["accuracy"]),
                "-" if row["loss"] is None else f"{row['loss']:.4g}",
                units.size(row["wan_bytes_per_iteration"]),
            )
        table.caption, table.caption_justify = Text(self._condition()), "left"
        return table

    def _condition(self) -> str:
        content = self.content
        return (
            f"the best by time of {content['simulated']} combinations ({TIMES}/plan.json); "
            f"* trains with other values than {BASELINE.name}"
        )

    def verdict(self) -> Iterator[str]:
        """Yield sentences on what to run and why, and the command at the end."""
        rows = self.content["candidates"]
        for row in rows:
            if row["status"] in (LOSES, REFUSED):
                yield f"{row['name']}: {row['reason']}"
        (base,) = (row for row in rows if row["name"] == BASELINE.name)
        first = rows[0]
        if first["status"] != FASTEST:
            yield f"no combination of plan.sync can be chosen; {base['name']} is not among them"
            return
        said = f"first choice: {first['name']}"
        if first is not base:
            ratio = base["seconds_per_iteration"] / first["seconds_per_iteration"]
            said += f", {units.number(ratio)} times as fast as {base['name']}"
        yield said
        if base["accuracy"] is None and not first["lossless"]:
            yield (
                "the script reports no accuracy, so what the first choice does to it is unknown: "
                "call geomx.report(accuracy=...) in it"
            )
        if self.content["shadows"]:
            yield f"one worker ran the script, and the others were its shadows: {OF_ONE_SCRIPT}"
        yield self.content["command"]


def make(
    overrides: Sequence[str],
    command: Sequence[str],
    compute: str,
    shadows: bool = False,
) -> ScriptPlan:
    """Make a plan for a script and write its files to its run directory.

    Args:
        overrides: As of `geomx.planning.make`, without a workload.
        command: The command of every worker, as of ``geomx simulate``.
        compute: What its computing takes, likewise.
        shadows: Whether one worker runs it, and the others are its shadows, likewise.

    Returns:
        The plan.

    Raises:
        ConfigError: An override is invalid.
        GeomxError: The script cannot be simulated with the baseline, which also is if it is not to
            be chosen.
    """
    for override in overrides:
        if (key := key_of(override)) in NOT_OF_SCRIPTS:
            raise ConfigError(key, override.partition("=")[2], NOT_OF_SCRIPTS[key])
    kept, _, options = planning.sorted_out(overrides)
    base, directory = compose([*kept, *BASELINE.overrides], plans=True)
    kept = repeating(kept)

    trials = _Trials(kept, directory / RUNS, command, compute, shadows, options.max_loss)
    first = trials.simulate(FIRST)
    if options.sync is not None and BASELINE.sync not in options.sync:
        trials.rows[0]["status"] = BASE
    likeness = stand_in(Evidence(first.directory), directory / TIMES)
    place = setting("hydra.run.dir", directory / TIMES)
    by_time = planning.make([*repeating(overrides), *likeness, place])
    for row in by_time.ranked:
        if row["name"] != BASELINE.name and trials.wants(row, options.tried):
            trials.attempt(row)
    rows = sorted(
        trials.rows, key=lambda row: (row["status"] != FASTEST, row["seconds_per_iteration"] or 0.0)
    )
    launch = ["geomx", "launch", *kept, *rows[0]["words"], "--", *command]
    content = {
        "schema": SCHEMA,
        "geomx": __version__,
        "words": list(overrides),
        "script": shlex.join(command),
        "compute": compute,
        "shadows": shadows,
        "network": base.header()["network"]["name"],
        "max_accuracy_loss": options.max_loss,
        "simulated": by_time.content["simulated"],
        "command": shlex.join(launch) if rows[0]["status"] == FASTEST else None,
        "candidates": rows,
    }
    write_json(directory / "script.json", content)
    return ScriptPlan(directory, content)


class _Trials:
    """Simulations of the script with one combination after another.

    Args:
        overrides: Overrides of all of them.
        directory: Directory of their folders.
        command: As of `make`.
        compute: As of `make`.
        shadows: As of `make`.
        max_loss: Accepted loss of accuracy against the first one.

    Attributes:
        rows: Their rows of ``script.json``.
    """

    def __init__(
        self,
        overrides: Sequence[str],
        directory: Path,
        command: Sequence[str],
        compute: str,
        shadows: bool,
        max_loss: float,
    ) -> None:
        self._overrides, self._directory = overrides, directory
        self._command, self._max_loss = command, max_loss
        self._compute, self._shadows = compute, shadows
        self.rows: list[Row] = []

    def wants(self, row: Row, count: int) -> bool:
        """Return whether a combination is to be tried, after all that are faster by time.

        The best `count` are, and the best that trains as the first one does. A sync algorithm with
        which the script could not be simulated, and no simulation has worked, is not tried again.
        """
        works = {one["sync"] for one in self.rows if one["status"] != REFUSED}
        if row["sync"] not in works and any(row["sync"] == one["sync"] for one in self.rows):
            return False
        done = [one for one in self.rows[1:] if one["status"] != REFUSED]
        return len(done) < count or (row["lossless"] and not any(one["lossless"] for one in done))

    def attempt(self, row: Row) -> None:
        """Simulate the script with a combination; its row says why if that is not possible."""
        try:
            self.simulate(row)
        except GeomxError as error:
            self._add(row, REFUSED, one_line(error))

    def simulate(self, row: Row) -> Results:
        """Simulate the script with a combination, and add its row.

        Raises:
            GeomxError: The script cannot be simulated with it.
        """
        say(f"the script with {row['name']}", "info")
        place = self._directory / str(len(self.rows))
        experiment, _ = compose([*self._overrides, *row["words"]], directory=place)
        results = simulate_command(experiment, place, self._command, self._compute, self._shadows)
        status, reason, accuracy = FASTEST, "", results.summary["accuracy"]["final"]
        if self.rows and self.rows[0]["accuracy"] is not None:
            lost = self.rows[0]["accuracy"] - (accuracy or 0.0)
            if lost > self._max_loss:
                status, reason = LOSES, f"ends {units.share(lost)} below {self.rows[0]['name']}"
        self._add(row, status, reason, results)
        return results

    def _add(self, row: Row, status: str, reason: str, results: Results | None = None) -> None:
        about = {name: row[name] for name in ("name", "words", "sync", "accel", "lossless")}
        self.rows.append({**about, "status": status, "reason": reason, **_figures(results)})


def _figures(results: Results | None) -> Row:
    """Return what a simulation tells: nothing if there is none."""
    if results is None:
        keys = ("seconds_per_iteration", "accuracy", "loss", "wan_bytes_per_iteration", "directory")
        return dict.fromkeys(keys)
    summary = results.summary
    crossed = summary["bytes"]["wan_push"] + summary["bytes"]["wan_pull"]
    return {
        "seconds_per_iteration": summary["seconds_per_iteration"]["mean"],
        "accuracy": summary["accuracy"]["final"],
        "loss": summary["loss"]["final"] if results.evaluations else None,
        "wan_bytes_per_iteration": crossed / summary["iterations"],
        "directory": str(results.directory),
    }
