"""``report.html``: a self-contained page about one run.

Style and script are inside, nothing is fetched, and every string that comes from outside passes
through `markup.tag`, which escapes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import networkx as nx

from geomx.pages import gantt, loads, rounds, wan
from geomx.pages.beside import beside
from geomx.pages.charts import Series, legend_key, line_chart, time_axis
from geomx.pages.commands import command_line, shadows
from geomx.pages.markup import Markup, tag
from geomx.pages.utilisation import UTILISATION, Use, Uses
from geomx.results.files import Row
from geomx.results.results import Results
from geomx.results.tables import remark, title
from geomx.results.trace import Timeline
from geomx.terminal import units

MOST_LINKS = {"wan": 24, "lan": 12}
MOST_PARTIES = 16
MOST_LISTED = 100  # entries of a list of the summary
REFRESH_S = 5
"""Seconds after which a browser asks again for the page of a run that has not ended."""


def render(
    results: Results,
    timeline: Timeline,
    graph: nx.Graph | None,
    explained: Markup | None = None,
    under_way: str = "",
) -> str:
    """Return the page.

    Args:
        results: The run; its summary may be that of an aborted one.
        timeline: Its spans.
        graph: The network as used, None if unknown.
        explained: A section of ``geomx explain``, if there is one.
        under_way: What is said of a run that has not ended; its traffic is not known yet, and the
            browser asks for the page again.
    """
    summary = results.summary
    order = list(graph.nodes) if graph is not None else []
    clock = units.time_unit(summary["seconds"])
    pace = units.time_unit(summary["seconds_per_iteration"]["mean"])
    picture = wan.drawing(results.links, graph, summary["seconds"], results.edges)
    body = [
        _header(summary),
        tag("p", under_way, class_="note") if under_way else _banner(summary),
        _headline(results, pace, ended=not under_way),
        section("Progress", *_curves(results, clock, pace)),
        section("Where an iteration goes", *_breakdown(results.iterations, pace)),
        section("Where a round goes", *rounds.tables(summary)),
        explained or Markup(""),
        section("Timeline", gantt.timeline(timeline.spans, results.iterations, order, clock),
                 _dropped(timeline)),
        section("The WAN", *([wan.legend(), picture, note(UTILISATION)] if picture else [])),
        section("Load of the edges",
                 loads.chart(results.directory, timeline, graph, results.edges, clock)),
        section("Load per link", *_links(results, graph),
                note("" if picture or not results.links else UTILISATION)),
        section("Plugins in Python", *_python(summary)),
        section("Summary", _summary_table(summary), note(remark(summary))),
        footer(f"{beside(results.directory)}."),
    ]  # fmt: skip
    return document(title(summary), body, REFRESH_S if under_way else None)


def document(title: str, body: Sequence[Markup], refresh_s: int | None = None) -> str:
    """Return a whole page with style and script inside; a browser may ask for it periodically."""
    refresh = {"http-equiv": "refresh", "content": str(refresh_s)}
    head = (
        *([tag("meta", **refresh)] if refresh_s else []),
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · geomx"),
        tag("style", asset("page.css")),
    )
    page = (tag("head", *head), tag("body", tag("main", *body), tag("script", asset("page.js"))))
    return "<!doctype html>\n" + tag("html", *page, lang="en") + "\n"


def asset(name: str) -> Markup:
    """Return a style sheet or script of the report."""
    return Markup(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def note(sentence: str) -> Markup:
    """Return a remark; empty if `sentence` is."""
    return tag("p", sentence, class_="note") if sentence else Markup("")


def section(heading: str, *content: str) -> Markup:
    """Return a heading with its content; empty if all of the content is."""
    shown = [part for part in content if part]
    return tag("section", tag("h2", heading), *shown) if shown else Markup("")


def _header(summary: Mapping[str, Any]) -> Markup:
    kind = {"sim": "simulated run", "live": "live run"}.get(str(summary.get("mode")), "run")
    sync = summary.get("sync", {"name": "?"})
    accel = summary.get("accel", ())
    names = [str(sync.get("name")), *(str(item.get("name")) for item in accel)]
    workload, network = summary.get("workload", {}), summary.get("network", {})
    elements = workload.get("elements")
    of_what = f" ({elements:,} parameters)" if isinstance(elements, int) else ""
    sizes = [
        f"{network[key]:,} {key.replace('_', ' ')}"[: -1 if network[key] == 1 else None]
        for key in ("parties", "workers", "global_servers")
        if isinstance(network.get(key), int)
    ]
    told = f"{workload.get('name', '?')}{of_what} on {network.get('name', '?')}"
    told += f": {', '.join(sizes)}" if sizes else ""
    told += f" · seed {summary.get('seed', units.DASH)}"
    chips = [_plugin("sync", sync), *(_plugin("accel", item) for item in accel)]
    return tag(
        "header",
        tag("p", f"geomx {summary.get('geomx', '')} · {kind}", class_="eyebrow"),
        tag("h1", " + ".join(names)),
        tag("p", told, class_="lead"),
        tag("p", *chips, class_="chips"),
        shadows(summary.get("script")),
        command_line(summary.get("words", ()), summary.get("script")),
    )


def _plugin(kind: str, chosen: Mapping[str, Any]) -> Markup:
    options = [f" {key}={value}" for key, value in chosen.items() if key != "name"]
    return tag(
        "span", tag("i", kind), tag("b", str(chosen.get("name"))), "".join(options), class_="chip"
    )


def _banner(summary: Mapping[str, Any]) -> Markup:
    if "aborted" not in summary:
        return Markup("")
    kept = "The values below were measured before that."
    reason = str(summary["aborted"])
    heading = tag("b", "This run did not finish: ")
    return tag("p", heading, reason, tag("br"), kept, class_="banner")


def _headline(results: Results, pace: units.TimeUnit, ended: bool) -> Markup:
    summary = results.summary
    per_iteration, sent = summary["seconds_per_iteration"], summary["bytes"]
    accuracy = summary["accuracy"]
    wan_bytes = sent["wan_push"] + sent["wan_pull"]
    clock = "wall clock" if summary.get("mode") == "live" else "virtual"
    if summary["samples_per_second"] is not None:  # a script does not say how many samples it uses
        clock += f", {units.number(summary['samples_per_second'])} samples/s"
    directions = f"push {units.size(sent['wan_push'])}, pull {units.size(sent['wan_pull'])}"
    traffic = [("over the WAN", units.size(wan_bytes), directions)]  # known at the end
    tiles = [
        ("time per iteration", pace.show(per_iteration["mean"]),
         f"95th percentile {pace.show(per_iteration['p95'])}"),
        ("total time" if ended else "time so far", units.duration(summary["seconds"]), clock),
        *(traffic if ended else ()),
        ("spent waiting", units.share(_waiting(results.iterations)), "of the workers' time"),
    ]  # fmt: skip
    if accuracy["final"] is not None:
        best = f"held-out; best {units.share(accuracy['best'])}"
        tiles.append(("accuracy", units.share(accuracy["final"]), best))
    elif summary["loss"]["final"] is not None:
        whose = "held-out" if results.evaluations else "training, last iteration"
        tiles.append(("loss", units.decimals(summary["loss"]["final"]), whose))
    return tag(
        "div",
        *(
            tag("div", tag("span", name), tag("b", value), tag("small", more), class_="tile")
            for name, value, more in tiles
        ),
        class_="tiles",
    )


def _waiting(rows: Sequence[Row]) -> float | None:
    took = sum(row["end_s"] - row["start_s"] for row in rows)
    return sum(row["wait_s"] for row in rows) / took if took > 0 else None


def _curves(results: Results, clock: units.TimeUnit, pace: units.TimeUnit) -> list[Markup]:
    rows, evaluations = results.iterations, results.evaluations
    trained = [row for row in rows if row["loss"] is not None]
    loss = [by_iteration("training, mean of workers", "series-0", trained, "end_s", training_loss)]
    accuracy = []
    if evaluations:
        loss.append(_held_out(evaluations, "loss"))
        accuracy.append(_held_out(evaluations, "accuracy"))
    told = "mean, band: fastest to slowest"
    took = by_iteration(told, "series-2", rows, "iteration", iteration_s)
    time = time_axis(clock)
    figures = [
        line_chart("Loss over time", loss, **time, y_text=units.decimals),
        line_chart("Accuracy over time", accuracy, **time, y_text=units.share,
                   y_range=(None, 1.0)),
        line_chart(f"Time per iteration, in {pace.name}", [took], x_label="iteration",
                   x_text=lambda x: f"iteration {x:.0f}", y_range=(0.0, None),
                   y_text=pace.show, y_unit=pace.seconds),
    ]  # fmt: skip
    shown = [figure for figure in figures if figure]
    return [tag("div", *shown, class_="charts")] if shown else []


def _held_out(evaluations: Sequence[Row], column: str) -> Series:
    """Return what is known of a column of ``evaluations.csv`` over time."""
    points = [(row["time_s"], row[column]) for row in evaluations if row[column] is not None]
    return Series("held-out", "series-1", points, dots=True)


def training_loss(row: Row) -> float:
    """Return the loss of one iteration of one worker."""
    return float(row["loss"])


def iteration_s(row: Row) -> float:
    """Return the duration of one iteration of one worker, in seconds."""
    return float(row["end_s"] - row["start_s"])


def by_iteration(
    name: str, style: str, rows: Sequence[Row], x: str, value: Callable[[Row], float]
) -> Series:
    """Return the mean over workers per iteration, at the mean of column `x`, with a band."""
    groups: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["iteration"]].append(row)
    points, low, high = [], [], []
    for _, group in sorted(groups.items()):
        values = [value(row) for row in group]
        where = sum(row[x] for row in group) / len(group)
        points.append((where, sum(values) / len(values)))
        low.append(min(values))
        high.append(max(values))
    return Series(name, style, points, low, high)


def _breakdown(rows: Sequence[Row], pace: units.TimeUnit) -> list[Markup]:
    """Return mean compute and wait of the workers of each party, as bars on a common scale."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["party"]].append(row)
    if not groups:
        return []
    means = {
        party: [sum(row[key] for row in group) / len(group) for key in ("compute_s", "wait_s")]
        for party, group in groups.items()
    }
    longest = max(map(sum, means.values())) or 1.0
    lines = []
    for party in gantt.spread(list(means), MOST_PARTIES):
        compute, wait = means[party]
        tip = f"{party}\ncompute {pace.show(compute)}\nwait {pace.show(wait)}"
        bar = tag(
            "div",
            _fill(compute / longest, "c-compute"),
            _fill(wait / longest, "c-wait"),
            class_="stack",
            data_tip=tip,
        )
        told = f"{pace.show(compute)} + {pace.show(wait)}"
        lines.append(tag("tr", tag("th", party), tag("td", bar), tag("td", told, class_="num")))
    keys = (legend_key("compute", "c-compute"), legend_key("wait", "c-wait"))
    note = f"The mean of all iterations, party by party; {len(means)} parties"
    note += f", {len(lines)} of them drawn." if len(lines) < len(means) else "."
    return [
        tag("div", *keys, class_="legend"),
        tag("table", tag("tbody", *lines), class_="bars"),
        tag("p", note, class_="note"),
    ]


