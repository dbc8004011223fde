"""How long the steps of a worker take by the rules of its network, drawn alike in both modes."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from geomx.cluster import Cluster, NodeSpec


class StepTimes:
    """The multiples of the usual time that a worker's steps take.

    A draw depends on the seed, the worker's name, the rule and the number of the step alone: not on
    the mode, on what was drawn before, or on other workers.

    Args:
        rules: As `geomx.network.steps` has checked them.
        seed: Seed of the experiment, for rules without their own.
        worker: Name of the worker.
    """

    def __init__(self, rules: Sequence[Mapping[str, Any]], seed: int, worker: str) -> None:
        self._rules, self._seed, self._worker = tuple(rules), seed, worker

    @classmethod
    def of(cls, cluster: Cluster, seed: int, worker: NodeSpec) -> StepTimes:
        """Return those of a worker.

        Args:
            cluster: The nodes and their network.
            seed: Seed of the experiment.
            worker: The worker.
        """
        return cls(cluster.graph.nodes[worker.name].get("steps", ()), seed, worker.name)

    def __bool__(self) -> bool:
        """Whether there are rules; without any, every step takes the usual time."""
        return bool(self._rules)

    def at(self, step: int) -> float:
        """Return the multiple of a step.

        Args:
            step: Its number, from 0.
        """
        return math.prod(self._draw(number, rule, step) for number, rule in enumerate(self._rules))

    def _draw(self, number: int, rule: Mapping[str, Any], step: int) -> float:
        if (trace := rule.get("trace")) is not None:
            return float(trace[step % len(trace)])
        block = rule["stragglers"]["steps"] if "stragglers" in rule else 1
        stream = f"{rule.get('seed', self._seed)}/steps/{self._worker}/{number}/{step // block}"
        draws = random.Random(stream)
        if (given := rule.get("lognormal")) is not None:
            return draws.lognormvariate(0.0, given["sigma"])
        if (given := rule.get("uniform")) is not None:
            return draws.uniform(given["low"], given["high"])
        if (given := rule.get("exponential")) is not None:
            return 1.0 + draws.expovariate(1.0 / given["mean"])
        if (given := rule.get("pareto")) is not None:
            return draws.paretovariate(given["shape"])
        given = rule["stragglers"]
        return float(given["times"]) if draws.random() < given["share"] else 1.0
