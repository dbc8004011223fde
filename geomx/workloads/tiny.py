"""A network that trains within seconds, for trying plugins and for tests.

It has real gradients of a real loss in both modes without MXNet: numpy only, float32, every
operation in a fixed order. The data is synthetic (points on two sides of a plane), drawn from the
seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from geomx.workload import Layer, Model, TensorSpec, Workload
from geomx.workloads.images import own_slice
from geomx.workloads.options import Milliseconds, Pace, Rate

SAMPLES, FEATURES, HIDDEN, BATCH = 480, 12, 40, 8
Vector = NDArray[np.float32]


class TinyModel:
    """A tanh network with one hidden layer; see `geomx.workload.Model`.

    Args:
        tensors: The workload's tensors, in key order.
        seed: Seed of data and initial parameters.
        batch: Samples per step.
    """

    def __init__(self, tensors: Sequence[TensorSpec], seed: int, batch: int = BATCH) -> None:
        draw = np.random.default_rng(seed)
        self.inputs = draw.standard_normal((SAMPLES, FEATURES), dtype=np.float32)
        direction = draw.standard_normal(FEATURES, dtype=np.float32)
        self.targets = np.sign(self.inputs @ direction)
        self.parameters: Sequence[Vector] = [
            0.3 * draw.standard_normal(tensor.shape, dtype=np.float32) for tensor in tensors
        ]
        self.gradients: Sequence[Vector] = [
            np.zeros(tensor.shape, np.float32) for tensor in tensors
        ]
        self._batch = batch

    def batch(self, step: int, worker: int, workers: int) -> NDArray[np.intp]:
        """Return the sample indices of a worker's batch, cycling through its own slice.

        Args:
            step: Number of the batch, from 0.
            worker: Rank of the worker, from 0.
            workers: Number of workers.

        Raises:
            ConfigError: There are fewer samples than workers.
        """
        mine = own_slice(SAMPLES, worker, workers)
        return mine.start + (step * self._batch + np.arange(self._batch)) % len(mine)

    def differentiate(self, chosen: NDArray[np.intp]) -> float:
        """Compute the gradients of the mean over the samples `chosen`; return the loss."""
        inputs, targets = self.inputs[chosen], self.targets[chosen]
        weight1, bias1, weight2 = self.parameters
        hidden = np.tanh(inputs @ weight1 + bias1)
        error = hidden @ weight2 - targets
        back = np.outer(error, weight2) * (1 - hidden**2) / np.float32(len(chosen))
        self.gradients[0][...] = inputs.T @ back
        self.gradients[1][...] = back.sum(axis=0)
        self.gradients[2][...] = hidden.T @ error / np.float32(len(chosen))
        return float((error**2).mean() / 2)

    def step(self, step: int, worker: int, workers: int) -> float:
        """See `Model.step`."""
        return self.differentiate(self.batch(step, worker, workers))

    def get(self, arrays: Sequence[Vector], key: int) -> Vector:
        """See `Model.get`."""
        return arrays[key].copy()

    def set(self, key: int, value: Vector) -> None:
        """See `Model.set`."""
        self.parameters[key][...] = value

    def evaluate(self, parameters: Sequence[Vector]) -> tuple[float, float]:
        """See `Model.evaluate`; uses all samples, since there are no others."""
        weight1, bias1, weight2 = parameters
        scores = np.tanh(self.inputs @ weight1 + bias1) @ weight2
        correct = np.mean(np.sign(scores) == self.targets)
        return float(correct), float(((scores - self.targets) ** 2).mean() / 2)


@dataclass(frozen=True)
class TinyWorkload(Workload):
    """The workload of `TinyModel`."""

    has_numerics: bool = True

    def model(self, seed: int) -> Model:
        """See `Workload.model`."""
        return TinyModel(self.tensors, seed, self.batch_size)


@dataclass(kw_only=True)
class TinyConfig(Pace):
    """A network of 560 weights on made-up data: for trying things out."""

    batch_size: Annotated[int, Interval(ge=1, le=SAMPLES)] = BATCH
    learning_rate: Rate = 0.05  # of plain SGD
    forward_ms: Milliseconds = 2.0
    backward_ms: Milliseconds = 4.0


def tiny(config: TinyConfig) -> Workload:
    """A network of 560 weights on synthetic data, in numpy: for trying things out."""
    half = config.forward_ms / 2e3, config.backward_ms / 2e3
    return TinyWorkload(
        name="tiny",
        layers=(Layer("hidden", *half), Layer("output", *half)),
        tensors=(
            TensorSpec("hidden.weight", (FEATURES, HIDDEN), 0),
            TensorSpec("hidden.bias", (HIDDEN,), 0),
            TensorSpec("output.weight", (HIDDEN,), 1),
        ),
        batch_size=config.batch_size,
        samples=SAMPLES,
        iterations=config.iterations,
        evaluate_every=config.evaluate_every,
        optimizer={"name": "sgd", "learning_rate": config.learning_rate},
    )
