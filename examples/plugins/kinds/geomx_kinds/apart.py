"""apart: the largest tensors have global servers of their own; all others share the rest.

In many models one tensor, an embedding or the first dense layer, is as large as all others
together. Its server should hold nothing else, so that small tensors do not queue behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import geomx
from geomx.cluster import Cluster
from geomx.workload import TensorSpec

geomx_api = "2.0"


@dataclass(frozen=True)
class ApartConfig:
    """Options of apart."""

    most: int = 1
    """Number of tensors with a server of their own, 1 or more; limited by the number of servers."""

    def __post_init__(self) -> None:
        if self.most < 1:
            raise geomx.ConfigError("most", self.most, "must be 1 or more")


class LargestAlone(geomx.Placement):
    """Servers of tensors by key; deterministic, so that all nodes agree."""

    def __init__(self, servers: int, most: int, tensors: Sequence[TensorSpec]) -> None:
        by_size = sorted(range(len(tensors)), key=lambda key: (-tensors[key].elements, key))
        alone = min(most, servers - 1)
        shared = range(alone, servers)
        self.server_of = {key: index for index, key in enumerate(by_size[:alone])}
        for index, key in enumerate(by_size[alone:]):
            self.server_of[key] = shared[index % len(shared)]

    def server(self, key: int, shard: int, shards: Sequence[geomx.Shard]) -> int:
        """Keep all shards of a tensor together."""
        return self.server_of[key]


class Apart:
    """The largest tensors have global servers of their own."""

    lossless = True

    def __init__(self, config: ApartConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_placement(self, cluster: Cluster, tensors: Sequence[TensorSpec]) -> LargestAlone:
        """Assign servers from the sizes of all tensors."""
        return LargestAlone(len(cluster.global_servers), self.config.most, tensors)


@geomx.hookimpl
def geomx_register(register) -> None:
    """Register ``accel=[apart]``."""
    register("accel", "apart", ApartConfig, Apart)
