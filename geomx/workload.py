"""Interfaces of workloads: tensors, times of layers and, optionally, a model with real gradients.

A `Workload` is enough to simulate sizes and times. A workload that can also compute gradients has a
`Model`: the same object computes real gradients in a simulation (time stays virtual) and in a live
worker process, so that loss and accuracy are predicted by the code that is deployed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from geomx.errors import ConfigError


@dataclass(frozen=True)
class TensorSpec:
    """One trainable tensor; its position in `Workload.tensors` is its key.

    Attributes:
        name: Unique name, used in ``parameters.npz``.
        shape: Dimensions, 1 or more each; none of a single number.
        layer: Index into `Workload.layers` of the layer that uses it.
    """

    name: str
    shape: tuple[int, ...]
    layer: int

    @property
    def elements(self) -> int:
        """Number of float32 elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


@dataclass(frozen=True)
class Layer:
    """One step of the forward pass; backward visits layers in reverse order.

    Attributes:
        name: For the timeline.
        forward_s: Seconds of the forward pass on a worker of speed 1.0, 0 or more.
        backward_s: The same of the backward pass, at whose end the layer's gradients appear.
    """

    name: str
    forward_s: float
    backward_s: float


class Model(Protocol):
    """The numerics of a workload: one network, one batch at a time.

    `parameters` and `gradients` are arrays of the framework (numpy arrays or MXNet NDArrays) in key
    order, updated in place: a live worker pushes and pulls them directly, the simulator loads a
    simulated worker's values into them before each step. Both modes refuse other results than
    these methods promise; arrays are checked in the first steps.
    """

    parameters: Sequence[Any]
    gradients: Sequence[Any]

    def step(self, step: int, worker: int, workers: int) -> float:
        """Compute loss and gradients of one batch of a worker.

        Both follow from `parameters` and the arguments alone, since the simulator computes all
        workers' steps with one model, and a live worker computes its first step twice (once to warm
        up). Gradients may still be computed asynchronously by the framework after the return.

        Args:
            step: Number of the batch, from 0.
            worker: Rank of the worker, from 0.
            workers: Number of workers.

        Returns:
            The mean loss over the batch; `gradients` are those of this mean.
        """
        ...

    def get(self, arrays: Sequence[Any], key: int) -> NDArray[np.float32]:
        """Copy a parameter or a gradient, after waiting for the framework.

        Args:
            arrays: `parameters` or `gradients`.
            key: Position in it.

        Returns:
            A float32 numpy array of the tensor's shape.
        """
        ...

    def set(self, key: int, value: NDArray[np.float32]) -> None:
        """Overwrite a parameter.

        Args:
            key: Position in `parameters`.
            value: Float32 array of the tensor's shape.
        """
        ...

    def evaluate(self, parameters: Sequence[NDArray[np.float32]]) -> tuple[float, float]:
        """Evaluate given parameters on the held-out data.

        Args:
            parameters: Float32 arrays in key order.

        Returns:
            Accuracy in 0..1, and mean loss.
        """
        ...


@dataclass(frozen=True)
class Workload:
    """A training job, described by what the network sees of it.

    Attributes:
        name: As in ``workload=NAME``, under which it is registered.
        layers: In forward order.
        tensors: In key order (forward order of layers).
        batch_size: Samples per worker and step.
        samples: Size of the training set (all workers together).
        iterations: Default number of local steps per worker.
        evaluate_every: Local steps between evaluations on held-out data.
        optimizer: Name and parameters, e.g. ``{"name": "adam", "learning_rate": 0.001}``.
        device: Device of the workers' tensors: cpu, cuda or cuda:N.
        has_numerics: Whether `model` works.
    """

    name: str
    layers: tuple[Layer, ...]
    tensors: tuple[TensorSpec, ...]
    batch_size: int
    samples: int
    iterations: int
    evaluate_every: int = 10
    optimizer: dict[str, Any] = field(
        default_factory=lambda: {"name": "sgd", "learning_rate": 0.01}
    )

    device: str = "cpu"

    has_numerics: bool = False

    def model(self, seed: int) -> Model:
        """Build the network and load its data.

        Args:
            seed: Seed of the initial parameters.

        Returns:
            The model with its initial parameters.

        Raises:
            ConfigError: The workload has sizes and times only, or its framework or data is missing.
        """
        raise ConfigError("numerics", "true", f"workload {self.name} has sizes and times only")

    @property
    def step_s(self) -> float:
        """Seconds of one forward and backward pass on a worker of speed 1.0."""
        return sum(layer.forward_s + layer.backward_s for layer in self.layers)

    @property
    def elements(self) -> int:
        """Trainable elements in all tensors."""
        return sum(tensor.elements for tensor in self.tensors)
