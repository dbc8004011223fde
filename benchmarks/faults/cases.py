"""The live cases: each disturbs one run from outside, and measures what the others notice of it."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from outside import Run, back_s, longest_pause_s, words

from geomx import runner
from geomx.config.compose import compose
from geomx.errors import GeomxError
from geomx.results.results import Results
from geomx.testing.replay import replay

SUSPECT_S = 2.0
LIVE = ["mode=live", "emulate=netns", f"faults.suspect_s={SUSPECT_S}"]
CONTINUE = [*LIVE, "faults.on_loss=continue"]
WAIT = [*LIVE, "faults.on_loss=wait"]
LOG = [*LIVE, "faults.durable=log"]
REPLICA = [*LIVE, "faults.durable=replica"]
MANY = "faults.restarts=1000"
LEAST_STEPS = 10
"""Steps before a fault."""

AFTER_S = 2.0
BROKEN_EVERY_S = 0.3
SHORT, LONG = (8.0, 0.6), (2400.0, 6.0)
"""Schedules of faults: the most seconds for which they are drawn, and the mean seconds between two.
A node that is killed for the sixth time is absent for 10 s, so that a long schedule cannot be as
dense as a short one."""
SUCCESSOR_S = 60.0
CALM_STEPS = 100
"""In the last steps of a run there is no further fault."""

GLOBAL_SERVER = "hub/global_server0"
STEADY = "east/worker0"
"""A worker that makes every step."""
SERVERS = ("east/server", "west/server", "south/server")
WORKERS = ("east/worker1", "west/worker0", "west/worker1", "south/worker0")
"""Those that may be lost: a run with ``continue`` ends without any worker."""

Figures = dict[str, float]


@dataclass(frozen=True)
class Case:
    """A case.

    Attributes:
        name: What happens.
        run: Runs it once, in a folder, with random moments; returns what it has measured. Seconds,
            except for ``equal``: 1 if the final parameters have the bits that they must have.
        limits: The largest allowed value of each figure; of ``equal``, the only one.
        most: How many runs are enough.
    """

    name: str
    run: Callable[[Path, random.Random], Figures]
    limits: Figures
    most: int = 1000


@cache
def calm(iterations: int, folder: Path) -> dict[str, Any]:
    """Return the parameters of the simulated, undisturbed run."""
    directory = folder / f"calm{iterations}"
    if (directory / "summary.json").exists():  # of an earlier command
        return Results.load(directory).parameters()
    return runner.run(*words(directory, "mode=sim", f"iterations={iterations}")).parameters()


def equal(results: Results, expected: dict[str, Any]) -> float:
    """Return 1.0 if a run has exactly these parameters, else 0.0."""
    found = results.parameters()
    return float(all(np.array_equal(found[name], value) for name, value in expected.items()))


def replayed(results: Results, given: list[str]) -> dict[str, Any]:
    """Return the parameters of plain training with those who took part in each round."""
    experiment, _ = compose([word for word in given if not word.startswith("hydra")])
    return replay(experiment, results.directory)


# ---- processes ----


def kill_worker(folder: Path, draw: random.Random) -> Figures:
    victim = draw.choice(WORKERS)
    given = words(folder / "run", *CONTINUE, "iterations=150")
    with Run(folder / "run", given) as run:
        run.trains(LEAST_STEPS)
        time.sleep(draw.uniform(0, 1))
        at_s = run.signal(victim)
        results = run.results()
    return {
        "others_s": longest_pause_s(results, at_s, [victim]),
        "back_s": back_s(results, victim, at_s),
        "equal": equal(results, replayed(results, given)),
    }


def kill_durable(node: str, durable: list[str]) -> Callable[[Path, random.Random], Figures]:
    def run_it(folder: Path, draw: random.Random) -> Figures:
        with Run(folder / "run", words(folder / "run", *durable, "iterations=150")) as run:
            run.trains(LEAST_STEPS)
            time.sleep(draw.uniform(0, 1))
            at_s = run.signal(node)
            results = run.results()
        return {
            "others_s": longest_pause_s(results, at_s),
            "step_ratio": step_ratio(results, at_s),
            "equal": equal(results, calm(150, folder.parent)),
        }

    return run_it


def step_ratio(results: Results, at_s: float) -> float:
    """Return the mean time of a step in the 2 s after a moment, over that before it."""

    def mean_s(rows: list[Any]) -> float:
        return float(np.mean([row["end_s"] - row["start_s"] for row in rows]))

    before = [row for row in results.iterations if row["iteration"] > 0 and row["end_s"] <= at_s]
    after = [row for row in results.iterations if at_s < row["end_s"] <= at_s + AFTER_S]
    return mean_s(after) / mean_s(before)


def power_cut(folder: Path, draw: random.Random) -> Figures:
    live = ["mode=live", "faults.durable=log", "iterations=150"]
    with Run(folder / "run", words(folder / "run", *live)) as run:
        run.trains()
        time.sleep(draw.uniform(0, 5))
        run.kill_all()
    began = time.monotonic()
    with Run(folder / "run", ["mode=live", f"resume={folder / 'run'}"]) as run:
        results = run.results()
    return {
        "resumed_run_s": time.monotonic() - began,
        "equal": equal(results, calm(150, folder.parent)),
    }


# ---- all of these at once ----


def surely(act: Callable[[], object]) -> None:
    """Disturb a process; if it ends meanwhile, its successor, which may be there much later."""
    deadline_s = time.monotonic() + SUCCESSOR_S
    while time.monotonic() < deadline_s:
        try:
            act()
        except (KeyError, ProcessLookupError, subprocess.CalledProcessError):
            time.sleep(0.05)
        else:
            return
    act()


def disturb(
    run: Run,
    draw: random.Random,
    schedule: tuple[float, float],
    steps: int,
    victims: tuple[str, ...],
    once: tuple[str, ...],
) -> int:
    """Disturb a run by a drawn schedule: kills, pauses, cuts and resets, which may overlap.

    Args:
        run: A run that trains.
        draw: Of the faults, their moments and their lengths.
        schedule: As `SHORT`. It ends early if the run is about to.
        steps: How many steps the run makes.
        victims: Nodes that are killed and paused.
        once: Nodes of which each is killed once, at some moment.

    Returns:
        How many faults there were.
    """
    lasts_s, every_s = schedule
    ends_s = time.monotonic() + lasts_s
    due = [(time.monotonic() + draw.uniform(0, lasts_s / 2), node) for node in once]
    cut_until_s: float | None = None
    count = 0
    while True:
        time.sleep(draw.expovariate(1 / every_s))
        now_s = time.monotonic()
        if now_s >= ends_s or run.steps(STEADY) >= steps - CALM_STEPS:
            break
        for moment_s, node in [each for each in due if each[0] <= now_s]:
            due.remove((moment_s, node))
            surely(lambda node=node: run.signal(node))
            count += 1
        if cut_until_s is not None and now_s >= cut_until_s:
            surely(lambda: run.heal("west/server"))
            cut_until_s = None
        what = draw.choice(["kill", "pause", "cut", "reset", "reset"])
        if what == "kill":
            surely(lambda: run.signal(draw.choice(victims)))
        elif what == "pause":
            surely(lambda: run.pause(draw.choice(victims), draw.uniform(0.1, 0.6)))
        elif what == "reset":
            surely(lambda: run.reset(draw))
        elif cut_until_s is None:
            surely(lambda: run.cut("west/server"))
            cut_until_s = now_s + draw.uniform(0.1, 4)
        count += 1
    for _, node in due:
        surely(lambda node=node: run.signal(node))
        count += 1
    if cut_until_s is not None:
        try:
            surely(lambda: run.heal("west/server"))
        except GeomxError:
            if run.running():
                raise
            # The run has ended before the next process of that server began.
    return count


def drawn_and_wait(
    schedule: tuple[float, float], steps: int
) -> Callable[[Path, random.Random], Figures]:
    """Every node may be killed, the scheduler and the global server included."""
    victims = ("hub/scheduler", GLOBAL_SERVER, *SERVERS, STEADY, *WORKERS)

    def run_it(folder: Path, draw: random.Random) -> Figures:
        waiting = [*LOG, "faults.on_loss=wait", MANY, f"iterations={steps}"]
        with Run(folder / "run", words(folder / "run", *waiting)) as run:
            run.trains(LEAST_STEPS)
            count = disturb(run, draw, schedule, steps, victims, ("hub/scheduler", GLOBAL_SERVER))
            results = run.results()
        return {"faults": count, "equal": equal(results, calm(steps, folder.parent))}

    return run_it


def drawn_and_continue(
    schedule: tuple[float, float], steps: int, durable: list[str], resumed: tuple[str, ...]
) -> Callable[[Path, random.Random], Figures]:
    """Workers and local servers come and go.

    The global server resumes from its log, as other `resumed` nodes do, or a standby takes its
    place.
    """
    victims = (*resumed, "west/server", "south/server", *WORKERS)

    def run_it(folder: Path, draw: random.Random) -> Figures:
        options = [*durable, "faults.on_loss=continue", MANY, f"iterations={steps}"]
        given = words(folder / "run", *options)
        with Run(folder / "run", given) as run:
            run.trains(LEAST_STEPS)
            once = resumed or (GLOBAL_SERVER,)
            count = disturb(run, draw, schedule, steps, victims, once)
            results = run.results()
        return {"faults": count, "equal": equal(results, replayed(results, given))}

    return run_it


# ---- networks ----


def cut_and_wait(for_s: float) -> Callable[[Path, random.Random], Figures]:
    def run_it(folder: Path, draw: random.Random) -> Figures:
        with Run(folder / "run", words(folder / "run", *WAIT, "iterations=100")) as run:
            run.trains(LEAST_STEPS)
            time.sleep(draw.uniform(0, 0.5))
            run.cut("west/server")
            time.sleep(for_s)
            healed_s = run.heal("west/server")
            results = run.results()
        return {
            "flows_s": back_s(results, "all", healed_s),
            "equal": equal(results, calm(100, folder.parent)),
        }

    return run_it


def cut_and_continue(for_s: float) -> Callable[[Path, random.Random], Figures]:
    def run_it(folder: Path, draw: random.Random) -> Figures:
        steps = round((for_s + 12) / 0.042)  # the others go on
        given = words(folder / "run", *CONTINUE, f"iterations={steps}")
        with Run(folder / "run", given) as run:
            run.trains(LEAST_STEPS)
            time.sleep(draw.uniform(0, 0.5))
            at_s = run.cut("west/server")
            time.sleep(for_s)
            healed_s = run.heal("west/server")
            results = run.results()
        return {
            "others_s": longest_pause_s(results, at_s, ["west"]),
            "back_s": back_s(results, "west", healed_s),
            "equal": equal(results, replayed(results, given)),
        }

    return run_it


def resets(folder: Path, draw: random.Random) -> Figures:
    """Break ten random connections of a run, one after the other."""
    broken = 0
    with Run(folder / "run", words(folder / "run", *LIVE, "iterations=250")) as run:
        run.trains(LEAST_STEPS)
        at_s = run.now_s()
        for _ in range(10):
            broken += bool(run.reset(draw))
            time.sleep(BROKEN_EVERY_S)
        results = run.results()
    assert broken == 10, f"only {broken} connections were found"
    return {
        "others_s": longest_pause_s(results, at_s),
        "equal": equal(results, calm(250, folder.parent)),
    }


def cases() -> list[Case]:
    """Return all cases, in the order of the table."""
    same = {"equal": 1.0}
    noticed_s = SUSPECT_S + 1.0
    return [
        Case("worker killed, continue", kill_worker, {"others_s": 2, "back_s": 2, **same}),
        Case("global server killed, log", kill_durable(GLOBAL_SERVER, LOG), same),
        Case("global server killed, replica", kill_durable(GLOBAL_SERVER, REPLICA), same),
        Case(
            "scheduler killed, log",
            kill_durable("hub/scheduler", LOG),
            {"step_ratio": 1.1, **same},
        ),
        *(
            Case(f"party cut for {for_s} s, wait", cut_and_wait(for_s), {"flows_s": 2, **same})
            for for_s in (3, 30, 120)
        ),
        *(
            Case(
                f"party cut for {for_s} s, continue",
                cut_and_continue(for_s),
                {"others_s": noticed_s, "back_s": 2, **same},
            )
            for for_s in (3, 30, 120)
        ),
        Case("ten connections reset", resets, {"others_s": 2, **same}),
        Case("drawn schedule, wait and log", drawn_and_wait(SHORT, 250), same),
        Case(
            "drawn schedule, continue and log",
            drawn_and_continue(SHORT, 350, LOG, ("hub/scheduler", GLOBAL_SERVER)),
            same,
        ),
        Case(
            "drawn schedule, continue and replica",
            drawn_and_continue(SHORT, 350, REPLICA, ()),
            same,
        ),
        Case("half an hour of faults, wait and log", drawn_and_wait(LONG, 30_000), same, 1),
        Case(
            "half an hour of faults, continue and replica",
            drawn_and_continue(LONG, 30_000, REPLICA, ()),
            same,
            1,
        ),
        Case("power cut, resume", power_cut, same),
    ]
