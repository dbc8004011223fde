"""Conversion of an architecture to layers with times and tensors with keys.

A network is described once, by its stages in forward order; tensors, keys and each layer's share of
the step time are derived from them and are therefore consistent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from geomx.workload import Layer, TensorSpec


@dataclass(frozen=True)
class Stage:
    """One layer with weights, a convolution or a dense layer, and its bias or normalisation.

    Attributes:
        name: For the timeline.
        tensors: (name, shape) of each trainable tensor; the first is the weight.
        positions: Number of uses of each weight per sample (output height times width; dense: 1).
    """

    name: str
    tensors: tuple[tuple[str, tuple[int, ...]], ...]
    positions: int = 1

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of one sample's forward pass, without bias and normalisation."""
        return math.prod(self.tensors[0][1]) * self.positions


def layers_and_tensors(
    stages: Sequence[Stage], forward_ms: float, backward_ms: float
) -> tuple[tuple[Layer, ...], tuple[TensorSpec, ...]]:
    """Convert stages to layers and tensors, with times in proportion to multiply-adds.

    Args:
        stages: In forward order.
        forward_ms: Milliseconds of one forward pass over a batch on a worker of speed 1.0.
        backward_ms: The same for the backward pass.

    Returns:
        The layers, and the tensors in key order.
    """
    total = sum(stage.multiply_adds for stage in stages)
    layers = tuple(
        Layer(
            stage.name,
            forward_ms * 1e-3 * stage.multiply_adds / total,
            backward_ms * 1e-3 * stage.multiply_adds / total,
        )
        for stage in stages
    )
    tensors = tuple(
        TensorSpec(name, shape, index)
        for index, stage in enumerate(stages)
        for name, shape in stage.tensors
    )
    return layers, tensors
