"""The tables that the terminal shows after a run and after a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from geomx.terminal import units

Summary = Mapping[str, Any]

NOTICEABLE = 0.02
"""Fraction of an iteration by which pushes may be late without a remark."""

DOMINANT = 0.5
"""Fraction of the time that a node may spend on messages without a remark."""


def title(summary: Summary) -> str:
    """Return what was run, in one line: ``sync + accel, accel · workload on network · mode``."""
    sync = summary.get("sync", {}).get("name", "?")
    accel = ", ".join(item.get("name", "?") for item in summary.get("accel", ()))
    what = f"{sync} + {accel}" if accel else str(sync)
    return f"{what} · {condition(summary)}"


def condition(summary: Summary) -> str:
    """Return the conditions of the run: ``workload on network · mode``."""
    workload = summary.get("workload", {}).get("name", "?")
    network = summary.get("network", {}).get("name", "?")
    return f"{workload} on {network} · {summary.get('mode', '?')}"


def summary_table(summary: Summary) -> Table:
    """Return the main values of ``summary.json`` as a table."""
    table = Table(title=Text(title(summary)), title_justify="left", show_header=False)
    table.add_column("figure", style="dim", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("more", style="dim")
    for row in _rows(summary):
        table.add_row(*map(Text, row))
    if "aborted" in summary:
        reason = Text(str(summary["aborted"]), style="red", overflow="fold")
        table.add_row(Text("aborted", style="bold red"), Text(""), reason)
    _add_note(table, summary)
    return table


def costs_note(summary: Summary) -> str:
    """Return a sentence on the origin of a simulated run's endpoint costs; empty for other runs."""
    costs = summary.get("costs")
    if not costs or summary.get("mode") != "sim":
        return ""
    source, measured, basis = costs["source"], costs["measured"], costs.get("basis")
    known = measured and measured["machine"]
    where = f"{measured['machine']} with {measured['cores']} cores" if known else ""
    told = {
        "shipped": f"Endpoint costs are geomx's defaults, measured on {where}; "
        "geomx calibrate measures yours.",
        "none": "Endpoints cost nothing (costs=none).",
        "given": "Endpoint costs were given by hand; geomx calibrate measures them.",
    }
    since = f", {measured['date'][:10]}" if measured and measured["date"] else ""
    on = f", measured on {where}{since}" if known else ""
    told["cpu"] = told["shipped"]
    note = told.get(source, f"Endpoint costs come from {source}{on}.")
    if basis and source != "none":
        note = f"Endpoint costs are those of costs={source}: {basis}."
    note = _dominance(summary) + note
    if (device := costs.get("device")) and not basis:
        note += f" Workers' tensors lie on a GPU: {device['name']} ({device['basis']})."
    shared = costs["shared_cores"]
    return f"{note} All nodes share {shared} cores." if shared else note


def _dominance(summary: Summary) -> str:
    """Return a remark if endpoint costs dominate an iteration; otherwise empty."""
    endpoint = summary.get("busiest_endpoint")
    if not endpoint or endpoint["share"] < DOMINANT:
        return ""
    return (
        f"Endpoint costs are most of an iteration: {endpoint['node']} works on messages for "
        f"{units.share(endpoint['share'], 0)} of the time. If real endpoints are faster, "
        "costs=none leaves their costs out and costs=gpu takes a GPU's. "
    )


def pace_note(summary: Summary) -> str:
    """Return a remark if a live run's workers were slower than the workload; otherwise empty."""
    behind_s = summary.get("behind_pace_s", 0.0)
    iteration_s = summary["seconds_per_iteration"]["mean"]
    if not iteration_s or behind_s < NOTICEABLE * iteration_s:
        return ""
    return (
        f"Pushes were ready {units.duration(behind_s)} later, on average, than the workload's "
        "layer times say: this machine computes more slowly, which made the run longer. "
        "Raise workload.forward_ms and workload.backward_ms, or run fewer workers per core."
    )


def remark(summary: Summary) -> str:
    """Return the remark on a run's times, often empty."""
    return costs_note(summary) or pace_note(summary)


def _add_note(table: Table, summary: Summary) -> None:
    note = remark(summary)
    if note:
        table.caption, table.caption_justify = Text(note, style="dim"), "left"


