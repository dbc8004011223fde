"""ESync: every worker makes as many local steps as fit before the slowest one arrives.

Li, Zhou, Wang et al., IEEE Transactions on Services Computing 15(4), 2022; announced for GeoMX,
never part of it. Workers run their own optimizer and exchange parameters; a state server tells each
how many local steps to make until the next sync, from measured step times and transmission times on
one clock. Where workers are alike this is averaging after every `local_steps` steps; where they are
not, the fast ones work instead of waiting. Aggregation stays synchronous, so nothing is stale.

`scope=global` plans for all workers at once (the state server is the scheduler), `scope=party` in
every party by itself (it is the local server), which leaves parties to wait for each other.
``iterations`` counts the steps of the slowest worker.

The model moves by the mean of the workers' moves, unweighted by steps, as the paper has it.
"""

from __future__ import annotations

import math
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
    """That the slowest worker makes between two syncs."""
    most: Annotated[int, Ge(1), Unit("steps")] = 1000
    """That no worker exceeds between two syncs."""
    epsilon_ms: Annotated[float, Ge(0), Unit("ms")] = 1.0
    """Slack that a fast worker keeps before the slowest arrives."""
    timeout_s: Annotated[float, Gt(0), Unit("s")] = 30.0
    """After which the state server plans without those who have not reported."""

    def __post_init__(self) -> None:
        if self.most < self.local_steps:
            raise ConfigError("most", self.most, f"must be {self.local_steps} or more steps")


class ESyncWorker(WorkerSync):
    """Counts local steps until the planned number; hears the next plan at every sync.

    Args:
        coordinator: Position of this worker's state server.
        least: Steps in the first round, before anything is known.
        rounds: Rounds of the whole run.
    """

    def __init__(self, coordinator: int, least: int, rounds: int) -> None:
        self.coordinator = coordinator
        self._planned = least
        self._made = 0
        self._remaining = rounds

    def after_step(self, step: int) -> bool:
        """Whether the planned steps are done."""
        return self._made == self._planned

    def finished(self, step: int) -> bool:
        """Called before each step: counts it, and says whether it ends the last round."""
        self._made += 1
        return self._remaining == 1 and self._made == self._planned

    def report(self, step_s: float) -> list[float]:
        """Steps made, seconds per step."""
        return [float(self._made), step_s]

    def reply(self, values: Sequence[float]) -> None:
        """Steps of the next round."""
        self._planned = int(values[0])
        self._made = 0
        self._remaining -= 1


@dataclass(frozen=True)
class ESyncPolicy(SyncPolicy):
    """Parameters at every sync; when that is, each worker's state server says."""

    config: ESyncConfig
    exchange = "parameters"

    def push_scale(self, cluster: Cluster, worker: NodeSpec) -> float:
        """One over all workers: what parties sum is their share of the mean."""
        return 1.0 / len(cluster.workers)

    def global_optimizer(self, optimizer: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """SGD at rate 1 on the parties' moves: the model becomes the mean."""
        return {"name": "sgd", "learning_rate": 1.0}

    def party_policy(self, cluster: Cluster, party: Party) -> Native:
        """The native side, esync.cc: parties tell how far they moved."""
        return Native("policy", "esync", {"workers": float(len(cluster.workers))})

    def local_optimizer(self, optimizer: Mapping[str, Any]) -> dict[str, Any]:
        """The workload's optimizer runs on every worker."""
        return dict(optimizer)

    def coordinators(self, cluster: Cluster) -> list[Site]:
        """One state server, or one per party."""
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
        rounds = math.ceil(steps / self.config.local_steps)
        return ESyncWorker(number, self.config.local_steps, rounds)


class ESync:
    """As many local steps as fit before the slowest worker arrives; synchronous averages."""

    def __init__(self, config: ESyncConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_sync_policy(self, cluster: Cluster) -> SyncPolicy:
        """Decide when nodes synchronise."""
        return ESyncPolicy(self.config)


@hookimpl
def geomx_register(register: Register) -> None:
    """Announce ``sync=esync``."""
    register("sync", "esync", ESyncConfig, ESync)
