"""A bandwidth trace from a file, repeated every day: users of the site sleep at night.

Covers:
    bandwidths that a process reads from a file; times far longer than an iteration.

Scenario:
    `daily_cycle.csv` has the bandwidth that is left on the uplink of site east for each hour of a
    day. A day takes 24 s here, so that a short run sees two of them.

Look at:
    the duration of iterations follows the bandwidth: at noon they take almost three times as long
    as at night. A job of hours should begin in the evening.

    python examples/world/daily_cycle.py
"""

import csv
from pathlib import Path

from common import WORDS, Line, Process, compare, draw, sample

from geomx.sim import StepEnded, World

TRACE = Path(__file__).with_suffix(".csv")
DAY_S = 24.0
lines: dict[str, Line] = {}
words = [*WORDS[:-1], "iterations=60"]


def follow(world: World) -> Process:
    """Set the bandwidth of every hour, day after day."""
    with TRACE.open(encoding="utf-8") as file:
        hours = [(float(row["hour"]), float(row["mbps"])) for row in csv.DictReader(file)]
    day = 0
    while True:
        for hour, mbps in hours:
            due_s = (day + hour / 24) * DAY_S
            yield world.env.timeout(world.seconds(due_s - world.now_s))
            world.wan.set("east", "east/wan", mbps=mbps)
        day += 1


def world(world: World) -> None:
    """Follow the trace, and note bandwidth and iterations."""
    world.process(follow(world))
    sample(world, 0.5, lines, bandwidth=lambda: world.wan.mbps("east", "east/wan"))
    before = [0.0]

    def note(event: StepEnded) -> None:
        if event.worker == "east/worker0":
            took_s, before[0] = event.time_s - before[0], event.time_s
            lines.setdefault("iteration_in_10_ms", []).append((event.time_s, 100 * took_s))

    world.events.subscribe(StepEnded, note)


if __name__ == "__main__":
    compare(world, words)
    print(draw(__file__, "Bandwidth of a day, and iterations", "Mbit/s", lines))
