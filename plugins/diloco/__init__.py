"""DiLoCo: workers train locally for H steps, then an outer optimizer applies their mean change.

Douillard et al., 2023 (arXiv 2311.08105). Every worker runs the workload's optimizer, whose state
stays with it. After every `h` steps and after the last, parties send the mean change of their
workers from the common model, and the global server applies the mean of all changes as a gradient:
SGD with Nesterov momentum. The WAN carries 1 / h of the bytes of full synchronisation.

With `outer_lr` 1 and `outer_momentum` 0 the model becomes the mean of all workers (local SGD), and
with `h` 1 as well, and SGD on the workers, it is that of full synchronisation.

A quorum of parties and a deadline after which a round closes without the others are
``faults.quorum`` and ``faults.deadline_s``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Gt, Interval, Unit

from geomx.cluster import Cluster, NodeSpec, Party
from geomx.plugin import Native, SyncPolicy
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register


@dataclass(frozen=True)
class DiLoCoConfig:
    """Options of DiLoCo."""

    h: Annotated[int, Ge(1), Unit("steps")] = field(default=20, metadata={"search": (10, 20, 50)})
    """Local steps between two synchronisations."""
    outer_lr: Annotated[float, Gt(0)] = 0.7
    """Learning rate of the outer optimizer."""
    outer_momentum: Annotated[float, Interval(ge=0, lt=1)] = 0.9
    """Nesterov momentum of the outer optimizer."""


@dataclass(frozen=True)
class DiLoCoPolicy(SyncPolicy):
    """Exchanges parameters every h steps; the global servers run the outer optimizer."""

    config: DiLoCoConfig
    exchange = "parameters"

    def after_step(self, step: int, steps: int) -> bool:
        """Return whether this is an h-th step, or the last."""
        return (step + 1) % self.config.h == 0 or step + 1 == steps

    def push_scale(self, cluster: Cluster, worker: NodeSpec) -> float:
        """Return 1 / (number of all workers), so that the sum of all is the mean."""
        return 1.0 / len(cluster.workers)

    def party_policy(self, cluster: Cluster, party: Party) -> Native:
        """Return the native policy that sends the party's change of the model."""
        return Native("policy", "changes", {"workers": float(len(cluster.workers))})

    def global_optimizer(self, optimizer: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return the outer optimizer: SGD with Nesterov momentum."""
        config = self.config
        return {
            "name": "nag",
            "learning_rate": config.outer_lr,
            "momentum": config.outer_momentum,
        }

    def local_optimizer(self, optimizer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the workload's optimizer, which every worker runs with its own state."""
        return dict(optimizer)


class DiLoCo:
    """Local steps on every worker, then an outer Nesterov step on their mean change."""

    def __init__(self, config: DiLoCoConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_sync_policy(self, cluster: Cluster) -> SyncPolicy:
        """Return the sync policy of this algorithm."""
        return DiLoCoPolicy(self.config)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``sync=diloco``."""
    register("sync", "diloco", DiLoCoConfig, DiLoCo)
