"""ResNet-50 by its sizes and times, for simulation of a network that is too large to train here.

Every tensor of ResNet-50 v1 (He et al., 2015, https://arxiv.org/abs/1512.03385, table 1) follows
from the architecture: 53 convolutions without bias, each with gamma and beta of a batch
normalisation, and one dense layer; 161 tensors, 25,557,032 parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from geomx.workload import Workload
from geomx.workloads.optimizers import optimizer_of
from geomx.workloads.options import Milliseconds, Training
from geomx.workloads.stages import Stage, layers_and_tensors

IMAGENET_SAMPLES = 1_281_167


@dataclass(kw_only=True)
class ResNet50Config(Training):
    """ResNet-50's 161 tensors and layer times; sizes only, nothing is trained.

    The default times are those of one NVIDIA V100 in single precision at batch size 32: MXNet's
    performance guide (https://mxnet.apache.org/api/faq/perf, MXNet 1.2) gives 298.51 images/s for
    training and 1076.81 images/s for inference, so 107.2 ms a step, of which 29.7 ms forward.
    """

    forward_ms: Milliseconds = 29.7
    backward_ms: Milliseconds = 77.5


def resnet50(config: ResNet50Config) -> Workload:
    """ResNet-50's 161 tensors and layer times; sizes only, nothing is trained."""
    layers, tensors = layers_and_tensors(tuple(stages()), config.forward_ms, config.backward_ms)
    return Workload(
        name="resnet50",
        layers=layers,
        tensors=tensors,
        batch_size=config.batch_size,
        samples=IMAGENET_SAMPLES,
        iterations=config.iterations,
        evaluate_every=config.evaluate_every,
        optimizer=optimizer_of(config),
    )


def stages() -> Iterator[Stage]:
    """Yield the 54 layers for 224x224 images, in forward order, a block's shortcut last."""
    yield _convolution("conv1", 3, 64, kernel=7, side=112)
    channels = 64
    for group, (width, blocks, side) in enumerate(
        ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)), start=2
    ):
        for block in range(1, blocks + 1):
            name = f"conv{group}_{block}"
            yield _convolution(f"{name}.reduce", channels, width, kernel=1, side=side)
            yield _convolution(f"{name}.spatial", width, width, kernel=3, side=side)
            yield _convolution(f"{name}.expand", width, 4 * width, kernel=1, side=side)
            if block == 1:
                yield _convolution(f"{name}.shortcut", channels, 4 * width, kernel=1, side=side)
            channels = 4 * width
    yield Stage("dense", (("dense.weight", (1000, channels)), ("dense.bias", (1000,))))


def _convolution(name: str, inputs: int, outputs: int, kernel: int, side: int) -> Stage:
    """Return a convolution with `side` x `side` outputs, and its batch normalisation."""
    return Stage(
        name,
        (
            (f"{name}.weight", (outputs, inputs, kernel, kernel)),
            (f"{name}.gamma", (outputs,)),
            (f"{name}.beta", (outputs,)),
        ),
        side * side,
    )
