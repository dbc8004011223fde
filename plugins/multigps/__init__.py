"""MultiGPS: several global servers, load balanced by bytes.

GeoMX's ``DMLC_NUM_GLOBAL_SERVER``. Tensors of `shard_elements` or more are divided into one shard
per global server; every shard is assigned to the server with the fewest bytes so far. GeoMX hashes
keys (9973 k mod n), which places 99.75 % of its own example on one of two servers, and divides only
tensors of a million elements or more.

In a network with fewer global servers than `servers`, the additional ones are placed beside the
first, behind the same links. Codecs, slices and optimizers work per shard, so this plugin combines
with all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Interval, Unit

from geomx.cluster import Cluster
from geomx.network.topology import with_global_servers
from geomx.plugin import Partitioner, Placement, Shard, cut_evenly
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register
from geomx.workload import TensorSpec


@dataclass(frozen=True)
class MultiGpsConfig:
    """Options of MultiGPS."""

    servers: Annotated[int, Interval(ge=1, le=256), Unit("global servers")] = 2
    """Number of global servers; a network with more keeps them."""
    shard_elements: Annotated[int, Ge(1), Unit("elements")] = 16_384
    """Tensors of at least this size are divided into one shard per global server."""


@dataclass(frozen=True)
class Spread(Partitioner):
    """Divides large tensors into one shard per global server."""

    servers: int
    shard_elements: int

    def cut(self, tensor: TensorSpec, priority: int, shards: Sequence[Shard]) -> list[Shard]:
        """See `Partitioner.cut`. Shards from earlier partitioners may be divided further."""
        return [
            piece
            for shard in shards
            for piece in (
                cut_evenly(shard, -(-shard.elements // self.servers))
                if shard.elements >= self.shard_elements
                else [shard]
            )
        ]


class LeastLoaded(Placement):
    """Assigns each shard to the server with the fewest elements, in the order of the calls."""

    def __init__(self, servers: int) -> None:
        self._load = [0] * servers
        self._chosen: dict[tuple[int, int], int] = {}

    def server(self, key: int, shard: int, shards: Sequence[Shard]) -> int:
        """See `Placement.server`. Repeated calls return the same server."""
        if (key, shard) not in self._chosen:
            lightest = min(range(len(self._load)), key=self._load.__getitem__)
            self._load[lightest] += shards[shard].elements
            self._chosen[key, shard] = lightest
        return self._chosen[key, shard]


class MultiGps:
    """Several global servers; shards balanced by bytes, large tensors divided."""

    lossless = True

    def __init__(self, config: MultiGpsConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_cluster(self, cluster: Cluster) -> Cluster:
        """Add the global servers that the network lacks."""
        return with_global_servers(cluster, self.config.servers)

    @hookimpl
    def geomx_partitioner(self, cluster: Cluster) -> Partitioner:
        """Divide large tensors."""
        return Spread(len(cluster.global_servers), self.config.shard_elements)

    @hookimpl
    def geomx_placement(self, cluster: Cluster, tensors: Sequence[TensorSpec]) -> Placement:
        """Balance by bytes."""
        return LeastLoaded(len(cluster.global_servers))


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[multigps]``."""
    register("accel", "multigps", MultiGpsConfig, MultiGps)
