"""What computing takes in the simulated world."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, cast

from geomx.experiment.experiment import Experiment
from geomx.scenario.acts import check_slow
from geomx.scenario.events import MOST_TIMES
from geomx.sim.numbers import known, number
from geomx.sim.protocols import Running, Worker
from geomx.sim.world.calling import called
from geomx.training.step_times import StepTimes

Times = float | Sequence[float] | Callable[[int], float]


class Compute:
    """Decides how long workers compute: a multiple of the workload's time divided by their speed.

    Args:
        simulation: The simulation, built.
    """

    def __init__(self, simulation: Running) -> None:
        self._simulation = simulation
        self._ids = {node.name: node.id for node in simulation.experiment.cluster.nodes}
        self._of_steps: dict[int, Callable[[int], float]] = {}
        self._drawn = drawn_steps(simulation.experiment)
        self._of_nodes: dict[int, float] = {}
        self._scaled: dict[int, list[float]] = {}
        self._of_step: dict[int, float] = {}  # of the present step of each worker

    def set(self, worker: str | None, times: Times) -> None:
        """Decide what the steps of a worker take, from its next step on.

        It multiplies with what the network's ``steps`` say.

        Args:
            worker: Name of the worker; None: every worker, each with its own steps.
            times: Multiple of the usual time: a number; a sequence or an array, one after the
                other and again from its beginning; or a function of the step's number, called once
                per step, such as ``lambda step: world.random.lognormvariate(0, 0.3)``.

        Raises:
            ValueError: There is no such worker, or a number is not above 0, or above 1e6.
        """
        workers = {node.name: node.id for node in self._simulation.experiment.cluster.workers}
        if worker is not None:
            known("worker", worker, workers)
        for name, node in workers.items():
            if worker in (None, name):
                self._of_steps[node] = self._by_step(times)

    def slow(self, node: str, times: float) -> None:
        """Let a node compute and work on messages `times` as long as usual, from now on; 1: usual.

        It multiplies with what `set` says. What the node has begun to compute is not changed;
        consecutive layers begin together where their parameters are there.

        Args:
            node: Name of a node.
            times: Multiple of the usual time, above 0 and at most 1e6.

        Raises:
            ValueError: There is no such node, or `times` is out of range.
        """
        known("node", node, self._ids)
        self._of_nodes[self._ids[node]] = _positive(times)
        self._simulation.world.acted(self._ids[node], "slow")
        self._tell(self._ids[node])

    def scale(self, node: int, times: float, begins: bool) -> None:
        """Begin, or end, to slow a node; overlapping ones multiply. For the simulation.

        Raises:
            GeomxError: So many overlap that the node would stand still.
        """
        scaled = self._scaled.setdefault(node, [])
        if begins:
            scaled.append(times)
            check_slow(self._simulation.experiment.cluster.nodes[node].name, scaled)
        else:
            scaled.remove(times)
        self._tell(node)

    def begin(self, worker: Worker) -> float:
        """Return the multiple of the usual time that a worker's next step takes; for workers."""
        node = worker.spec.id
        if node in self._of_steps or node in self._drawn:
            step = worker.steps.step
            times = self._of_steps[node](step) if node in self._of_steps else 1.0
            drawn = self._drawn[node].at(step) if node in self._drawn else 1.0
            self._of_step[node] = times * drawn
        times, _ = self._times(node)
        if node in self._of_step or times != 1.0:  # a new process of the node knows nothing yet
            self._tell(node)
        return times

    def _by_step(self, times: Times) -> Callable[[int], float]:
        if callable(times):
            what, selection = "times of world.compute", self._simulation.experiment.selection
            return lambda step: called(selection, what, times, step, check=_positive)
        if isinstance(times, Sequence) or getattr(times, "ndim", 0) == 1:  # also an array
            several = [_positive(value) for value in cast(Sequence[float], times)]
            if not several:
                raise ValueError("a sequence of multiples must not be empty")
            values = cycle(several)
            return lambda step: next(values)
        number = _positive(times)
        return lambda step: number

    def _times(self, node: int) -> tuple[float, float]:
        """Return the multiples of computing, and of work on messages."""
        of_node = self._of_nodes.get(node, 1.0) * math.prod(self._scaled.get(node, ()))
        return self._of_step.get(node, 1.0) * of_node, of_node

    def _tell(self, node: int) -> None:
        self._simulation.fabric.stretch(node, *self._times(node))


def drawn_steps(experiment: Experiment) -> dict[int, StepTimes]:
    """Return the workers whose steps are drawn by rules of the network, by id.

    Args:
        experiment: The experiment.
    """
    cluster, seed = experiment.cluster, experiment.seed
    drawn = ((node.id, StepTimes.of(cluster, seed, node)) for node in cluster.workers)
    return {node: times for node, times in drawn if times}


def _positive(times: Any) -> float:
    bound = f"a number above 0 and at most {MOST_TIMES:g}"
    return number("times", times, lambda value: 0 < value <= MOST_TIMES, bound)
