"""Results of a study: errors, order, regret and bytes, and an analysis of the worst five.

An error is (simulated - live) / live of the mean seconds per iteration, the live value being the
median of its repeats. Noise is the deviation of single live runs from that median, without the run
that is the median itself, and limits the accuracy of any statement. Kendall's tau compares the
order of combinations, once over all of them, and once only over pairs at the same place, which
matters for a choice. Regret is the excess of the simulator's first choice at a place over the best
one there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean, median
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table
from scipy.stats import kendalltau

from geomx.results.tables import NOTICEABLE

Row = dict[str, Any]
GOALS = {
    "shaper": {"median": 0.05, "p90": 0.10, "p95": 0.15, "tau": 0.95, "regret": 0.03},
    "netns": {"median": 0.10, "p95": 0.25, "tau": 0.95, "regret": 0.03},
}
WORST = 5


def row_of(
    words: Sequence[str],
    place: int,
    sim: Mapping[str, Any],
    live: Sequence[Mapping[str, Any]],
) -> Row:
    """Return one combination; `sim` and `live` hold ``seconds``, ``phases`` and ``traffic``."""
    measured = median(run["seconds"] for run in live)
    middle = min(live, key=lambda run: abs(run["seconds"] - measured))
    both = [run["traffic"] for run in (sim, middle)]
    return {
        "words": list(words),
        "place": place,
        "sim_s": sim["seconds"],
        "live_s": measured,
        "error": sim["seconds"] / measured - 1,
        "noise": [run["seconds"] / measured - 1 for run in live],
        "bytes_error": _most_apart(*both, 0),
        "messages_error": _most_apart(*both, 1),
        "total_bytes_error": _apart(*(sum(sent for sent, _ in each.values()) for each in both)),
        "behind_s": middle["behind"],
        "loss_error": None if sim["loss"] is None else sim["loss"] - middle["loss"],
        "phases": {name: [sim["phases"][name], middle["phases"][name]] for name in sim["phases"]},
    }


def judge(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the statistics of all `rows`."""
    errors = np.array([row["error"] for row in rows])
    size = np.abs(errors)
    noise = np.array([value for row in rows for value in _apart_live(row["noise"])])
    return {
        "combinations": len(rows),
        "median": float(np.median(size)),
        "p90": float(np.percentile(size, 90)),
        "p95": float(np.percentile(size, 95)),
        "bias": float(np.median(errors)),
        "noise_median": float(np.median(noise)) if noise.size else None,
        "noise_p95": float(np.percentile(noise, 95)) if noise.size else None,
        "tau": _number(kendalltau([r["sim_s"] for r in rows], [r["live_s"] for r in rows])[0]),
        "tau_within_places": _tau_within(rows),
        "regret": _regret(rows),
        "behind_pace": sum(row["behind_s"] > NOTICEABLE * row["live_s"] for row in rows),
        "bytes_equal": sum(row["bytes_error"] == 0 for row in rows),
        "bytes_worst": max(row["bytes_error"] for row in rows),
        "total_bytes_median": median(row["total_bytes_error"] for row in rows),
        "total_bytes_worst": max(row["total_bytes_error"] for row in rows),
        "messages_worst": max(row["messages_error"] for row in rows),
    }


def _apart_live(noise: Sequence[float]) -> list[float]:
    """Return how far the runs are from their median, without the one that is the median itself.

    That one's deviation is 0 by definition, and says nothing about the others.
    """
    return sorted(map(abs, noise))[len(noise) % 2 :]


def tables(rows: Sequence[Row], figures: Mapping[str, Any], emulate: str) -> list[Table]:
    """Return the statistics, and the worst five combinations with their time by phase."""
    goals = GOALS.get(emulate, {})
    summary = Table(title=f"{len(rows)} combinations, emulate={emulate}", title_justify="left")
    for heading in ("", "measured", "goal"):
        summary.add_column(heading, justify="right" if heading else "left")
    counts = ("combinations", "behind_pace", "bytes_equal")
    for name, value in figures.items():
        shown = "" if value is None else f"{value}" if name in counts else f"{value:.1%}"
        goal = goals.get(name, "")
        summary.add_row(name.replace("_", " "), shown, f"{goal:.0%}" if goal else "")
    worst = Table(title=f"the worst {WORST}", title_justify="left", show_lines=True)
    worst.add_column("combination")
    for heading in ("error", "sim ms", "live ms", "behind", "compute", "wait", "push", "pull"):
        worst.add_column(heading, justify="right")
    for row in sorted(rows, key=lambda row: -abs(row["error"]))[:WORST]:
        spent = (
            f"{1e3 * row['phases'][name][0]:.0f}\n{1e3 * row['phases'][name][1]:.0f}"
            for name in ("compute", "wait", "push", "pull")
        )
        worst.add_row(
            escape(f"place {row['place']}: {' '.join(row['words'])}"),
            f"{row['error']:+.1%}",
            f"{1e3 * row['sim_s']:.1f}",
            f"{1e3 * row['live_s']:.1f}",
            f"{1e3 * row['behind_s']:.1f}",
            *spent,
        )
    worst.caption = (
        "per iteration in ms, simulated over live; push, pull: the busiest WAN link; behind: how "
        "much later than the workload's pace live pushes were ready"
    )
    return [summary, worst]


def _most_apart(
    sim: Mapping[str, Sequence[int]], live: Mapping[str, Sequence[int]], which: int
) -> float:
    """Return the largest relative difference over all links with traffic in either run."""
    nothing = (0, 0)
    return max(
        _apart(sim.get(link, nothing)[which], live.get(link, nothing)[which])
        for link in sim.keys() | live.keys()
    )


def _apart(one: int, other: int) -> float:
    """Return the relative difference, 0..1."""
    return abs(one - other) / max(one, other, 1)


def _places(rows: Sequence[Row]) -> list[list[Row]]:
    places: dict[int, list[Row]] = {}
    for row in rows:
        places.setdefault(row["place"], []).append(row)
    return [found for found in places.values() if len(found) > 1]


def _tau_within(rows: Sequence[Row]) -> float | None:
    """Return (concordant - discordant) / all, over pairs that share a place."""
    signs = [
        np.sign(one["sim_s"] - other["sim_s"]) * np.sign(one["live_s"] - other["live_s"])
        for found in _places(rows)
        for one, other in combinations(found, 2)
    ]
    return float(np.mean(signs)) if signs else None


def _regret(rows: Sequence[Row]) -> float | None:
    """Return the mean over places of the first choice's excess over the best."""
    losses = [
        min(found, key=lambda row: row["sim_s"])["live_s"] / min(r["live_s"] for r in found) - 1
        for found in _places(rows)
    ]
    return fmean(losses) if losses else None


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
