"""Workers train locally for H steps, then the model makes an outer Nesterov step.

DiLoCo (Douillard et al., 2023, arXiv 2311.08105) in its simplest form, all in Python, as an
example; geomx's own ``sync=diloco`` has more options and a native part. Inner steps use the
workload's own optimizer on every worker. After H of them, parties send the mean change of their
workers from the common model; the global server treats the mean of these changes as a gradient for
an optimizer of its own, SGD with Nesterov momentum. With `outer_lr` 1 and `momentum` 0 the result
is the mean of all parameters, as in local SGD.

The WAN carries 1 / H of the bytes of full synchronisation. The defaults are those of the paper:
outer learning rate 0.7, momentum 0.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import geomx
from geomx.cluster import Cluster, NodeSpec, Party

geomx_api = "2.0"


@dataclass(frozen=True)
class OuterConfig:
    """Options of outer."""

    h: int = 50
    """Inner steps between two outer steps, 1 or more."""
    outer_lr: float = 0.7
    """Learning rate of the outer optimizer, more than 0."""
    momentum: float = 0.9
    """Nesterov momentum of the outer optimizer, 0 or more and less than 1."""

    def __post_init__(self) -> None:
        if self.h < 1:
            raise geomx.ConfigError("h", self.h, "must be 1 or more inner steps")
        if not self.outer_lr > 0:
            raise geomx.ConfigError("outer_lr", self.outer_lr, "must be more than 0")
        if not 0 <= self.momentum < 1:
            raise geomx.ConfigError("momentum", self.momentum, "must be 0 or more, less than 1")


class Moves:
    """State of a local server: the model that its workers started from, by shard."""

    makes_up = True  # sums that lack lost workers are scaled up to those of all, as `share` expects

    def __init__(self, share: float) -> None:
        self.share = np.float32(share)  # fraction of all workers in this party
        self.common: dict[tuple[int, int], np.ndarray] = {}

    def initial(self, shard, value):
        """Take the master's initial value as the first common model."""
        self.common[shard] = value

    def complete(self, shard, round_number, last, total):
        """Return the change to send, for the party's weighted sum of parameters, `total`."""
        return True, self.share * self.common[shard] - total

    def answer(self, shard, value):
        """Store the next common model, from the outer optimizer."""
        self.common[shard] = value
        return value


@dataclass(frozen=True)
class OuterPolicy(geomx.SyncPolicy):
    """The schedule and the optimizers of all nodes."""

    config: OuterConfig
    exchange = "parameters"

    def after_step(self, step: int, steps: int) -> bool:
        """Synchronise after every h-th inner step, and after the last."""
        return (step + 1) % self.config.h == 0 or step + 1 == steps

    def push_scale(self, cluster: Cluster, worker: NodeSpec) -> float:
        """Weight all workers equally."""
        return 1.0 / len(cluster.workers)

    def party_policy(self, cluster: Cluster, party: Party) -> Moves:
        """Return the local server's part, which converts parameters to changes."""
        return Moves(len(party.workers) / len(cluster.workers))

    def global_optimizer(self, optimizer: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return the outer optimizer; it is native, and keeps its momentum on the global server."""
        config = self.config
        return {"name": "nag", "learning_rate": config.outer_lr, "momentum": config.momentum}

    def local_optimizer(self, optimizer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inner optimizer, which is the workload's; every worker keeps its state."""
        return dict(optimizer)


class Outer:
    """Local steps on every worker, then an outer Nesterov step on their mean change."""

    def __init__(self, config: OuterConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_sync_policy(self, cluster: Cluster) -> geomx.SyncPolicy:
        """Return the sync policy."""
        return OuterPolicy(self.config)


@geomx.hookimpl
def geomx_register(register) -> None:
    """Register ``sync=outer``."""
    register("sync", "outer", OuterConfig, Outer)
