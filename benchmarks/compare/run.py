"""Every sync algorithm and a set of accelerators on one workload and one network: how they learn.

    python benchmarks/compare/run.py                       # what is missing, then docs/compare.md
    python benchmarks/compare/run.py --page                # only the page, from what is there
    python benchmarks/compare/run.py --only "fsa;diloco"   # these, anew

The character transformer (`workload=torch_transformer`, 106,000 weights, Adam) on `two_parties`,
four workers. All workers make the same number of local steps with each of the algorithms, so that
they see equally many samples. Three seeds each, simulated with real gradients. Rows are kept in
``results/compare.json``, and a run that is there is not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "benchmarks" / "results" / "compare.json"
PAGE = ROOT / "docs" / "compare.md"
MEASURED = re.compile(r"(<!-- measured -->\n).*?(<!-- end -->)", re.DOTALL)

STEPS, EVERY, SEEDS = 400, 20, 3
COMMON = ("workload=torch_transformer", f"iterations={STEPS}", f"evaluate_every={EVERY}")
RARE = ("sync.h=10",)
PLAIN_MEAN = ("sync.outer_lr=1", "sync.outer_momentum=0")  # as SparseLoCo's paper
CHOICES: dict[str, tuple[str, ...]] = {
    "fsa": (),
    "mixedsync": ("+sync=mixedsync",),
    "esync": ("+sync=esync",),
    "hfa": ("+sync=hfa", "sync.k1=5", "sync.k2=2"),
    "diloco": ("+sync=diloco", *RARE),
    "diloco, streaming": ("+sync=diloco", *RARE, "sync.fragments=2", "sync.tau=2"),
    "halos": ("+sync=halos", *RARE),
    "fedbuff": ("+sync=fedbuff", *RARE),
    "fsa + fp16": ("+accel=[fp16]",),
    "fsa + lowbit": ("+accel=[lowbit]",),
    "fsa + twobit": ("+accel=[twobit]",),
    "fsa + bisparse": ("+accel=[bisparse]",),
    "fsa + mpq": ("+accel=[mpq]",),
    "fsa + sparseloco": ("+accel=[sparseloco]",),
    "fsa + demo": ("+accel=[demo]",),
    "fsa + powersgd": ("+accel=[powersgd]",),
    "fsa + dgt": ("+accel=[dgt]",),
    "fsa + p3": ("+accel=[p3]",),
    "diloco + lowbit": ("+sync=diloco", *RARE, "+accel=[lowbit]"),
    "diloco + sparseloco": ("+sync=diloco", *RARE, *PLAIN_MEAN, "+accel=[sparseloco]"),
}
HEAD = (
    "| | loss at step {steps} | accuracy | MB up, per party | MB down | s of virtual time "
    "| s until loss {target:.2f} | MB up until then |"
)


def run(words: Sequence[str], seed: int) -> dict[str, Any]:
    """Simulate a combination, and return its curve and its totals."""
    import geomx

    with tempfile.TemporaryDirectory() as folder:
        results = geomx.run([*COMMON, *words, f"seed={seed}", f"hydra.run.dir={folder}/run"])
    summary = results.summary
    return {
        "curve": [(row["iteration"], row["time_s"], row["loss"]) for row in results.evaluations],
        "accuracy": summary["accuracy"]["final"],
        "seconds": summary["seconds"],
        "up": summary["bytes"]["wan_push"],
        "down": summary["bytes"]["wan_pull"],
    }


def measure(names: Sequence[str], rows: dict[str, list[Any]]) -> None:
    """Make the runs that are missing; the file is written after each."""
    for seed in range(SEEDS):
        for name in names:
            if len(rows.setdefault(name, [])) > seed:
                continue
            rows[name].append(run(CHOICES[name], seed))
            ROWS.write_text(json.dumps(rows), encoding="utf-8")
            print(name, seed, f"{rows[name][-1]['curve'][-1][2]:.3f}", flush=True)


def at(curve: Sequence[Sequence[float]], step: int) -> float:
    """Return the loss of the last evaluation up to a step."""
    return [loss for number, _, loss in curve if number < step][-1]


def reached(each: dict[str, Any], target: float) -> tuple[float, float] | None:
    """Return seconds and bytes up when a loss was reached, to the nearest evaluation."""
    for step, time_s, loss in each["curve"]:
        if loss <= target:
            return time_s, each["up"] * (step + 1) / STEPS
    return None


def mean(values: Sequence[float], digits: int, spread: bool = False) -> str:
    """Return a mean in text, with the largest distance of a value from it."""
    middle = statistics.mean(values)
    text = f"{middle:.{digits}f}"
    most = max(abs(value - middle) for value in values)
    return f"{text} ±{most:.{digits}f}" if spread else text


def table(rows: dict[str, list[Any]]) -> str:
    """Return the table of the page."""
    steps = [STEPS // 4, STEPS // 2, STEPS]
    target = statistics.mean(at(each["curve"], STEPS // 2) for each in rows["fsa"])
    head = HEAD.format(steps=", ".join(map(str, steps)), target=target)
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for name, runs in rows.items():
        losses = [
            mean([at(each["curve"], step) for each in runs], 2, spread=step == STEPS)
            for step in steps
        ]
        there = [found for each in runs if (found := reached(each, target)) is not None]
        until = ("not reached", "")
        if len(there) == len(runs):
            until = (
                mean([time_s for time_s, _ in there], 0),
                mean([size / 2e6 for _, size in there], 1),
            )
        cells = [
            name, ", ".join(losses), mean([each["accuracy"] for each in runs], 2),
            mean([each["up"] / 2e6 for each in runs], 1),
            mean([each["down"] / 2e6 for each in runs], 1),
            mean([each["seconds"] for each in runs], 0), *until,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="names with semicolons between them, anew")
    parser.add_argument("--page", action="store_true", help="make no runs")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    rows = json.loads(ROWS.read_text(encoding="utf-8")) if ROWS.exists() else {}
    only = [name for name in arguments.only.split(";") if name]
    for name in only:
        rows.pop(name, None)
    if not arguments.page:
        measure(only or list(CHOICES), rows)
    whole = {name: rows[name] for name in CHOICES if len(rows.get(name, ())) == SEEDS}
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(MEASURED.sub(lambda m: m[1] + table(whole) + m[2], text), encoding="utf-8")


if __name__ == "__main__":
    main()