def _fill(part: float, style: str) -> Markup:
    return tag("i", class_=style, style=f"width:{100 * min(max(part, 0.0), 1.0):.2f}%")


def _dropped(timeline: Timeline) -> Markup:
    if not timeline.dropped:
        return Markup("")
    told = f"{timeline.dropped:,} of {timeline.seen:,} spans were dropped:"
    return tag("p", f"{told} those from the middle of the run.", class_="note")


def _links(results: Results, graph: nx.Graph | None) -> list[Markup]:
    uses = Uses(results.links, graph, results.summary["seconds"], results.edges)
    most = max((row["bytes"] for row in results.links), default=0) or 1  # one scale for both tables
    parts = []
    for kind, heading in (("wan", "WAN"), ("lan", "LAN")):
        rows = [row for row in results.links if row["kind"] == kind and row["bytes"]]
        rows.sort(key=lambda row: -row["bytes"])
        if not rows:
            continue
        shown = rows[: MOST_LINKS[kind]]
        head = [tag("th", text) for text in (f"{heading} link", "bytes", "", "utilisation", "")]
        body = [_link(row, most, uses.of(row)) for row in shown]
        content = (tag("thead", tag("tr", *head)), tag("tbody", *body))
        parts.append(tag("table", *content, class_="bars links"))
        rest = rows[len(shown) :]
        if rest:
            told = f"{len(rest)} more links carried {units.size(sum(r['bytes'] for r in rest))}."
            parts.append(tag("p", f"{told} links.csv has them all.", class_="note"))
    return parts


