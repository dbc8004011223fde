"""Output of ``geomx explain``: text for the terminal and a section of the run's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from geomx.pages.markup import Markup, tag
from geomx.pages.page import section
from geomx.terminal import units

SCHEMA = 1
SHOWN = 12
"""Limit on the rows of a table in the terminal; ``explain.json`` has all."""
NEGLIGIBLE = 0.001

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Explanation:
    """Explanation of a run.

    Attributes:
        directory: Directory of the run.
        content: Content of ``explain.json``.
    """

    directory: Path
    content: dict[str, Any]

    def shown(self) -> Group:
        """Return everything for `rich.print`."""
        blocks: list[Any] = []
        for run in self.content["runs"]:
            blocks += [_heading(run), _table(PATH, _path(run)), Text("")]
        change = self.content["what_if"]
        if change["reason"]:
            blocks.append(Text(change["reason"]))
        else:
            blocks += [Text(_asked(change), style="bold"), _table(CHANGES, _changes(change))]
            # The terminal wraps these: a command can then be copied as it is.
            blocks += [Text(line, no_wrap=True, overflow="ignore") for line in advice(change)]
        return Group(*blocks)

    def section(self, mode: str) -> Markup:
        """Return the section for the page of a run.

        Args:
            mode: ``sim`` or ``live``.
        """
        run = next(one for one in self.content["runs"] if one["mode"] == mode)
        change = self.content["what_if"]
        what_if = [tag("p", change["reason"])]
        if not change["reason"]:
            what_if = [tag("p", _asked(change)), _html(CHANGES, _changes(change))]
            what_if += [tag("p", line, class_="note") for line in advice(change)]
        return section(
            "What an iteration waits for", tag("p", _looked_at(run)), tag("p", run["said"]),
            _html(PATH, _path(run)), *what_if,
        )  # fmt: skip


def advice(change: Row) -> list[str]:
    """Return the command for the best change, and why others could not be tried.

    Args:
        change: ``what_if`` of ``explain.json``.
    """
    said = []
    useful = [one for one in change["changes"] if (one["gain"] or 0.0) > NEGLIGIBLE]
    for best in (useful[:1], [one for one in useful if one["exact"]][:1]):
        line = "".join(f"to see {one['name']}: {one['command']}" for one in best)
        said += [line] if line and line not in said else []
    if any(not one["exact"] for one in change["changes"]):
        said.append("* trains with different values: it may need more iterations or end lower")
    return said + [
        f"{one['name']} cannot be tried: {one['reason']}"
        for one in change["changes"]
        if one["reason"]
    ]


PATH = ("share", "per iteration", "what", "sending", "queueing", "delay")
CHANGES = ("per iteration", "change", "what if")


def _path(run: Row) -> Sequence[Sequence[str]]:
    pace = units.time_unit(run["seconds_per_iteration"])
    return [
        (
            units.share(part["share"]),
            pace.show(part["seconds_per_iteration"]),
            part["said"],
            _unless_none(sum(way["sending"] for way in part["limits"])),
            _unless_none(sum(way["queueing"] for way in part["limits"])),
            _unless_none(part["delay"]),
        )
        for part in run["parts"]
        if part["share"] >= NEGLIGIBLE
    ][:SHOWN]


def _changes(change: Row) -> Sequence[Sequence[str]]:
    pace = units.time_unit(change["seconds_per_iteration"])
    return [
        (
            pace.show(one["seconds_per_iteration"]),
            units.signed_share(-one["gain"]),
            one["name"] + ("" if one["exact"] else " *"),
        )
        for one in change["changes"]
        if not one["reason"]
    ]


def _unless_none(share: float) -> str:
    return units.share(share) if share >= NEGLIGIBLE else ""


def _looked_at(run: Row) -> str:
    first, last = run["iterations"]
    many = f"iterations {first} to {last}" if last > first else f"iteration {first}"
    told = f"{run['mode']}: {many} of {run['worker']}, "
    told += f"{units.duration(run['seconds_per_iteration'])} each"
    if run["dropped_spans"]:
        told += f" ({run['dropped_spans']:,} spans of other iterations were dropped)"
    return told


def _heading(run: Row) -> Text:
    return Text.assemble((_looked_at(run) + "\n", "bold"), run["said"], "\n")


def _asked(change: Row) -> str:
    base = units.duration(change["seconds_per_iteration"])
    how = (
        "without the script, by its tensors and mean times"
        if change["script"]
        else "without gradients"
    )
    return f"Possible changes, simulated {how}; unchanged: {base} per iteration"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        words = heading in ("what", "what if")
        table.add_column(heading, justify="left" if words else "right", no_wrap=not words)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _html(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    looks = [None if heading in ("what", "what if") else "num" for heading in headings]
    head, *body = (
        tag("tr", *(tag(kind, cell, class_=look) for look, cell in zip(looks, row, strict=True)))
        for kind, row in (("th", headings), *(("td", row) for row in rows))
    )
    return tag("table", tag("thead", head), tag("tbody", *body), class_="compared")
