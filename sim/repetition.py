"""Detection of periodic behaviour in deterministic runs of sizes alone, to skip repetitions.

Whenever the first worker ends an iteration that took as long as an earlier one, the whole state
(nodes, queues, network, scheduled events) is fingerprinted, with times relative to now and rounds
relative to each other. Two equal fingerprints enclose a period, which the simulation would repeat
again and again: its rows, bytes and messages are recorded as often as it would, and the last steps,
which differ because workers announce them, are simulated again. The results are those of the whole
run, to the nanosecond.

This is done only where it is exact: without numerics, observers, programs and SimPy processes,
with workers that synchronise by a fixed schedule, and with parts (codecs, slicers, policies) that
describe how their next decisions depend on the past. Random losses and jitter never repeat.
"""

from __future__ import annotations

import math

from geomx.sim.protocols import IterationRow, Notice, Running
from geomx.training.pace import NS

ATTEMPTS = 64
"""Limit on the number of fingerprints, after which a run is considered aperiodic."""


class Repetition:
    """Watches a simulation for a repeated state, and skips ahead once.

    Args:
        simulation: The simulation before its start.
    """

    def __init__(self, simulation: Running) -> None:
        self._simulation = simulation
        workers = list(simulation.workers.values())
        self._first = workers[0]
        self._looking = (
            simulation.experiment.sim.skip
            and simulation.model is None
            and not simulation.events.observed
            and not simulation.has_world
            and not simulation.experiment.event_schedule.by_iteration
            and all(getattr(worker.steps.sync, "stepwise", False) for worker in workers)
        )
        self._ended_ns = 0
        self._durations: set[int] = set()
        self._attempts = 0
        self._marked: tuple[object, int, int] | None = (
            None  # Python's part of the state, step, time
        )
        self._rows: list[IterationRow] = []

    def add(self, row: IterationRow) -> None:
        """Record a finished step as part of a possible period."""
        if self._marked is not None:
            self._rows.append(row)

    def look(self, notices: list[Notice]) -> None:
        """Examine the state of this instant, before `notices` are delivered."""
        first = self._first
        ready = any(node == first.spec.id and kind == "ready" for node, kind, *_ in notices)
        if not self._looking or not ready or first.steps.step < 0:
            return
        now = self._simulation.env.now
        duration, self._ended_ns = now - self._ended_ns, now
        if duration not in self._durations:
            self._durations.add(duration)
            return
        if not math.isinf(self._simulation.env.peek()):
            return  # another SimPy process has scheduled an event
        steps = tuple(
            worker.steps.step - first.steps.step for worker in self._simulation.workers.values()
        )
        flights = tuple(
            None if worker.steps.flights is None else worker.steps.flights.state(worker.steps.step)
            for worker in self._simulation.workers.values()
        )
        beside = (steps, flights, [(node, kind, key) for node, kind, key, *_ in notices])
        self._attempts += 1
        recurs = self._simulation.fabric.recurs(now)
        if recurs and self._marked is not None and self._marked[0] == beside:
            self._skip(first.steps.step - self._marked[1], now - self._marked[2])
            self._looking, self._marked = False, None
        elif self._attempts > ATTEMPTS:
            self._looking, self._marked = False, None
        elif self._attempts & (self._attempts - 1) == 0:  # Brent: marks ever farther apart
            self._simulation.fabric.mark(now)
            self._marked = beside, first.steps.step, now
            self._rows.clear()

    def _skip(self, steps: int, period_ns: int) -> None:
        simulation = self._simulation
        times = self._times(steps)
        if times == 0:
            return
        simulation.fabric.repeat(times, simulation.env.now)
        for repeat in range(1, times + 1):
            later_ns = repeat * period_ns
            for worker, step, start_ns, end_ns in self._rows:
                simulation.write(
                    IterationRow(
                        worker, step + repeat * steps, start_ns + later_ns, end_ns + later_ns
                    )
                )
            simulation.advance(len(self._rows), time_s=(simulation.env.now + later_ns) / NS)
        for worker in simulation.workers.values():
            worker.steps.skip(times * steps)
        simulation.skipped_ns += times * period_ns
        simulation.recorder.skipped(times * steps)

    def _times(self, period: int) -> int:
        """Return how many periods fit in before the last step of any worker begins.

        Skipped steps must synchronise at the same positions as those of the period.
        """
        simulation = self._simulation
        current = [worker.steps.step for worker in simulation.workers.values()]
        total = simulation.experiment.iterations
        repeated = range(min(current) - period + 1, total - 1)
        schedule = self._first.steps.schedule
        plan = {step: schedule(step) for step in repeated}
        end = next(
            (step for step in repeated if plan.get(step - period, plan[step]) != plan[step]),
            total - 1,
        )
        return max(0, (end - 1 - max(current)) // period)
