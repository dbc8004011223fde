"""A network given by the sizes of its layers, as used to reproduce curves of papers.

Anything measured elsewhere (elements per layer, milliseconds forward and backward) can be simulated
over any WAN without training code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import MinLen

from geomx.options.bounds import Count
from geomx.workload import Layer, TensorSpec, Workload
from geomx.workloads.optimizers import optimizer_of
from geomx.workloads.options import Milliseconds, Training


@dataclass(kw_only=True)
class SyntheticConfig(Training):
    """Layers of given sizes, all taking the same time; sizes only, nothing is trained."""

    elements: Annotated[list[Count], MinLen(1)] = field(  # by layer, forward order
        default_factory=lambda: [500_000] * 16
    )
    forward_ms: Milliseconds = 100.0
    backward_ms: Milliseconds = 200.0


def synthetic(config: SyntheticConfig) -> Workload:
    """Layers of given sizes, all taking the same time; sizes only, nothing is trained.

    Raises:
        ConfigError: An option is invalid.
    """
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
