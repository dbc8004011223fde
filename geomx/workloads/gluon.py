"""The numerics of the example CNN: a Gluon network that computes gradients batch by batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.frameworks.mxnet_loader import load_mxnet
from geomx.frameworks.mxnet_memory import Overwritten
from geomx.workload import TensorSpec
from geomx.workloads.images import Images, batch_indices, own_slice, pixels

_EVALUATION_BATCH = 500


class GluonModel:
    """The example CNN on `images`; see `geomx.workload.Model` for the contract of its methods.

    Equal parameters, seed, step, worker and number of workers give bit-identical losses and
    gradients in every process on one machine.

    Args:
        tensors: The workload's tensors, in key order.
        images: Training and held-out data.
        batch_size: Samples per step.
        seed: Seed of the initial parameters and of the batches.

    Attributes:
        parameters: MXNet arrays in key order, updated in place.
        gradients: The arrays that `step` writes, one per parameter.
    """

    def __init__(
        self, tensors: Sequence[TensorSpec], images: Images, batch_size: int, seed: int
    ) -> None:
        self._mx = load_mxnet()
        self._images = images
        self._batch_size = batch_size
        self._seed = seed
        self._network = _network(self._mx)
        self._judge: Any = None  # a second network, so that evaluation does not touch parameters
        self._judged: list[Overwritten] = []  # its parameters
        self._loss = self._mx.gluon.loss.SoftmaxCrossEntropyLoss()
        trained = list(self._network.collect_params().values())
        self.parameters: Sequence[Any] = [parameter.data() for parameter in trained]
        self.gradients: Sequence[Any] = [parameter.grad() for parameter in trained]
        self._memory = [Overwritten(array) for array in self.parameters]
        generator = np.random.default_rng(seed)
        for key, tensor in enumerate(tensors):
            self.set(key, _xavier(tensor.shape, generator))

    def step(self, step: int, worker: int, workers: int) -> float:
        """Compute loss and gradients of a worker's batch number `step`; see `Model.step`."""
        data = self._images
        mine = own_slice(len(data.training), worker, workers)
        chosen = batch_indices(mine, self._batch_size, step, (self._seed, worker))
        inputs = self._mx.nd.array(pixels(data.training[chosen]))
        labels = self._mx.nd.array(data.training_labels[chosen])
        with self._mx.autograd.record():
            loss = self._loss(self._network(inputs), labels).mean()
        loss.backward()
        return float(loss.asscalar())

    def get(self, arrays: Sequence[Any], key: int) -> NDArray[np.float32]:
        """Return a float32 numpy copy of ``arrays[key]``; waits for its last writer."""
        copy: NDArray[np.float32] = arrays[key].asnumpy()
        return copy

    def set(self, key: int, value: NDArray[np.float32]) -> None:
        """Overwrite parameter `key`; waits for operations that still read it."""
        self._memory[key].set(value)

    def evaluate(self, parameters: Sequence[NDArray[np.float32]]) -> tuple[float, float]:
        """Return accuracy (0..1) and mean loss of `parameters` on the whole held-out set."""
        if self._judge is None:
            self._judge = _network(self._mx)
            judge = self._judge.collect_params().values()
            self._judged = [Overwritten(parameter.data()) for parameter in judge]
        for memory, value in zip(self._judged, parameters, strict=True):
            memory.set(value)
        images, labels = self._images.held_out, self._images.held_out_labels
        correct, loss = 0, 0.0
        for start in range(0, len(images), _EVALUATION_BATCH):
            expected = labels[start : start + _EVALUATION_BATCH]
            inputs = self._mx.nd.array(pixels(images[start : start + _EVALUATION_BATCH]))
            # In inference mode oneDNN permanently rearranges the weights in place, and the next
            # evaluation could not overwrite them; the results are the same in both modes.
            with self._mx.autograd.train_mode():
                scores = self._judge(inputs)
            correct += int((scores.asnumpy().argmax(axis=1) == expected).sum())
            loss += float(self._loss(scores, self._mx.nd.array(expected)).sum().asscalar())
        return correct / len(images), loss / len(images)


def _network(mx: Any) -> Any:
    """Return the example CNN for one 28x28 channel, with known shapes and zero values.

    Without bulking, each operator of the backward pass is an operation of its own in MXNet's
    engine, so that the last layer's gradients can be sent while the first layer's are being
    computed.
    """
    nn = mx.gluon.nn
    network = nn.HybridSequential()
    network.add(
        nn.Conv2D(16, kernel_size=5, in_channels=1, activation="relu"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Conv2D(32, kernel_size=5, in_channels=16, activation="relu"),
        nn.MaxPool2D(pool_size=2, strides=2),
        nn.Dense(256, in_units=512, activation="relu"),
        nn.Dense(128, in_units=256, activation="relu"),
        nn.Dense(10, in_units=128),
    )
    network.initialize(mx.init.Zero(), ctx=mx.cpu())
    network.hybridize(forward_bulk_size=0, backward_bulk_size=0)
    return network


def _xavier(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.float32]:
    """Return initial values: zero for a bias, otherwise uniform as in Glorot and Bengio (2010).

    Drawn by numpy and not by MXNet's initializer, whose draws depend on (and change) a random state
    that is shared by the whole process.
    """
    if len(shape) == 1:
        return np.zeros(shape, np.float32)
    receptive_field = math.prod(shape[2:])
    bound = math.sqrt(6 / ((shape[0] + shape[1]) * receptive_field))
    return generator.uniform(-bound, bound, shape).astype(np.float32)
