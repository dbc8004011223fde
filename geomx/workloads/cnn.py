"""GeoMX's example CNN on handwritten digits, MNIST or Fashion-MNIST: real data, real gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from geomx.options.bounds import Count
from geomx.workload import Model, Workload
from geomx.workloads.gluon import GluonModel
from geomx.workloads.idx import load_idx, training_samples
from geomx.workloads.images import DIGITS_TRAINING, Images, load_digits
from geomx.workloads.optimizers import optimizer_of
from geomx.workloads.options import Rate, Training
from geomx.workloads.stages import Stage, layers_and_tensors

# Each convolution is followed by ReLU and 2x2 max pooling, each dense layer but the last by ReLU.
STAGES = (
    Stage("conv1", (("conv1.weight", (16, 1, 5, 5)), ("conv1.bias", (16,))), 24 * 24),
    Stage("conv2", (("conv2.weight", (32, 16, 5, 5)), ("conv2.bias", (32,))), 8 * 8),
    Stage("dense1", (("dense1.weight", (256, 512)), ("dense1.bias", (256,)))),
    Stage("dense2", (("dense2.weight", (128, 256)), ("dense2.bias", (128,)))),
    Stage("dense3", (("dense3.weight", (10, 128)), ("dense3.bias", (10,)))),
)


@dataclass(kw_only=True)
class DigitsConfig(Training):
    """GeoMX's example CNN on scikit-learn's handwritten digits (nothing to download)."""

    learning_rate: Rate = 0.002
    optimizer: str = "adam"
    iterations: Count = 120
    split_by_class: bool = False  # true: workers see few classes each (non-IID)


@dataclass(kw_only=True)
class IdxConfig(DigitsConfig):
    """GeoMX's example CNN on IDX files (MNIST or Fashion-MNIST) in a folder that you name."""

    path: str = ""  # folder with train-images-idx3-ubyte[.gz] and its three companions
    learning_rate: Rate = 0.001
    iterations: Count = 300
    evaluate_every: Count = 50


@dataclass(frozen=True)
class CnnWorkload(Workload):
    """The example CNN on a set of images.

    Attributes:
        load: Reads the images; called only when a model is built.
        split_by_class: Whether training samples are ordered by label before workers take their
            slices.
    """

    load: Callable[[], Images] = load_digits
    split_by_class: bool = False
    has_numerics: bool = True

    def model(self, seed: int) -> Model:
        """Build the Gluon network on this workload's images; see `Workload.model`."""
        images = self.load()
        if self.split_by_class:
            images = images.by_class()
        return GluonModel(self.tensors, images, self.batch_size, seed)


def digits_cnn(config: DigitsConfig) -> Workload:
    """GeoMX's example CNN on scikit-learn's handwritten digits (nothing to download)."""
    return _workload("digits_cnn", config, DIGITS_TRAINING, load_digits)


def mnist(config: IdxConfig) -> Workload:
    """GeoMX's example CNN on MNIST's IDX files in the folder workload.path."""
    return _workload("mnist", config, training_samples(config.path), partial(load_idx, config.path))


def fashion_mnist(config: IdxConfig) -> Workload:
    """GeoMX's example CNN on Fashion-MNIST's IDX files in the folder workload.path."""
    return _workload(
        "fashion_mnist", config, training_samples(config.path), partial(load_idx, config.path)
    )


def _workload(
    name: str, config: DigitsConfig, samples: int, load: Callable[[], Images]
) -> Workload:
    layers, tensors = layers_and_tensors(STAGES, config.forward_ms, config.backward_ms)
    return CnnWorkload(
        name=name,
        layers=layers,
        tensors=tensors,
        batch_size=config.batch_size,
        samples=samples,
        iterations=config.iterations,
        evaluate_every=config.evaluate_every,
        optimizer=optimizer_of(config),
        load=load,
        split_by_class=config.split_by_class,
    )
