"""Reference of DiLoCo with fragments, delays and mixing, in plain numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from geomx.errors import ConfigError
from geomx.options.schema import FaultOptions
from geomx.plugins.diloco import DiLoCoConfig, DiLoCoPolicy

Vector = NDArray[np.float32]
Gradients = Callable[[int, int, Sequence[Vector]], Sequence[Vector]]
"""Of a step and a worker, at its parameters."""


def streaming(
    gradients: Gradients,
    initial: Sequence[Vector],
    rate: float,
    workers: int,
    iterations: int,
    options: Mapping[str, Any],
) -> list[Vector]:
    """Return the model after Streaming DiLoCo (arXiv 2501.18512) with SGD on the workers.

    Args:
        gradients: Of all workers.
        initial: The first model.
        rate: Learning rate of the workers.
        workers: Their number.
        iterations: Steps of each.
        options: Those of ``sync=diloco``.
    """
    chosen = DiLoCoConfig(**options)
    h, tau, count = chosen.h, chosen.tau, chosen.fragments
    fragments = DiLoCoPolicy(chosen).fragments([value.size for value in initial])
    common = [value.copy() for value in initial]
    local = [[value.copy() for value in common] for _ in range(workers)]
    velocity = [np.zeros_like(value) for value in common]
    answers: list[tuple[int, int]] = []  # step after which they are applied, fragment

    def apply(now: int, alpha: float) -> None:
        for due in [each for each in answers if each[0] <= now]:
            answers.remove(due)
            for key in fragments[due[1]]:
                for each in local:
                    each[key] = common[key] + np.float32(alpha) * (each[key] - common[key])

    for step in range(iterations):
        last = step + 1 == iterations
        if last:
            apply(iterations + h, chosen.alpha)  # before the last step
        for worker in range(workers):
            for key, gradient in enumerate(gradients(step, worker, local[worker])):
                local[worker][key] = local[worker][key] - np.float32(rate) * gradient
        for number, keys in enumerate(fragments):
            if (step + 1 - number * h // count) % h and not last:
                continue
            for key in keys:
                change = common[key] - np.mean([each[key] for each in local], axis=0)
                velocity[key] = chosen.outer_momentum * velocity[key] + change
                common[key] = common[key] - chosen.outer_lr * (
                    change + chosen.outer_momentum * velocity[key]
                )
            answers.append((step if last else step + tau, number))
        apply(step, 0.0 if last else chosen.alpha)
    return local[0]


def on_tiny(
    tiny: Any, seed: int, workers: int, iterations: int, options: Mapping[str, Any]
) -> list[Vector]:
    """Return `streaming` of the workload tiny."""
    model = tiny.model(seed)

    def gradients(step: int, worker: int, values: Sequence[Vector]) -> list[Vector]:
        for key, value in enumerate(values):
            model.set(key, value)
        model.step(step, worker, workers)
        return [gradient.copy() for gradient in model.gradients]

    rate = tiny.optimizer["learning_rate"]
    return streaming(
        gradients, [v.copy() for v in model.parameters], rate, workers, iterations, options
    )


def is_refused(
    experiment: Callable[..., Any], faults: Mapping[str, Any], message: str, *about: Any
) -> None:
    """Check that there is no such experiment.

    Args:
        experiment: Builds it (the fixture).
        faults: Options of `faults`.
        message: What the error says, a regular expression.
        about: Network, workload and sync algorithm.
    """
    with pytest.raises(ConfigError, match=message):
        experiment(*about, faults=FaultOptions(**faults))
