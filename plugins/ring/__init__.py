"""ring: parties reduce-scatter and all-gather around a ring.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC
69(2), 2009: what collective libraries do, for comparison. A global server is beside every party,
and each stores a part of every tensor. Contributions to a part travel around the ring and are added
at each party, until they reach the party that is beside the part's server (reduce-scatter). The new
value travels on around the ring (all-gather). Of n parties, each sends 2 (n - 1) / n of the model
to the next one in each round, and nothing to any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geomx.cluster import Cluster
from geomx.errors import ConfigError
from geomx.network.topology import with_global_servers_at
from geomx.plugin import Group, Native, Overlay, Partitioner, Shard, Site, cut_evenly
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register
from geomx.workload import TensorSpec

MOST_PARTIES = 256
"""Bound on global servers (`Header.server` of runtime_cpp/core/message.h has one byte)."""


@dataclass(frozen=True)
class RingConfig:
    """The ring has no options: its order is that of the parties' servers by node id."""


@dataclass(frozen=True)
class Parts(Partitioner):
    """Divides tensors into as many equal parts as there are `parties`."""

    parties: int

    def cut(self, tensor: TensorSpec, priority: int, shards: Sequence[Shard]) -> list[Shard]:
        """See `Partitioner.cut`. Shards from earlier partitioners are divided further."""
        return [
            piece
            for shard in shards
            for piece in cut_evenly(shard, max(1, -(-shard.elements // self.parties)))
        ]


class Ring:
    """Reduce-scatter and all-gather among parties."""

    lossless = True

    def __init__(self, config: RingConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_cluster(self, cluster: Cluster) -> Cluster:
        """Place a global server at every party."""
        parties = cluster.parties
        if len(parties) > MOST_PARTIES:
            remedy = f"ring places a global server at each of at most {MOST_PARTIES}; leave it out"
            raise ConfigError("network", f"{len(parties)} parties", remedy)
        there = {server.party: server.name for server in reversed(cluster.global_servers)}
        places = [there.get(party.name, party.server.name) for party in parties]
        return with_global_servers_at(cluster, places)

    @hookimpl
    def geomx_partitioner(self, cluster: Cluster) -> Partitioner:
        """Divide each tensor into a part for every party."""
        return Parts(len(cluster.parties))

    @hookimpl
    def geomx_overlay(self, group: Group) -> Overlay | None:
        """Return the coordinator of all roots, on the scheduler."""
        if group.level != "global":
            return None
        options = {f"place {at}": float(member.id) for at, member in enumerate(group.members)}
        for root in group.cluster.global_servers:
            at = [member.party for member in group.members].index(root.party)
            options[f"home {root.id}"] = float(at)
        site = Site(group.scheduler, Native("coordinator", "ring", options))
        return Overlay(site, ahead=True, reliable=True)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[ring]``."""
    register("accel", "ring", RingConfig, Ring)
