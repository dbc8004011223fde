"""Compare simulated faults with live ones: the same scenario, who took part, and how long it took.

    python benchmarks/faults/both.py --times 3 --out both.csv      # root; ten minutes

The steps are long (2 s) and the faults happen in the middle of the computation, so that no message
is under way and the schedule leaves no race. One row per scenario: whether the rows of
``participation.csv`` are equal but for their times (in all live runs), and the seconds from the
fault until the node took part again, or to the end of the run if no node is lost: simulated,
live (median), and their difference.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from cases import SUSPECT_S
from outside import Run, words

from geomx.results.files import read_table
from geomx.results.results import Results

FIELDS = ("scenario", "same_participants", "figure", "simulated_s", "live_s", "error")
STEPS = ["workload.forward_ms=1980", "workload.backward_ms=20", "iterations=8"]
CONTINUE = ["faults.on_loss=continue", f"faults.suspect_s={SUSPECT_S}"]
WAIT = ["faults.on_loss=wait", f"faults.suspect_s={SUSPECT_S}"]
LOG = ["faults.durable=log", f"faults.suspect_s={SUSPECT_S}"]
ALLOWED = 0.25
SCENARIOS = {
    "worker killed": ("kill: west/worker1", CONTINUE),
    "worker killed, back": ("kill: west/worker1, restart_s: 3.2", CONTINUE),
    "local server killed, back": ("kill: west/server, restart_s: 3.2", CONTINUE),
    "worker paused": ("pause: west/worker1, for_s: 4.4", CONTINUE),
    "party cut off": ("cut: [west, hub], for_s: 4.4", CONTINUE),
    "worker leaves": ("leave: west/worker1", CONTINUE),
    "party cut off, wait": ("cut: [west, hub], for_s: 5", WAIT),
    "worker paused, wait": ("pause: west/worker1, for_s: 5", WAIT),
    "global server killed, log": ("kill: hub/global_server0, restart_s: 3", LOG),
    "local server killed, log": ("kill: west/server, restart_s: 3", LOG),
}
"""At 3 s, in the middle of a step. Returning nodes are there at the start of a later step,
although a process takes some tenths of a second to start, which is not simulated."""

Rows = list[tuple[Any, ...]]


def participation(results: Results) -> Rows:
    """Return the rows of participation.csv without their times, in order of server and round."""
    table = results.directory / "participation.csv"
    rows = read_table(table) if table.exists() else []
    names = ("server", "tensor", "shard", "round", "global_round", "workers", "absent", "late")
    return sorted((tuple(row[name] for name in names) for row in rows), key=str)


def recovery_s(results: Results) -> tuple[str, float]:
    """Return what is compared, and its value in seconds."""
    found = [row["recovered_s"] for row in results.summary["faults"] if row.get("recovered_s")]
    if found:
        return "recovered_s", max(found)
    return "seconds", float(results.summary["seconds"])


def measure(name: str, times: int, folder: Path) -> dict[str, Any]:
    """Run one scenario in both modes; return its row."""
    event, faults = SCENARIOS[name]
    made = []
    for number in range(times + 1):
        mode = ["mode=live", "emulate=netns"] if number else ["mode=sim"]
        place = folder / f"{name} {number}".replace(",", "").replace(" ", "_")
        given = words(place, *STEPS, f"scenario=[{{at_s: 3, {event}}}]", *faults, *mode)
        with Run(place, given) as run:
            made.append(run.results())
    simulated, *live = made
    figure, expected = recovery_s(simulated)
    got = statistics.median(recovery_s(each)[1] for each in live)
    same = [participation(each) == participation(simulated) for each in live]
    figures = (figure, *(recovery_s(each)[0] for each in live))
    return {
        "scenario": name,
        "same_participants": f"{sum(same)} of {times}",
        "figure": figure if len(set(figures)) == 1 else " or ".join(sorted(set(figures))),
        "simulated_s": f"{expected:.3f}",
        "live_s": f"{got:.3f}",
        "error": f"{expected / got - 1:+.1%}",
        "holds": all(same) and len(set(figures)) == 1 and abs(expected / got - 1) <= ALLOWED,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--times", type=int, default=3, help="live runs of each scenario")
    parser.add_argument("--only", default="", help="scenarios whose names contain this")
    parser.add_argument("--out", type=Path, help="the table, a CSV file")
    parser.add_argument("--folder", type=Path, help="of the runs; kept if given")
    arguments = parser.parse_args()
    table = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        for name in SCENARIOS:
            if arguments.only in name:
                table.append(measure(name, arguments.times, folder))
                print("; ".join(str(table[-1][field]) for field in FIELDS), flush=True)
    if arguments.out:
        with arguments.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, FIELDS, extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
    return 0 if all(row["holds"] for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
