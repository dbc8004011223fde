"""HALoS: asynchronous local SGD on two levels, with local servers that keep a model of their own.

Kim et al., ICML 2025 (arXiv 2506.04531). Every worker runs the workload's optimizer for `h` steps
and pushes its parameters. Its local server applies the change to the party's model at once and
returns that model; no worker waits for another. After `k` updates, the local server sends the net
move of its model to the global server and continues; the global server applies it at once, and the
party merges the answer into its model with weight `alpha`. No party waits for the WAN.

Both servers apply updates with delayed Nesterov momentum (Liu et al., 2024, arXiv 2401.09135): the
momentum moves with every so many updates only, because one that follows every asynchronous update
amplifies stale ones.

With `by_speed`, a worker's steps are proportional to its measured speed within the party (dynamic
local updates, same source), so that updates of slow workers are not older than those of others.

Differences to the authors' simulator (github.com/utnslab/halos): moves of a party's model while an
answer is under way are sent with the next move, and not left out; the last answer is taken as it
is, so that no work is lost; the fastest worker is that of the party, not that of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Gt, Interval, Unit

from geomx.cluster import Cluster, NodeSpec, Party
from geomx.plugin import Native, Site, SyncPolicy, WorkerSync
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register


@dataclass(frozen=True)
class HalosConfig:
    """Options of HALoS."""

    h: Annotated[int, Ge(1), Unit("steps")] = field(default=8, metadata={"search": (4, 8, 16)})
    """Local steps between two pushes; with `by_speed`, of the fastest worker of a party."""
    k: Annotated[int, Ge(1), Unit("updates")] = field(default=4, metadata={"search": (4, 8, 32)})
    """Updates of a party's model between two pushes of the party."""
    by_speed: bool = True
    """Whether slower workers of a party make fewer steps, in proportion to their speed."""
    alpha: Annotated[float, Interval(ge=0, le=1)] = 0.25
    """Weight of the global model where a party merges it into its own."""
    local_lr: Annotated[float | None, Gt(0)] = None
    """Learning rate of one worker's change; null: (1 - local_momentum) / workers per party."""
    local_momentum: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """Delayed Nesterov momentum of the parties' models."""
    local_delay: Annotated[int, Interval(ge=1, le=2**20), Unit("updates")] = 4
    """Updates of a party's model per update of its momentum."""
    outer_lr: Annotated[float | None, Gt(0)] = None
    """Learning rate of one party's move; null: (1 - outer_momentum) / parties."""
    outer_momentum: Annotated[float, Interval(ge=0, lt=1)] = 0.5
    """Delayed Nesterov momentum of the global model."""
    delay: Annotated[int, Interval(ge=1, le=2**20), Unit("updates")] = 2
    """Updates of the global model per update of its momentum."""


class HalosWorker(WorkerSync):
    """Pushes after its share of `h` steps, as measured by its party's planner.

    The first round is one step, which measures the speed.

    Args:
        coordinator: Position of the party's planner.
        h: Steps of the fastest worker in a round.
        steps: Steps of the fastest worker in the whole run.
    """

    def __init__(self, coordinator: int, h: int, steps: int) -> None:
        self.coordinator = coordinator
        self._h, self._left = h, steps - 1
        self._planned, self._made = 1, 0

    def after_step(self, step: int) -> bool:
        """Return whether the planned steps are done."""
        return self._made == self._planned

    def finished(self, step: int) -> bool:
        """Count a step before it begins; return whether it ends the last round."""
        self._made += 1
        return self._left == 0 and self._made == self._planned

    def resume(self, rounds: int) -> int | None:
        """Return the step after so many rounds of the fastest worker; None if no step is left.

        A round of one step measures the speed anew.
        """
        if rounds == 0:
            return 0
        made = 1 + self._h * (rounds - 1)
        self._left -= made
        return made if self._left >= 0 else None

    def report(self, step_s: float) -> list[float]:
        """Return the seconds per step."""
        return [step_s]

    def reply(self, values: Sequence[float]) -> None:
        """Plan the next round: the share `values[0]` of the fastest worker's steps."""
        full = min(self._h, self._left)
        self._left -= full
        self._planned, self._made = max(1, round(values[0] * full)), 0


@dataclass(frozen=True)
class HalosPolicy(SyncPolicy):
    """Exchanges parameters after h steps; every push is applied and answered by itself."""

    config: HalosConfig
    cluster: Cluster
    exchange = "parameters"
    together = False
    workers_together = False

    def after_step(self, step: int, steps: int) -> bool:
        """Return whether this is an h-th step, or the last."""
        return (step + 1) % self.config.h == 0 or step + 1 == steps

    def global_optimizer(self, optimizer: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return delayed Nesterov momentum, which applies each party's move."""
        config, parties = self.config, len(self.cluster.parties)
        return {
            "name": "delayed_nag",
            "learning_rate": config.outer_lr or (1 - config.outer_momentum) / parties,
            "momentum": config.outer_momentum,
            "delay": float(config.delay),
        }

    def local_optimizer(self, optimizer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the workload's optimizer, which every worker runs with its own state."""
        return dict(optimizer)

    def party_policy(self, cluster: Cluster, party: Party) -> Native:
        """Return the native policy of halos.cc, which keeps the party's model."""
        config = self.config
        mean = len(cluster.workers) / len(cluster.parties)
        options = {
            "k": float(config.k),
            "alpha": config.alpha,
            "local_lr": config.local_lr or (1 - config.local_momentum) / mean,
            "local_momentum": config.local_momentum,
            "local_delay": float(config.local_delay),
        }
        return Native("policy", "halos", options)

    def coordinators(self, cluster: Cluster) -> list[Site]:
        """Return the planner of each party, if steps depend on speeds."""
        if not self.config.by_speed:
            return []
        planner = Native("coordinator", "halos", {})
        return [Site(party.server, planner) for party in cluster.parties]

    def worker(self, cluster: Cluster, worker: NodeSpec, steps: int) -> WorkerSync:
        """See `SyncPolicy.worker`."""
        if not self.config.by_speed:
            return super().worker(cluster, worker, steps)
        names = [party.name for party in cluster.parties]
        return HalosWorker(names.index(worker.party), self.config.h, steps)


class Halos:
    """Local steps; parties and their workers never wait for each other (HALoS)."""

    def __init__(self, config: HalosConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_sync_policy(self, cluster: Cluster) -> SyncPolicy:
        """Return the sync policy of this algorithm."""
        return HalosPolicy(self.config, cluster)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``sync=halos``."""
    register("sync", "halos", HalosConfig, Halos)
