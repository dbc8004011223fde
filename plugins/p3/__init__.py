"""P3, priority-based parameter propagation: small slices, first layers first, on every hop.

Jayarajan et al., MLSys 2019 (arXiv 1905.03960). Large tensors are divided into slices that are
pushed, summed, updated and answered independently, so that the end of a tensor is still being sent
while its beginning is already returned. Every queue sends the slice of the earliest layer first,
because the next forward pass needs it first. Training is bit-identical to training without P3.

GeoMX prioritises only between worker and local server, and slices at a million elements, which
divides hardly any tensor of most models. Here priorities apply on LAN and WAN in both directions,
and a slice has 50,000 elements, the paper's best size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge, Unit

from geomx.cluster import Cluster
from geomx.plugin import Partitioner, Shard, cut_evenly
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register
from geomx.workload import TensorSpec


@dataclass(frozen=True)
class P3Config:
    """Options of P3."""

    slice_elements: Annotated[int, Ge(1), Unit("elements")] = 50_000
    """Size of a slice, at most."""
    prioritise: bool = True
    """Send slices of the first layers first; false: slice only (to study both parts)."""


@dataclass(frozen=True)
class Slices(Partitioner):
    """Divides shards into slices and assigns them the training loop's priority."""

    config: P3Config

    def cut(self, tensor: TensorSpec, priority: int, shards: Sequence[Shard]) -> list[Shard]:
        """See `Partitioner.cut`."""
        return [
            replace(piece, priority=priority) if self.config.prioritise else piece
            for shard in shards
            for piece in cut_evenly(shard, self.config.slice_elements)
        ]


class P3:
    """Slices of 50,000 elements, first layers first, on LAN and WAN, up and down."""

    lossless = True

    def __init__(self, config: P3Config) -> None:
        self.config = config

    @hookimpl
    def geomx_partitioner(self, cluster: Cluster) -> Partitioner:
        """Divide and prioritise every tensor."""
        return Slices(self.config)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[p3]``."""
    register("accel", "p3", P3Config, P3)
