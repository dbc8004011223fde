"""Train for a long time with a fault every few seconds: what grows, and what it costs.

    python benchmarks/faults/soak.py --seconds 600 --out soak.csv    # root; a little longer

Workers and local servers are killed or stopped, parties cut off, and connections destroyed in the
kernel, at random moments and for random times (`--every` is the mean between two), with
``faults.on_loss=continue``. The first party is disturbed by destroyed connections only, because a
run without workers ends. One row per figure:

samples_share           samples per second, over those of an undisturbed run of a minute
rss_growth NODE         resident memory in the last fifth of the time, over that in the second fifth
descriptors NODE        the least number of open files in the last fifth, minus that in the second
equal                   1: the final parameters have the bits of plain training with those who took
                        part
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from cases import CONTINUE, equal, replayed
from outside import Run, words

from geomx.results.results import Results

STEP_S = 0.042
CALM_S = 60.0
WATCHED = ("hub/scheduler", "hub/global_server0", "east/server", "east/worker0")
WORKERS = ("east/worker1", "west/worker0", "west/worker1", "south/worker0")
SERVERS = ("west/server", "south/server")
LIMITS = {"samples_share": None, "rss_growth": 1.05, "descriptors": 0.0, "equal": 1.0}


class Watch(threading.Thread):
    """Looks at memory and open files of a run's lasting processes, twice a second.

    Attributes:
        rss: Resident memory in bytes, by name, over time.
        descriptors: Number of open files.
    """

    def __init__(self, pids: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self._pids = pids
        self._over = threading.Event()
        self.rss: dict[str, list[int]] = defaultdict(list)
        self.descriptors: dict[str, list[int]] = defaultdict(list)

    def run(self) -> None:
        """Look until `end` is called."""
        while not self._over.wait(0.5):
            for name, pid in self._pids.items():
                folder = Path("/proc") / str(pid)
                try:
                    pages = int((folder / "statm").read_text().split()[1])
                    opened = len(list((folder / "fd").iterdir()))
                except (OSError, IndexError):
                    continue
                self.rss[name].append(pages * 4096)
                self.descriptors[name].append(opened)

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()


def disturb(run: Run, draw: random.Random, every_s: float, counts: Counter[str]) -> None:
    """Disturb a run until it ends."""
    while True:
        time.sleep(draw.expovariate(1 / every_s))
        what = draw.choice(["kill worker", "kill server", "pause", "cut", "reset", "reset"])
        for_s = draw.choice([draw.uniform(0.1, 1.0), draw.uniform(1.0, 5.0)])
        try:
            if not run.running():
                return
            if what == "kill worker":
                run.signal(draw.choice(WORKERS))
            elif what == "kill server":
                run.signal(draw.choice(SERVERS))
            elif what == "pause":
                run.pause(draw.choice([*WORKERS, *SERVERS]), for_s)
            elif what == "cut":
                node = draw.choice(SERVERS)
                run.cut(node)
                time.sleep(for_s)
                run.heal(node)
            else:
                run.reset(draw)
            counts[what] += 1
        except Exception as error:  # it may just have ended, and so may a process
            print(f"{what}: {error}", file=sys.stderr, flush=True)


def samples_per_s(results: Results) -> float:
    """Return the steps of all workers per second, which is proportional."""
    return len(results.iterations) / float(results.summary["seconds"])


def calm(folder: Path) -> float:
    """Return the speed of the undisturbed run."""
    given = words(folder / "calm", *CONTINUE, f"iterations={round(CALM_S / STEP_S)}")
    with Run(folder / "calm", given) as run:
        return samples_per_s(run.results())


def soak(folder: Path, seconds: float, every_s: float, seed: int) -> dict[str, float]:
    """Run, and return the figures."""
    steps = round(seconds / STEP_S)
    given = words(
        folder / "soak", *CONTINUE, f"iterations={steps}", "faults.restarts=1000000", f"seed={seed}"
    )
    counts: Counter[str] = Counter()
    with Run(folder / "soak", given) as run:
        run.trains(20)
        watch = Watch({name: pid for name, pid in run.pids().items() if name in WATCHED})
        watch.start()
        disturb(run, random.Random(seed), every_s, counts)
        watch.end()
        results = run.results()
    figures = {"samples_share": samples_per_s(results)}
    for name in WATCHED:
        early, late = (fifth(watch.rss[name], number) for number in (1, 4))
        figures[f"rss_growth {name}"] = statistics.median(late) / statistics.median(early)
        early, late = (fifth(watch.descriptors[name], number) for number in (1, 4))
        figures[f"descriptors {name}"] = min(late) - min(early)
    finite = all(np.isfinite(value).all() for value in results.parameters().values())
    figures["equal"] = equal(results, replayed(results, given)) if finite else 0.0
    figures |= {f"faults: {what}": float(number) for what, number in sorted(counts.items())}
    figures["seconds"] = results.summary["seconds"]
    figures["rounds without some"] = results.summary["participation"]["without"]
    return figures


def fifth(values: list[int], number: int) -> list[int]:
    """Return a fifth of the values."""
    size = len(values) // 5
    return values[number * size : (number + 1) * size]


def holds(figure: str, value: float) -> str:
    """Return whether a figure is within its limit; empty if it has none."""
    limit = LIMITS.get(figure.split(maxsplit=1)[0])
    if limit is None:
        return ""
    return "yes" if (value == limit if figure == "equal" else value <= limit) else "no"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=600, help="of undisturbed training")
    parser.add_argument("--every", type=float, default=4, help="mean seconds between faults")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    parser.add_argument("--out", type=Path, help="the figures, a CSV file")
    parser.add_argument("--folder", type=Path, help="of the runs; kept if given")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        undisturbed = calm(folder)
        figures = soak(folder, arguments.seconds, arguments.every, arguments.seed)
    figures["samples_share"] /= undisturbed
    rows = [(name, f"{value:.4g}", holds(name, value)) for name, value in figures.items()]
    for row in rows:
        print("; ".join(row))
    if arguments.out:
        with arguments.out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([("figure", "value", "holds"), *rows])
    return 1 if any(row[2] == "no" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
