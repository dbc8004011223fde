"""DiLoCo: workers train by themselves for H steps; the model takes an outer Nesterov step.

Douillard et al., 2023 (arXiv 2311.08105). Inner steps are the workload's own optimizer on every
worker. After H of them parties tell how far their workers have moved from the common model, on
average; the global server treats the mean of these moves as a gradient and gives it to an optimizer
of its own, SGD with Nesterov momentum. With `outer_lr` 1 and `momentum` 0 that is the mean of all
parameters, which is local SGD.

The WAN carries 1 / H of the bytes of full synchrony. The defaults are the paper's: outer learning
rate 0.7, momentum 0.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import geomx
from geomx.cluster import Cluster, NodeSpec, Party

geomx_api = "1.0"


@dataclass(frozen=True)
class DiLoCoConfig:
    """Options of DiLoCo."""

    h: int = 50
    """Inner steps between two outer ones, 1 or more."""
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
    """A local server's side: the common model that its workers left from, per shard."""

    def __init__(self, share: float) -> None:
        self.share = np.float32(share)  # of the party's workers among all
        self.common: dict[tuple[int, int], np.ndarray] = {}

    def initial(self, shard, value):
        """The first common model is the master's initial value."""
        self.common[shard] = value

    def complete(self, shard, round_number, last, total):
        """`total` is the sum of the party's parameters over all workers' number; send the move."""
        return True, self.share * self.common[shard] - total

    def answer(self, shard, value):
        """The next common model, as the outer optimizer has made it."""
        self.common[shard] = value
        return value


@dataclass(frozen=True)
class DiLoCoPolicy(geomx.SyncPolicy):
    """What all nodes go by."""

    config: DiLoCoConfig
    exchange = "parameters"

    def after_step(self, step: int, steps: int) -> bool:
        """Every h-th inner step, and the last."""
        return (step + 1) % self.config.h == 0 or step + 1 == steps

    def push_scale(self, cluster: Cluster, worker: NodeSpec) -> float:
        """Everyone counts alike."""
        return 1.0 / len(cluster.workers)

    def party_policy(self, cluster: Cluster, party: Party) -> Moves:
        """How local servers turn parameters into moves."""
        return Moves(len(party.workers) / len(cluster.workers))

    def global_optimizer(self, optimizer: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """The outer optimizer; it is native, and keeps its momentum on the global server."""
        config = self.config
        return {"name": "nag", "learning_rate": config.outer_lr, "momentum": config.momentum}

    def local_optimizer(self, optimizer: Mapping[str, Any]) -> dict[str, Any]:
        """The inner optimizer is the workload's; every worker keeps its state."""
        return dict(optimizer)


class DiLoCo:
    """Local steps on every worker, then an outer Nesterov step on their mean move."""

    def __init__(self, config: DiLoCoConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_sync_policy(self, cluster: Cluster) -> geomx.SyncPolicy:
        """Decide when nodes synchronise."""
        return DiLoCoPolicy(self.config)


@geomx.hookimpl
def geomx_register(register) -> None:
    """Announce ``sync=diloco``."""
    register("sync", "diloco", DiLoCoConfig, DiLoCo)
