"""MixedSync: synchronous inside a party, asynchronous between parties.

GeoMX's ``dist_async``. A party's workers wait for each other, but the global server applies every
party's push on arrival and answers that party at once, so that a slow party does not delay others.
Pushes may be stale, because others have updated the weights since. The number of these updates is
reported as ``staleness`` in summary.json; `staleness_bound` limits a party's lead over the slowest
(stale synchronous parallel, Ho et al., NIPS 2013).

`optimizer=dcasgd` compensates the delay (Zheng et al., ICML 2017, arXiv 1609.08326): the global
server keeps one backup of the weights per party, so the correction is for that party's true delay,
where GeoMX kept one for all. ``variance`` selects the adaptive form, DC-ASGD-a.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Gt, Interval, Unit

from geomx.cluster import Cluster
from geomx.errors import ConfigError
from geomx.plugin import SyncPolicy, common_options
from geomx.plugin.experiment import Experiment
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register


@dataclass(frozen=True)
class MixedSyncConfig:
    """Options of MixedSync."""

    staleness_bound: Annotated[int | None, Interval(ge=0, le=2**31 - 1), Unit("rounds")] = None
    """Rounds by which a party may be ahead of the slowest when it pushes; null: no limit."""
    optimizer: str | None = None
    """The global server's optimizer; null: the workload's own. ``dcasgd`` compensates delays."""
    learning_rate: Annotated[float | None, Gt(0)] = None
    """Learning rate of that optimizer; null: the workload's own, or 0.1 for another optimizer."""
    momentum: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """Momentum of `optimizer`, if it has any."""
    variance: bool = False
    """With dcasgd: scale the compensation by the gradient's variance (DC-ASGD-a)."""

    def __post_init__(self) -> None:
        if self.variance and self.optimizer != "dcasgd":
            raise ConfigError("variance", self.variance, "needs optimizer=dcasgd")
        if self.momentum and self.optimizer is None:
            remedy = "needs optimizer=NAME; the workload's own has its own momentum"
            raise ConfigError("momentum", self.momentum, remedy)


@dataclass(frozen=True)
class MixedPolicy(SyncPolicy):
    """Synchronises every step inside a party; the global server applies each party's push alone."""

    config: MixedSyncConfig
    together = False

    @property
    def staleness_bound(self) -> int | None:  # type: ignore[override]
        """See `MixedSyncConfig.staleness_bound`."""
        return self.config.staleness_bound

    def global_optimizer(self, optimizer: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return an optimizer that applies the mean gradient of the party that pushed."""
        config = self.config
        made = {**optimizer, "average": 1.0}
        if config.learning_rate is not None:
            made["learning_rate"] = config.learning_rate
        if config.optimizer is None:
            return made
        made = {"name": config.optimizer, **common_options(made), "average": 1.0}
        if config.learning_rate is None and config.optimizer != optimizer["name"]:
            made["learning_rate"] = 0.1
        if config.momentum:
            made["momentum"] = config.momentum
        if config.variance:
            made["variance"] = 1.0
        return made


class MixedSync:
    """Parties do not wait for each other: the global server applies each push on arrival."""

    def __init__(self, config: MixedSyncConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_sync_policy(self, cluster: Cluster) -> SyncPolicy:
        """Return the sync policy of this algorithm."""
        return MixedPolicy(self.config)

    @hookimpl
    def geomx_validate(self, experiment: Experiment) -> None:
        """Refuse an optimizer that geomx does not have."""
        named, known = self.config.optimizer, experiment.optimizers
        if named is not None and named not in known:
            raise ConfigError("sync.optimizer", named, f"must be one of {', '.join(known)}")


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``sync=mixedsync``."""
    register("sync", "mixedsync", MixedSyncConfig, MixedSync)
