"""A network given by the sizes of its layers, as used to reproduce curves of papers.

Anything measured elsewhere (elements per layer, milliseconds forward and backward) can be simulated
over any WAN without training code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from geomx.errors import ConfigError
from geomx.workload import Layer, TensorSpec, Workload
from geomx.workloads.optimizers import optimizer_of
from geomx.workloads.stages import check_pace


@dataclass
class SyntheticConfig:
    """Layers of given sizes, all taking the same time; sizes only, nothing is trained."""

    elements: list[int] = field(default_factory=lambda: [500_000] * 16)  # by layer, forward order
    batch_size: int = 32  # samples per worker and step
    learning_rate: float = 0.1
    optimizer: str = "sgd"  # adagrad, adam, adamw, dcasgd, nag, rmsprop or sgd
    momentum: float | None = None  # of dcasgd, nag and sgd
    wd: float | None = None  # weight decay
    optimizer_options: dict[str, Any] = field(default_factory=dict)  # others, as MXNet names them
    iterations: int = 20  # local steps per worker
    evaluate_every: int = 10  # unused: there is nothing to evaluate
    forward_ms: float = 100.0  # whole network, one batch, a worker of speed 1.0
    backward_ms: float = 200.0  # likewise


def synthetic(config: SyntheticConfig) -> Workload:
    """Layers of given sizes, all taking the same time; sizes only, nothing is trained.

    Raises:
        ConfigError: An option is invalid.
    """
    check_pace(config)
    if not config.elements or min(config.elements) < 1:
        remedy = "must list at least one layer, each of at least one element"
        raise ConfigError("workload.elements", config.elements, remedy)
    layers = len(config.elements)
    step = config.forward_ms / layers / 1e3, config.backward_ms / layers / 1e3
    return Workload(
        name="synthetic",
        layers=tuple(Layer(f"layer{index}", *step) for index in range(layers)),
        tensors=tuple(
            TensorSpec(f"layer{index}.weight", (count,), index)
            for index, count in enumerate(config.elements)
        ),
        batch_size=config.batch_size,
        samples=config.batch_size * config.iterations,
        iterations=config.iterations,
        evaluate_every=config.evaluate_every,
        optimizer=optimizer_of(config),
    )
