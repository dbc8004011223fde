"""The options that workloads have in common, declared once.

A workload's own dataclass declares what it adds, and again what has another default there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Gt, Interval, Unit

from geomx.options.bounds import Count

Milliseconds = Annotated[float, Interval(ge=0, le=1e9), Unit("ms")]
Rate = Annotated[float, Gt(0)]


@dataclass(kw_only=True)
class Amount:
    """How much there is to do."""

    batch_size: Count = 32  # samples per worker and step
    iterations: Count = 20  # local steps per worker
    evaluate_every: Count = 10  # local steps between evaluations on held-out data


@dataclass(kw_only=True)
class Pace(Amount):
    """How much there is to do, and how long it takes."""

    forward_ms: Milliseconds = 10.0  # nominal, whole network, one batch, a worker of speed 1.0
    backward_ms: Milliseconds = 20.0  # nominal, likewise


@dataclass(kw_only=True)
class Updates:
    """How parameters are updated; `geomx.workloads.optimizers` makes the optimizer of it."""

    learning_rate: Rate = 0.1
    optimizer: str = "sgd"  # adagrad, adam, adamw, dcasgd, delayed_nag, nag, rmsprop or sgd
    momentum: float | None = None  # of dcasgd, delayed_nag, nag and sgd
    wd: float | None = None  # weight decay
    # Others, as the core spells them. Options with a common first part may be a dict
    # ({"schedule": {"cosine": {"max_update": 500}}}), and numbered ones a list
    # ({"schedule": {"multifactor": {"step": [100, 200]}}}).
    optimizer_options: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class Training(Updates, Pace):
    """How a workload trains, and how long it takes."""
