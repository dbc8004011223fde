"""Where the time of rounds goes at the servers of a live run, as bars and figures of its report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geomx.pages.charts import legend_key
from geomx.pages.gantt import spread
from geomx.pages.markup import Markup, tag
from geomx.results.mean_rounds import PARTS
from geomx.terminal import units

MOST_SERVERS = 16
_STYLES = dict(
    zip(
        PARTS,
        ("c-compute", "c-wait", "c-send", "c-update", "c-aggregate", "c-other"),
        strict=True,
    )
)


def tables(summary: Mapping[str, Any]) -> list[Markup]:
    """Return a bar per server, and a table with the figures and the norms of what codecs keep.

    Narrow screens leave out the figures of the parts (``soft``); the bars have them.

    Args:
        summary: That of the run; empty content without ``mean_round``, as in simulations.
    """
    rounds: Mapping[str, Mapping[str, Any]] = summary.get("mean_round", {})
    if not rounds:
        return []
    norms = summary.get("residual_norms", {})
    whole = {name: sum(row.get(f"{part}_s", 0.0) for part in PARTS) for name, row in rounds.items()}
    longest_s = max(whole.values()) or 1.0
    unit = units.time_unit(longest_s)
    shown = spread(list(rounds), MOST_SERVERS)
    bars, lines = [], []
    for name in shown:
        row = rounds[name]
        parts = {part: row.get(f"{part}_s") for part in PARTS}
        told = [f"{part} {unit.show(seconds)}" for part, seconds in parts.items() if seconds]
        filled = [
            tag("i", class_=_STYLES[part], style=f"width:{100 * seconds / longest_s:.2f}%")
            for part, seconds in parts.items()
            if seconds
        ]
        bar = tag("div", *filled, class_="stack", data_tip="\n".join([name, *told]))
        total = tag("td", unit.show(whole[name]), class_="num")
        bars.append(tag("tr", tag("th", name), tag("td", bar), total))
        cells = [
            tag("td", "" if seconds is None else unit.show(seconds), class_="num soft")
            for seconds in parts.values()
        ]
        last = f"{row['last']} {units.share(row['last_share'], 0)}" if row["last"] else ""
        kept = [f"{norm:.3g} ({direction})" for direction, norm in norms.get(name, {}).items()]
        cells += [tag("td", last), *([tag("td", ", ".join(kept), class_="num")] if norms else ())]
        lines.append(tag("tr", tag("th", name), *cells))
    heads = [tag("th", part, class_="num soft") for part in PARTS]
    residual = [tag("th", "residual norm", class_="num")] if norms else []
    head = tag("tr", tag("th", "server"), *heads, tag("th", "last"), *residual)
    note = "The mean round of a shard: until the first worker or party has contributed (compute), "
    note += "until the last one has (gather), sending the party's sum (push), waiting for other "
    note += "parties (held), sending the answer (pull), and propagation and handling (rest). Last "
    note += "is who completed most rounds."
    if norms:
        note += " Codecs with error feedback keep the residual for later rounds."
    if len(shown) < len(rounds):
        note += f" {len(shown)} of {len(rounds)} servers are shown."
    return [
        tag("div", *(legend_key(part, _STYLES[part]) for part in PARTS), class_="legend"),
        tag("table", tag("tbody", *bars), class_="bars"),
        tag("table", tag("thead", head), tag("tbody", *lines), class_="compared"),
        tag("p", note, class_="note"),
    ]
