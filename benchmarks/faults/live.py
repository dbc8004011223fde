"""Disturb live runs in network namespaces, many times, and compare with the promised limits.

    python benchmarks/faults/live.py                         # every case ten times; root; two hours
    python benchmarks/faults/live.py --only reset --times 2  # a look

One row per figure of a case: its median and its largest value (of ``equal``: the smallest), and the
limit. Times are in seconds. Exit status 1 if a limit was exceeded or a run failed.

figure          from                      to
others_s        longest time between two steps of a worker that is not disturbed, to the end
back_s          the fault, or its end     the disturbed workers have made a step with the others
flows_s         the end of a cut          all workers have made a step
step_ratio      the time per step in the 2 s after the fault, over that before it
faults          the number of faults of a drawn schedule
resumed_run_s   the start of the resumed run, and its end
equal           1: final parameters have the bits of the undisturbed run or, with ``continue``,
                those of plain training with the workers that took part
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import sys
import tempfile
from pathlib import Path

from cases import Case, Figures, cases

from geomx._core import why_no_namespaces

FIELDS = ("case", "times", "figure", "median", "worst", "limit", "holds")


def measure(case: Case, times: int, seed: int, folder: Path) -> tuple[list[Figures], int]:
    """Run a case several times; return the figures, and how many runs failed."""
    found: list[Figures] = []
    failed = 0
    for number in range(times):
        name = f"{case.name} {number}".replace(",", "").replace(" ", "_")
        try:
            found.append(case.run(folder / name, random.Random(f"{seed} {name}")))
        except Exception as error:  # the next one is tried all the same
            failed += 1
            print(f"{case.name}, {number} of seed {seed}: {error}", file=sys.stderr, flush=True)
        else:
            print(f"{case.name}, {number}: {found[-1]}", file=sys.stderr, flush=True)
    return found, failed


def rows(case: Case, found: list[Figures], failed: int) -> list[dict[str, str]]:
    """Return the rows of a case."""
    made = []
    for figure in found[0] if found else {}:
        values = [each[figure] for each in found]
        limit = case.limits.get(figure)
        exact = figure == "equal"
        worst = min(values) if exact else max(values)
        holds = limit is None or (worst == limit if exact else worst <= limit)
        made.append(
            {
                "case": case.name,
                "times": str(len(found)),
                "figure": figure,
                "median": f"{statistics.median(values):.3g}",
                "worst": f"{worst:.3g}",
                "limit": "" if limit is None else f"{limit:g}",
                "holds": "" if limit is None else "yes" if holds else "no",
            }
        )
    if failed:
        made.append(
            dict.fromkeys(FIELDS, "")
            | {"case": case.name, "times": str(failed), "figure": "failed", "holds": "no"}
        )
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--times", type=int, default=10, help="runs of each case")
    parser.add_argument("--only", nargs="*", default=[""], help="cases that contain one of these")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, help="the table, a CSV file")
    parser.add_argument("--folder", type=Path, help="of the runs; kept if given")
    arguments = parser.parse_args()
    if why := why_no_namespaces():
        sys.exit(f"this needs root and network namespaces ({why})")
    table: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        for case in cases():
            if any(words in case.name for words in arguments.only):
                found, failed = measure(
                    case, min(arguments.times, case.most), arguments.seed, folder
                )
                table += rows(case, found, failed)
                if arguments.out:
                    write(arguments.out, table)
    for row in table:
        print("; ".join(row.values()))
    return 1 if any(row["holds"] == "no" for row in table) else 0


def write(path: Path, table: list[dict[str, str]]) -> None:
    """Write the rows, and keep those of other cases that are in the file."""
    present = {row["case"] for row in table}
    if path.exists():
        with path.open(encoding="utf-8") as file:
            table = [row for row in csv.DictReader(file) if row["case"] not in present] + table
    order = [case.name for case in cases()]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(table, key=lambda row: order.index(row["case"])))


if __name__ == "__main__":
    sys.exit(main())
