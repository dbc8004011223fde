"""HFA, hierarchical frequency aggregation: averages inside parties, less often of all parties.

HierFAVG (Liu, Zhang, Song, Letaief, ICC 2020, arXiv 1905.06641); GeoMX's ``USE_HFA``. Workers run
their own optimizer and exchange parameters. Every `k1` steps a party averages; every `k2`-th
average goes to the global server, so the WAN carries 1 / (k1 k2) of FSA's bytes. Averages are
weighted by the number of workers, as HierFAVG weights by samples; GeoMX's unweighted mean over
parties is ``sync.weighting=parties``. The last step always synchronises globally, so that no work
is lost.

Differences to GeoMX: all nodes start from the master's weights, rounds are counted per shard, and
k1 = k2 = 1 with SGD equals FSA.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Interval, Unit

from geomx.cluster import Cluster, NodeSpec, Party
from geomx.errors import ConfigError
from geomx.plugin import Native, SyncPolicy, native_options
from geomx.plugin.experiment import Experiment
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register


@dataclass(frozen=True)
class HfaConfig:
    """Options of HFA."""

    k1: Annotated[int, Ge(1), Unit("local steps")] = field(
        default=5, metadata={"search": (5, 10, 20)}
    )
    """Local steps between two averages of a party."""
    k2: Annotated[int, Interval(ge=1, le=2**31 - 1), Unit("party averages")] = field(
        default=4, metadata={"search": (1, 4)}
    )
    """Party averages between two global averages."""
    weighting: Literal["workers", "parties"] = "workers"
    """Weight of a party in the global average: ``workers`` (by their number) or ``parties``."""


@dataclass(frozen=True)
class HfaPolicy(SyncPolicy):
    """Exchanges parameters every k1 steps inside a party, every k1 k2 steps between parties."""

    config: HfaConfig
    exchange = "parameters"

    def after_step(self, step: int, steps: int) -> bool:
        """Return whether this is a k1-th step, or the last."""
        return (step + 1) % self.config.k1 == 0 or step + 1 == steps

    def push_scale(self, cluster: Cluster, worker: NodeSpec) -> float:
        """Return 1 / (number of the party's workers), so that the party's sum is its mean."""
        return 1.0 / len(cluster.party_of(worker).workers)

    def global_optimizer(self, optimizer: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return SGD with learning rate 1 on the weighted changes: weights become the mean."""
        return {"name": "sgd", "learning_rate": 1.0}

    def local_optimizer(self, optimizer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the workload's optimizer, which every worker runs with its own state."""
        return dict(optimizer)

    def party_policy(self, cluster: Cluster, party: Party) -> Native:
        """Return the native policy of hfa.cc, which counts k2 and stores the milestone."""
        weight = (
            len(party.workers) / len(cluster.workers)
            if self.config.weighting == "workers"
            else 1 / len(cluster.parties)
        )
        return Native("policy", "hfa", native_options(self.config, weight=weight))


class Hfa:
    """Local steps, party averages every k1, global averages every k1 k2 steps (HierFAVG)."""

    def __init__(self, config: HfaConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_sync_policy(self, cluster: Cluster) -> SyncPolicy:
        """Return the sync policy of this algorithm."""
        return HfaPolicy(self.config)

    @hookimpl
    def geomx_validate(self, experiment: Experiment) -> None:
        """Refuse weights that do not add up to 1 when others make up for a lost or late party.

        Global servers make up for it by the numbers of workers.
        """
        sizes = {len(party.workers) for party in experiment.cluster.parties}
        if self.config.weighting == "parties" and experiment.faults.continues and len(sizes) > 1:
            remedy = (
                "cannot leave out lost or late parties that have different numbers of workers: "
                "choose sync.weighting=workers, faults.on_loss=stop or wait, or as many workers in "
                "every party"
            )
            raise ConfigError("sync.weighting", "parties", remedy)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``sync=hfa``."""
    register("sync", "hfa", HfaConfig, Hfa)
