"""Simulation of a command line, reduced to a few values; shared by these scripts."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import geomx


@dataclass(frozen=True)
class Figures:
    """Results of one simulated run.

    Attributes:
        iteration_ms: Mean virtual time of an iteration.
        fastest_ms: The same for the worker with the shortest mean.
        samples_per_s: Samples per virtual second, all workers together.
        wan_mb: Traffic over the WAN in the whole run, both directions.
        busiest_mb: The part of it to and from the busiest global server.
        accuracy: Final accuracy, 0..1.
    """

    iteration_ms: float
    fastest_ms: float
    samples_per_s: float
    wan_mb: float
    busiest_mb: float
    accuracy: float


def measure(words: Sequence[str]) -> Figures:
    """Simulate an experiment.

    Args:
        words: Overrides of the command line.

    Raises:
        ConfigError: The experiment is refused.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = geomx.run([*words, f"hydra.run.dir={folder}/run"])
        summary, links, rows = results.summary, results.links, results.iterations
    took: dict[str, list[float]] = {}
    for row in rows:
        took.setdefault(row["worker"], []).append(row["end_s"] - row["start_s"])
    at: dict[str, int] = {}
    for row in links:
        for end in (row["source"], row["target"]):
            if row["kind"] == "wan" and "global_server" in end:
                at[end] = at.get(end, 0) + row["bytes"]
    return Figures(
        1e3 * summary["seconds_per_iteration"]["mean"],
        1e3 * min(map(fmean, took.values())),
        summary["samples_per_second"],
        (summary["bytes"]["wan_push"] + summary["bytes"]["wan_pull"]) / 1e6,
        max(at.values(), default=0) / 1e6,
        summary["accuracy"]["final"],
    )


def digits(value: float) -> str:
    """Format a number from 0 on with three significant digits and grouped thousands."""
    rounded = float(f"{value:.3g}")
    if rounded == 0:
        return "0"
    return f"{rounded:,.{max(0, 2 - math.floor(math.log10(rounded)))}f}"
