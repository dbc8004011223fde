"""Studies as text: one in full, with a line for every combination, and all of them on one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sim_vs_live.judge import WORST, Row


def share(value: float) -> str:
    """A share in per cent with one digit; never a negative zero."""
    return f"{round(100 * value, 1) + 0.0:.1f} %"


FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "median": ("median error", share),
    "p90": ("90th percentile", share),
    "p95": ("95th percentile", share),
    "bias": ("bias (median of signed errors)", share),
    "noise_median": ("live runs apart, median", share),
    "noise_p95": ("live runs apart, 95th percentile", share),
    "tau": ("tau", "{:.3f}".format),
    "tau_within_places": ("tau within places", "{:.3f}".format),
    "regret": ("regret", share),
    "total_bytes_worst": ("total bytes, worst", share),
    "bytes_equal": ("bytes equal on every single link", str),
    "behind_pace": ("behind their pace by 2 % or more", str),
}
"""What the page shows of a judgement: its name there, and how it is written."""


def worst(rows: Sequence[Row]) -> list[Row]:
    """The rows with the largest errors, the largest first."""
    return sorted(rows, key=lambda row: -abs(row["error"]))[:WORST]


def overview(studies: Sequence[Mapping[str, Any]]) -> str:
    """All studies: a column of figures for each, and their worst combinations."""
    names = [f"{one['emulate']}, seed {one['seed']}" for one in studies]
    lines = ["# Simulation against live runs", "", "Written by `benchmarks/fidelity --publish`."]
    lines += ["", f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    about = [("combinations", [str(one["figures"]["combinations"]) for one in studies])]
    for key, (name, written) in FIGURES.items():
        found = [one["figures"][key] for one in studies]
        if any(value is not None for value in found):
            about.append((name, ["" if value is None else written(value) for value in found]))
    about.append(("live runs of each", [str(one["repeats"]) for one in studies]))
    about.append(("places at a slower pace", [str(len(one["slowed"])) for one in studies]))
    about.append(("machine", [one["machine"] for one in studies]))
    lines += [f"| {name} | {' | '.join(cells)} |" for name, cells in about]
    for name, one in zip(names, studies, strict=True):
        lines += [
            "",
            f"The worst of {name}:",
            "",
            "| place | combination | sim ms | live ms | error |",
        ]
        lines += ["|---|---|---|---|---|"]
        lines += [" | ".join(["", *cells(row)[:5], ""]).strip() for row in one["worst"]]
    return "\n".join(lines) + "\n"


def in_full(rows: Sequence[Row], figures: Mapping[str, Any], heading: str) -> str:
    """One study: every figure of the judgement, and every combination."""
    lines = [f"# {heading}", "", "| | |", "|---|---|"]
    lines += [
        f"| {name.replace('_', ' ')} | {'' if value is None else f'{value:.4g}'} |"
        for name, value in figures.items()
    ]
    lines += ["", "| place | combination | sim ms | live ms | error | noise | behind ms | bytes |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    lines += [
        f"| {' | '.join(cells(row))} |" for row in sorted(rows, key=lambda row: -abs(row["error"]))
    ]
    return "\n".join(lines) + "\n"


def cells(row: Row) -> list[str]:
    """A combination's line; of a published row the first five."""
    first = [
        str(row["place"]), " ".join(row["words"]), f"{1e3 * row['sim_s']:.1f}",
        f"{1e3 * row['live_s']:.1f}", f"{row['error']:+.1%}",
    ]  # fmt: skip
    if "noise" not in row:
        return first
    noise = f"{max(map(abs, row['noise'])):.1%}" if len(row["noise"]) > 1 else ""
    return [*first, noise, f"{1e3 * row['behind_s']:.1f}", f"{row['bytes_error']:.2%}"]
