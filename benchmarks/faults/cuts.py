"""How long connections are silent after a cut: the kernel's, those of scenarios, simulated ones.

    python benchmarks/faults/cuts.py --delay-ms 15      # root; six minutes

A party is cut off forty times in one run, for 0.15 to 3 s in a drawn order. In the first run the
kernel drops all packets between namespaces; in the others a scenario cuts, live between namespaces
and simulated. Printed for every duration: the mean seconds from the end of a cut until all workers
have ended a step.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import outside
from outside import Run, back_s, words

from geomx.results.results import Results

DURATIONS_S = (0.15, 0.3, 0.5, 0.8, 1.1, 1.5, 2.2, 3.0)
TIMES = 5
WAIT = "faults.on_loss=wait"
LIVE = ("mode=live", "emulate=netns")
PARTY = "west/server"
Cuts = list[tuple[float, float]]  # duration, and end in seconds of the run


def drawn(seed: int) -> Iterator[tuple[float, float]]:
    """Draw seconds of waiting and of being cut off, in turn."""
    draw = random.Random(seed)
    durations = [each for each in DURATIONS_S for _ in range(TIMES)]
    draw.shuffle(durations)
    for each in durations:
        yield draw.uniform(1.0, 1.5), each


def by_kernel(folder: Path, seed: int, iterations: str) -> tuple[Results, Cuts]:
    """Let the kernel drop packets."""
    cuts = []
    with Run(folder, words(folder, *LIVE, WAIT, iterations)) as run:
        run.trains(10)
        for wait_s, for_s in drawn(seed):
            time.sleep(wait_s)
            run.cut(PARTY)
            time.sleep(for_s)
            cuts.append((for_s, run.heal(PARTY)))
        return run.results(), cuts


def by_scenario(folder: Path, seed: int, iterations: str, *mode: str) -> tuple[Results, Cuts]:
    """Cut in both modes."""
    now_s, events, cuts = 1.5, [], []
    for wait_s, for_s in drawn(seed):
        events.append(f"{{at_s: {now_s + wait_s:.6f}, cut: [west, hub], for_s: {for_s}}}")
        now_s += wait_s + for_s
        cuts.append((for_s, now_s))
    given = words(folder, *mode, WAIT, iterations, f"scenario=[{', '.join(events)}]")
    with Run(folder, given) as run:
        return run.results(), cuts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--delay-ms", type=float, default=15.0, help="of the WAN, one way")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the cuts")
    arguments = parser.parse_args()
    outside.NETWORK["delay_ms"] = arguments.delay_ms
    step_s = 0.03 + 2 * arguments.delay_ms / 1000
    whole_s = 15 + sum(wait_s + for_s for wait_s, for_s in drawn(arguments.seed))
    steps = f"iterations={round(whole_s / step_s)}"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        runs = {
            "kernel": by_kernel(folder / "kernel", arguments.seed, steps),
            "live": by_scenario(folder / "live", arguments.seed, steps, *LIVE),
            "simulated": by_scenario(folder / "sim", arguments.seed, steps, "mode=sim"),
        }
    print("duration s", *runs, sep="  ")
    for duration_s in DURATIONS_S:
        means = [
            statistics.mean(back_s(results, "all", at) for for_s, at in cuts if for_s == duration_s)
            for results, cuts in runs.values()
        ]
        print(f"{duration_s:10.2f}", *(f"{each:.2f}" for each in means), sep="  ")


if __name__ == "__main__":
    main()
