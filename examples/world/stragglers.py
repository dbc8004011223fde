"""Stragglers: steps take random times, and one machine is slow for a while.

Covers:
    `compute.set` with a distribution; `compute.slow`; `events.subscribe`.

Scenario:
    Each step of each worker takes the usual time multiplied by a lognormal variable with a median
    of 1. From 1.5 s to 3 s another job runs on the machine of west's worker, which is four times as
    slow meanwhile.

Look at:
    the duration of iterations: all workers have that of the slowest, as fsa waits for all of them.
    ``sync=esync`` lets the fast ones take more steps instead.

    python examples/world/stragglers.py
    cd examples/world; python -m geomx network=sites.yaml scenario=stragglers.py +sync=esync
"""

from common import WORDS, Line, Process, compare, draw

from geomx.sim import StepEnded, World

SIGMA = 0.3
SLOW, TIMES, FROM_S, UNTIL_S = "west/worker0", 4, 1.5, 3.0
lines: dict[str, Line] = {}
words = [*WORDS, "workload.forward_ms=20", "workload.backward_ms=40"]


def other_job(world: World) -> Process:
    """Slow a machine for a while."""
    yield world.env.timeout(world.seconds(FROM_S))
    world.compute.slow(SLOW, TIMES)
    yield world.env.timeout(world.seconds(UNTIL_S - FROM_S))
    world.compute.slow(SLOW, 1)


def world(world: World) -> None:
    """Draw the steps' durations, start the other job, and note each iteration."""
    world.compute.set(None, lambda step: world.random.lognormvariate(0, SIGMA))
    world.process(other_job(world))
    before: dict[str, float] = {}

    def note(event: StepEnded) -> None:
        took_s = event.time_s - before.get(event.worker, 0.0)
        before[event.worker] = event.time_s
        lines.setdefault(event.worker, []).append((event.time_s, 1e3 * took_s))

    world.events.subscribe(StepEnded, note)


if __name__ == "__main__":
    compare(world, words)
    print(draw(__file__, "Duration of iterations", "ms", lines))
