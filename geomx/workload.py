"""What is trained: the tensors, the time each layer takes, and (optionally) the real numbers.

A `Workload` is enough to simulate sizes and times. A workload that can also compute gradients has a
`Model`: the same object computes real gradients inside a simulation (time stays virtual) and in a
live worker process, so loss and accuracy are predicted by the very code that is deployed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TensorSpec:
    """One trainable tensor; its position in `Workload.tensors` is its key.

    Attributes:
        name: Unique name, used in ``parameters.npz``.
        shape: Dimensions.
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
        forward_s: Seconds of the forward pass on a worker of speed 1.0.
        backward_s: Seconds of the backward pass; the layer's gradients appear at its end.
    """

    name: str
    forward_s: float
    backward_s: float


class Model(Protocol):
    """Real numbers for one workload: one network, one batch at a time.

    `parameters` and `gradients` are arrays of the framework (numpy arrays or MXNet NDArrays) in key
    order, updated in place: a live worker pushes and pulls them directly, the simulator loads a
    simulated worker's values into them before each step.
    """

    parameters: Sequence[Any]
    gradients: Sequence[Any]

    def step(self, step: int, worker: int, workers: int) -> float:
        """Compute loss and gradients of one batch.

        The result follows from `parameters` and the arguments alone, because the simulator computes
        all workers' steps with one model, and a live worker computes its first step twice (once to
        warm up). Returns once the loss is known; the framework may still be computing gradients.

        Args:
            step: Number of the worker's batch, from 0.
            worker: Position of the worker among all, from 0.
            workers: How many workers there are.

        Returns:
            Mean loss over the batch; the gradients are those of that mean.
        """
        ...

    def get(self, arrays: Sequence[Any], key: int) -> NDArray[np.float32]:
        """Copy one array, once the framework has computed it.

        Args:
            arrays: `parameters` or `gradients`.
            key: Position of the tensor.

        Returns:
            float32 values in the tensor's shape.
        """
        ...

    def set(self, key: int, value: NDArray[np.float32]) -> None:
        """Overwrite one parameter.

        Args:
            key: Position of the tensor.
            value: float32 in the tensor's shape.
        """
        ...

    def evaluate(self, parameters: Sequence[NDArray[np.float32]]) -> tuple[float, float]:
        """Evaluate parameters on the held-out data.

        Args:
            parameters: float32 arrays in key order.

        Returns:
            Accuracy from 0 to 1, and mean loss.
        """
        ...


@dataclass(frozen=True)
class Workload:
    """A training job as the network sees it.

    Attributes:
        name: As in ``workload=NAME``.
        layers: In forward order.
        tensors: In key order (forward order of layers).
        batch_size: Samples per worker and step.
        samples: Size of the training set (all workers together).
        iterations: Default number of local steps per worker.
        evaluate_every: Local steps between evaluations on held-out data.
        optimizer: Name and numbers, e.g. ``{"name": "adam", "learning_rate": 0.001}``.
        device: Where workers' tensors lie: cpu, cuda or cuda:N.
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
        """Build the network, load its data and draw the initial parameters.

        Args:
            seed: Of the initial parameters.

        Returns:
            The model.

        Raises:
            ConfigError: The workload has sizes and times only, or its framework or data is absent.
        """
        from geomx.errors import ConfigError

        raise ConfigError("numerics", "true", f"workload {self.name} has sizes and times only")

    @property
    def step_s(self) -> float:
        """Seconds of one forward and backward pass on a worker of speed 1.0."""
        return sum(layer.forward_s + layer.backward_s for layer in self.layers)

    @property
    def elements(self) -> int:
        """Trainable elements in all tensors."""
        return sum(tensor.elements for tensor in self.tensors)
