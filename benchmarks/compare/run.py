"""Every sync algorithm and a set of accelerators on one workload and one network: how they learn.

    python benchmarks/compare/run.py                       # what is missing, then docs/compare.md
    python benchmarks/compare/run.py --page                # only the page, from what is there
    python benchmarks/compare/run.py --only "fsa;diloco"   # these, anew
    python benchmarks/compare/run.py --long                # some with five times as many steps

The character transformer (`workload=torch_transformer`, 106,000 weights, Adam) on `two_parties`,
four workers. All workers make the same number of local steps with each of the algorithms, so that
they see equally many samples. Three seeds each (one with `--long`), simulated with real gradients.
Rows are kept in ``results/compare.json`` or ``results/compare_long.json``, which are not in the
repository, and a run that is there is not repeated. The page is written when all runs of the study
are there; until then the table of those that are is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "compare.md"

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


@dataclass(frozen=True)
class Study:
    """Runs that a table of the page has.

    Attributes:
        name: Of the file of its rows, and of the table's mark in the page.
        steps: Number of local steps of every worker.
        every: Number of steps between two evaluations.
        seeds: Number of seeds.
        names: Its combinations.
    """

    name: str
    steps: int
    every: int
    seeds: int
    names: tuple[str, ...]

    @property
    def file(self) -> Path:
        """The file of its rows."""
        return RESULTS / f"{self.name}.json"


STUDY = Study("compare", 400, 20, 3, tuple(CHOICES))
LONG = Study(
    "compare_long", 2000, 100, 1,
    ("fsa", "diloco", "diloco, streaming", "halos", "hfa", "fsa + sparseloco"),
)  # fmt: skip
REFERENCE = "fsa"
"""The combination whose loss after half of the steps is the target of all others."""
HEAD = (
    "| | loss at step {steps} | accuracy | MB up, per party | MB down | s of virtual time "
    "| s until loss {target:.2f} | MB up until then |"
)


def run(study: Study, words: Sequence[str], seed: int) -> dict[str, Any]:
    """Simulate a combination, and return its curve and its totals."""
    import geomx

    how = [f"iterations={study.steps}", f"evaluate_every={study.every}", f"seed={seed}"]
    with tempfile.TemporaryDirectory() as folder:
        where = f"hydra.run.dir={folder}/run"
        results = geomx.run(["workload=torch_transformer", *how, *words, where])
    summary = results.summary
    return {
        "curve": [(row["iteration"], row["time_s"], row["loss"]) for row in results.evaluations],
        "accuracy": summary["accuracy"]["final"],
        "seconds": summary["seconds"],
        "up": summary["bytes"]["wan_push"],
        "down": summary["bytes"]["wan_pull"],
    }


def measure(study: Study, names: Sequence[str], rows: dict[str, list[Any]]) -> None:
    """Make the runs that are missing; the file is written after each."""
    for seed in range(study.seeds):
        for name in names:
            if len(rows.setdefault(name, [])) > seed:
                continue
            rows[name].append(run(study, CHOICES[name], seed))
            study.file.write_text(json.dumps(rows), encoding="utf-8")
            print(name, seed, f"{rows[name][-1]['curve'][-1][2]:.3f}", flush=True)


def at(curve: Sequence[Sequence[float]], step: int) -> float:
    """Return the loss of the last evaluation up to a step."""
    return [loss for number, _, loss in curve if number < step][-1]


def reached(study: Study, each: dict[str, Any], target: float) -> tuple[float, float] | None:
    """Return seconds and bytes up when a loss was reached, to the nearest evaluation."""
    for step, time_s, loss in each["curve"]:
        if loss <= target:
            return time_s, each["up"] * (step + 1) / study.steps
    return None


def mean(values: Sequence[float], digits: int, spread: bool = False) -> str:
    """Return a mean in text, with the largest distance of a value from it."""
    middle = statistics.mean(values)
    text = f"{middle:.{digits}f}"
    most = max(abs(value - middle) for value in values)
    return f"{text} ±{most:.{digits}f}" if spread else text


def table(study: Study, rows: dict[str, list[Any]]) -> str:
    """Return the table of the page."""
    steps = [study.steps // 4, study.steps // 2, study.steps]
    target = statistics.mean(at(each["curve"], study.steps // 2) for each in rows[REFERENCE])
    head = HEAD.format(steps=", ".join(map(str, steps)), target=target)
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for name, runs in rows.items():
        losses = [
            mean([at(each["curve"], step) for each in runs], 2, step == steps[-1] and len(runs) > 1)
            for step in steps
        ]
        there = [found for each in runs if (found := reached(study, each, target)) is not None]
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
    parser.add_argument("--long", action="store_true", help="the study of more steps")
    parser.add_argument("--page", action="store_true", help="make no runs")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    study = LONG if arguments.long else STUDY
    rows = json.loads(study.file.read_text(encoding="utf-8")) if study.file.exists() else {}
    only = [name for name in arguments.only.split(";") if name]
    for name in only:
        rows.pop(name, None)
    if not arguments.page:
        measure(study, only or study.names, rows)
    whole = {name: rows[name] for name in study.names if len(rows.get(name, ())) == study.seeds}
    if missing := [name for name in study.names if name not in whole]:
        if REFERENCE in whole:
            print(table(study, whole))
        print(f"{PAGE.name} is not written without runs of {', '.join(missing)}")
        return
    text, made = PAGE.read_text(encoding="utf-8"), table(study, whole)
    marks = re.compile(rf"(<!-- measured: {study.name} -->\n).*?(<!-- end -->)", re.DOTALL)
    PAGE.write_text(marks.sub(lambda m: m[1] + made + m[2], text), encoding="utf-8")


if __name__ == "__main__":
    main()