def _rows(summary: Summary) -> Iterator[tuple[str, str, str]]:
    per_iteration, sent = summary["seconds_per_iteration"], summary["bytes"]
    mean, p95 = per_iteration["mean"], f"p95 {units.duration(per_iteration['p95'])}"
    script = summary.get("script")
    if script:  # whose first step is often much longer than the others
        p95 = f"median {units.duration(per_iteration['p50'])}, {p95}"
    yield "time per iteration", units.duration(mean), p95
    if script and "first_step_s" in script:
        what = "of computing, data and models included"
        yield "first step", units.duration(script["first_step_s"]), what
    clock = "wall clock" if summary.get("mode") == "live" else "virtual"
    wall = f"{clock}; the run took {units.duration(summary['wall_seconds'])}"
    yield "total time", units.duration(summary["seconds"]), wall
    if summary["samples_per_second"] is not None:
        yield "samples per second", units.number(summary["samples_per_second"]), ""
    rounds = summary["rounds"]
    made = [f"{count:,}" for count in summary.get("iterations_made", ())]
    each = " to ".join(made) or summary.get("iterations", units.DASH)
    iterations = f"{each} iterations per worker"
    yield "rounds", units.DASH if rounds is None else f"{rounds:,}", iterations
    yield "WAN push", units.size(sent["wan_push"]), "towards the global servers"
    yield "WAN pull", units.size(sent["wan_pull"]), "back to the parties"
    yield "LAN", units.size(sent["lan"]), "inside the parties"
    staleness, slices = summary.get("staleness"), summary.get("best_effort_slices")
    if staleness and staleness["max"]:
        most = f"updates by others, at most {staleness['max']}"
        yield "staleness", f"{staleness['mean']:.2f}", most
    if slices and slices["missing"]:
        came = f"missed their round; {slices['late']:,} arrived later"
        yield "late slices", f"{slices['missing']:,}", came
    if faults := summary.get("faults"):
        kinds = Counter(row["what"] for row in faults)
        told = ", ".join(f"{kind}: {count:,}" for kind, count in kinds.items())
        yield "faults", f"{len(faults):,}", told
    for label, cost in summary.get("python", {}).items():
        waited = f"per iteration in Python, all nodes; {units.duration(cost['waited_s'])} waiting"
        yield label.split(":")[0], units.duration(cost["seconds"]), waited
    accuracy, loss = summary["accuracy"], summary["loss"]
    if accuracy["final"] is not None:
        best = f"best {units.decimals(accuracy['best'])}"
        yield "accuracy", units.decimals(accuracy["final"]), best
    if loss["final"] is not None:
        yield "loss", units.decimals(loss["final"]), ""


_NAMES = {
    "seconds_per_iteration": "time per iteration",
    "wan_push": "WAN push",
    "wan_pull": "WAN pull",
    "lan": "LAN",
}


def comparison_table(comparison: Mapping[str, Any], sim: Summary | None = None) -> Table:
    """Return the content of ``comparison.json`` as a table.

    Args:
        comparison: The content.
        sim: Summary of the simulated run, for the origin of its costs.
    """
    table = Table(title="simulated against live", title_justify="left")
    table.add_column("figure", style="dim", no_wrap=True)
    for column in ("sim", "live", "error"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in comparison_rows(comparison):
        table.add_row(*row)
    if sim is not None:
        _add_note(table, sim)
    return table


def comparison_rows(comparison: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield quantity, simulated value, live value and relative error of each line.

    Args:
        comparison: Content of ``comparison.json``.
    """
    for group, entries in comparison.items():
        if group == "parameters":
            continue
        for name, entry in entries.items():
            show = _printer(group, entries)
            label = f"{_NAMES.get(group, group)}, {name}"
            if group == "bytes":
                label = _NAMES.get(name, name)
            error = units.signed_share(entry["relative_error"])
            yield label, show(entry["sim"]), show(entry["live"]), error
    difference = comparison["parameters"]["max_relative_difference"]
    shown = units.DASH if difference is None else f"{difference:.1e}" if difference else "equal"
    yield "parameters, largest relative difference", "", "", shown


def _printer(group: str, entries: Mapping[str, Any]) -> Any:
    if group == "bytes":
        return units.size
    if group == "seconds_per_iteration":
        return units.time_unit(entries["mean"]["live"]).show
    return units.decimals
