"""adabelief: steps are large where gradients are predictable, and small where they are not.

AdaBelief (Zhuang et al., NeurIPS 2020, arXiv 2010.07468): Adam, with the second moment taken about
the mean of the gradient instead of zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Gt, Interval

import geomx

geomx_api = "2.0"


@dataclass(frozen=True)
class AdaBeliefConfig:
    """Options of adabelief."""

    beta1: Annotated[float, Interval(ge=0, lt=1)] = 0.9
    """Decay of the mean of gradients."""
    beta2: Annotated[float, Interval(ge=0, lt=1)] = 0.999
    """Decay of the mean of squared deviations."""
    epsilon: Annotated[float, Gt(0)] = 1e-8
    """Added to deviations, which may be zero."""
    rate: Annotated[float, Gt(0)] = 0.1
    """Factor on the workload's learning rate, which is meant for SGD."""


class Belief:
    """The state of one shard; geomx makes a deep copy for each."""

    def __init__(self, config: AdaBeliefConfig) -> None:
        self.config = config
        self.steps = 0
        self.mean = self.surprise = np.float32(0)

    def update(self, weight, gradient, learning_rate):
        """Return the new weights (algorithm 2 of the paper)."""
        beta1, beta2, epsilon = self.config.beta1, self.config.beta2, self.config.epsilon
        self.steps += 1
        self.mean = beta1 * self.mean + (1 - beta1) * gradient
        surprise = (gradient - self.mean) ** 2
        self.surprise = beta2 * self.surprise + (1 - beta2) * surprise + epsilon
        mean = self.mean / (1 - beta1**self.steps)
        spread = np.sqrt(self.surprise / (1 - beta2**self.steps)) + epsilon
        return weight - self.config.rate * learning_rate * mean / spread


class AdaBelief:
    """Optimizer with large steps where gradients are predictable (AdaBelief)."""

    def __init__(self, config: AdaBeliefConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_optimizer(self) -> Belief:
        """Replace the workload's optimizer, wherever that runs."""
        return Belief(self.config)


@geomx.hookimpl
def geomx_register(register) -> None:
    """Register ``accel=[adabelief]``."""
    register("accel", "adabelief", AdaBeliefConfig, AdaBelief)