def _link(row: Row, most: int, use: Use) -> Markup:
    name = f"{row['source']} → {row['target']}"
    tip = f"{name}\n{row['bytes']:,} bytes in {row['messages']:,} messages"
    tip += f"\nsending for {units.duration(row['busy_s'])}\n{use}"
    return tag(
        "tr",
        tag("th", name),
        tag("td", tag("div", _fill(row["bytes"] / most, "c-send"), class_="stack")),
        tag("td", units.size(row["bytes"]), class_="num"),
        tag("td", tag("div", _fill(use.utilisation, "series-2"), class_="stack")),
        tag("td", units.share(use.utilisation, 0), class_="num"),
        data_tip=tip,
    )


def _python(summary: Mapping[str, Any]) -> list[Markup]:
    """Return the costs of plugins' Python parts per iteration of a live run."""
    costs = summary.get("python")
    if not costs:
        return []
    parties = summary.get("network", {}).get("parties") or 1
    iteration_s = summary["seconds_per_iteration"]["mean"]  # None where not one was completed
    head = (
        "plugin and hook",
        "calls",
        "in Python",
        "waiting for the interpreter",
        "share",
    )
    lines = [
        (
            label,
            units.number(cost["calls"]),
            units.duration(cost["seconds"]),
            units.duration(cost["waited_s"]),
            units.share(cost["seconds"] / parties / iteration_s if iteration_s else None),
        )
        for label, cost in costs.items()
    ]
    body = [
        tag("tr", tag("th", label), *(tag("td", figure, class_="num") for figure in figures))
        for label, *figures in lines
    ]
    told = "Per iteration, all nodes together; the share is a party's, of an iteration's time. "
    told += "Above a tenth, C++ is worth it (docs/write_a_plugin.md)."
    return [
        tag("table", tag("thead", tag("tr", *(tag("th", text) for text in head))),
            tag("tbody", *body), class_="bars"),
        tag("p", told, class_="note"),
    ]  # fmt: skip


def _summary_table(summary: Mapping[str, Any]) -> Markup:
    rows = [
        tag("tr", tag("th", key), tag("td", text, class_="num"))
        for name, value in summary.items()
        for key, text in _flat(name, value)
    ]
    return tag("details", tag("summary", "The fields of summary.json"),
               tag("table", tag("tbody", *rows), class_="plain"))  # fmt: skip


def _flat(name: str, value: object) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [pair for key, item in value.items() for pair in _flat(f"{name}.{key}", item)]
    if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        more = len(value) - MOST_LISTED
        rest = [(f"{name}[{MOST_LISTED}:]", f"{more:,} more, in summary.json")] if more > 0 else []
        listed = enumerate(value[:MOST_LISTED])
        return [pair for i, item in listed for pair in _flat(f"{name}[{i}]", item)] + rest
    if isinstance(value, list | tuple):
        return [(name, " ".join(map(str, value)))]
    if isinstance(value, int) and not isinstance(value, bool):
        return [(name, f"{value:,}")]
    return [(name, f"{value:.9g}" if isinstance(value, float) else str(value))]


def footer(names: str) -> Markup:
    """Return the list of the other files in the page's directory."""
    return tag("footer", f"Beside this page: {names}")
