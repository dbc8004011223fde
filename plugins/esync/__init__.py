"""ESync: every worker makes as many local steps as fit before the slowest one arrives.

Li, Zhou, Wang et al., IEEE Transactions on Services Computing 15(4), 2022; announced for GeoMX, but
never released. Workers run their own optimizer and exchange parameters. A state server tells each
worker how many local steps to make until the next sync, based on measured step and transmission
times by one clock. With equal workers, this is averaging after every `local_steps` steps; otherwise
fast workers compute instead of waiting. Aggregation stays synchronous, so no update is stale.

With `scope=global`, one state server (on the scheduler) plans for all workers; with `scope=party`,
each local server plans for its party, and parties wait for each other. ``iterations`` counts the
steps of the slowest worker.

As in the paper, the model changes by the unweighted mean of the workers' changes, regardless of
their numbers of steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Unit

from geomx.cluster import Cluster, NodeSpec, Party
from geomx.errors import ConfigError
from geomx.plugin import Native, Site, SyncPolicy, WorkerSync, native_options
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register


@dataclass(frozen=True)
class ESyncConfig:
    """Options of ESync."""

    scope: Literal["global", "party"] = "global"
    """``global``: one plan for all workers; ``party``: one in every party."""
    local_steps: Annotated[int, Ge(1), Unit("steps")] = 1
    """Steps of the slowest worker between two syncs."""
    most: Annotated[int, Ge(1), Unit("steps")] = 1000
    """Upper bound on the steps of a worker between two syncs; ``local_steps`` or more."""
    epsilon_ms: Annotated[float, Ge(0), Unit("ms")] = 1.0
    """Margin between the end of a fast worker and the arrival of the slowest."""
    timeout_s: Annotated[float, Gt(0), Unit("s")] = 30.0
    """Time after which the state server plans without workers that have not reported."""

    def __post_init__(self) -> None:
        if self.most < self.local_steps:
            remedy = f"must be {self.local_steps} or more, as many as local_steps"
            raise ConfigError("most", self.most, remedy)


class ESyncWorker(WorkerSync):
    """Counts local steps up to the planned number; receives the next plan at every sync.

    Args:
        coordinator: Position of this worker's state server.
        least: Steps of the slowest worker in a round; of every worker in the first one, for which
            there are no measurements.
        steps: Steps of the slowest worker in the whole run. Those that are left for the last round
            may be fewer than `least`.
    """

    def __init__(self, coordinator: int, least: int, steps: int) -> None:
        self.coordinator = coordinator
        self._least = least
        self._rounds = self._remaining = -(-steps // least)
        self._last = steps - (self._rounds - 1) * least
        self._plan(least)

    def _plan(self, steps: int) -> None:
        """Begin a round of so many steps, or in the last one of a share of them."""
        if self._remaining == 1:
            steps = max(1, steps * self._last // self._least)
        self._planned, self._made = steps, 0

    def after_step(self, step: int) -> bool:
        """Return whether the planned steps are done."""
        return self._made == self._planned

    def finished(self, step: int) -> bool:
        """Count a step before it begins; return whether it ends the last round."""
        self._made += 1
        return self._remaining == 1 and self._made == self._planned

    def resume(self, rounds: int) -> int | None:
        """Return 0, as steps are counted by round; None if no round is left."""
        self._remaining -= rounds
        self._plan(self._least)
        return 0 if self._remaining > 0 else None

    def report(self, step_s: float) -> list[float]:
        """Return the number of steps made, the seconds per step, and the number of this round."""
        return [float(self._made), step_s, float(self._rounds - self._remaining + 1)]

    def reply(self, values: Sequence[float]) -> None:
        """Store the number of steps of the next round, `values[0]`; fewer if it is a short one."""
        self._remaining -= 1
        self._plan(int(values[0]))


@dataclass(frozen=True)
class ESyncPolicy(SyncPolicy):
    """Exchanges parameters at the steps that each worker's state server plans."""

    config: ESyncConfig
    exchange = "parameters"

    def push_scale(self, cluster: Cluster, worker: NodeSpec) -> float:
        """Return 1 / (number of all workers), so that the sum of the parties is the mean."""
        return 1.0 / len(cluster.workers)

    def global_optimizer(self, optimizer: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return SGD with learning rate 1 on the parties' changes: the model becomes the mean."""
        return {"name": "sgd", "learning_rate": 1.0}

    def party_policy(self, cluster: Cluster, party: Party) -> Native:
        """Return the native policy that sends the party's change of the model."""
        return Native("policy", "changes", {"workers": float(len(cluster.workers))})

    def local_optimizer(self, optimizer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the workload's optimizer, which every worker runs."""
        return dict(optimizer)

    def coordinators(self, cluster: Cluster) -> list[Site]:
        """Return one state server, or one per party."""
        if self.config.scope == "global":
            return [self._site(cluster.scheduler, len(cluster.workers))]
        return [self._site(party.server, len(party.workers)) for party in cluster.parties]

    def _site(self, host: NodeSpec, members: int) -> Site:
        config = self.config
        options = native_options(config, members=members, epsilon_s=config.epsilon_ms / 1e3)
        return Site(host, Native("coordinator", "esync", options))

    def worker(self, cluster: Cluster, worker: NodeSpec, steps: int) -> ESyncWorker:
        """See `SyncPolicy.worker`."""
        parties = [party.name for party in cluster.parties]
        number = 0 if self.config.scope == "global" else parties.index(worker.party)
        return ESyncWorker(number, self.config.local_steps, steps)


class ESync:
    """As many local steps as fit before the slowest worker arrives; synchronous averages."""

    def __init__(self, config: ESyncConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_sync_policy(self, cluster: Cluster) -> SyncPolicy:
        """Return the sync policy of this algorithm."""
        return ESyncPolicy(self.config)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``sync=esync``."""
    register("sync", "esync", ESyncConfig, ESync)
