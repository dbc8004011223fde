"""FedBuff: local steps, and global updates with the changes that come first.

Nguyen et al., AISTATS 2022 (arXiv 2106.06639). Workers run the workload's optimizer for `h` steps;
then the party sends its change of the model. The global server collects changes in a buffer and
updates the model when there are `k`. A change that was computed from an older model is divided by
(1 + age) ** `exponent`, where its age is the number of updates since then, and the sum of the
buffer by the number of changes, so that a buffer of stale changes is a smaller step.

A party whose change arrives after the buffer that it was meant for is answered at once, and its
change is in the next buffer. What differs from the publication: a party waits for the update that
its change is a part of, and does not train on from an old model meanwhile. With `k` = all parties
this is federated averaging; with `k` = 1 every party's change is applied as it arrives.

`party_k` puts a buffer in front of it, at every party: it sends its change when so many of its
workers' are there, where a stale one weighs less by the same formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Gt, Interval, Unit

from geomx.cluster import Cluster, NodeSpec, Party
from geomx.errors import ConfigError
from geomx.plugin import Native, SyncPolicy
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register


@dataclass(frozen=True)
class FedBuffConfig:
    """Options of FedBuff."""

    h: Annotated[int, Ge(1), Unit("steps")] = field(default=8, metadata={"search": (4, 8, 16)})
    """Local steps between two pushes."""
    k: Annotated[int | None, Ge(1), Unit("parties")] = None
    """Changes with which the global model is updated; null: of half of the parties, rounded up."""
    party_k: Annotated[int | None, Ge(1), Unit("workers")] = None
    """Workers' changes with which a party sends its own; null: of all its workers."""
    exponent: Annotated[float, Ge(0)] = 0.5
    """A change of this age weighs (1 + age) ** -exponent."""
    oldest: Annotated[int | None, Ge(0), Unit("updates")] = None
    """Age up to which a change counts; older ones are lost. null: all count."""
    global_lr: Annotated[float, Gt(0)] = 1.0
    """Learning rate of the global server."""
    global_momentum: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """Momentum of the global server."""


@dataclass(frozen=True)
class FedBuffPolicy(SyncPolicy):
    """Exchanges parameters every h steps; global servers update with a buffer of changes."""

    config: FedBuffConfig
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

    def round_policy(self, cluster: Cluster) -> Native:
        """Return the native policy of fedbuff.cc.

        Raises:
            ConfigError: The buffer holds more changes than there are parties.
        """
        config, parties = self.config, len(cluster.parties)
        if config.k is not None and config.k > parties:
            raise ConfigError("sync.k", config.k, f"must be at most {parties}, the parties")
        return self._rounds(config.k or -(-parties // 2))

    def party_round_policy(self, cluster: Cluster, party: Party) -> Native | None:
        """Return the same policy for the buffer of a party.

        Raises:
            ConfigError: It holds more changes than any party has workers.
        """
        k = self.config.party_k
        if k is None:
            return None
        most = max(len(each.workers) for each in cluster.parties)
        if k > most:
            remedy = f"must be at most {most}, the workers of the largest party"
            raise ConfigError("sync.party_k", k, remedy)
        return self._rounds(min(k, len(party.workers)))

    def _rounds(self, k: int) -> Native:
        oldest = self.config.oldest
        options = {
            "k": float(k),
            "exponent": self.config.exponent,
            "oldest": float("inf") if oldest is None else float(oldest),
        }
        return Native("rounds", "fedbuff", options)

    def global_optimizer(self, optimizer: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return the optimizer that applies the mean of a buffer's changes: SGD."""
        config = self.config
        made = {"name": "sgd", "learning_rate": config.global_lr}
        return made | ({"momentum": config.global_momentum} if config.global_momentum else {})

    def local_optimizer(self, optimizer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the workload's optimizer, which every worker runs with its own state."""
        return dict(optimizer)


class FedBuff:
    """Local steps, and global updates with the first k parties' changes, stale ones with less."""

    def __init__(self, config: FedBuffConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_sync_policy(self, cluster: Cluster) -> SyncPolicy:
        """Return the sync policy of this algorithm."""
        return FedBuffPolicy(self.config)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``sync=fedbuff``."""
    register("sync", "fedbuff", FedBuffConfig, FedBuff)
