"""P3, priority-based parameter propagation: small slices, first layers first, on every hop.

Jayarajan et al., MLSys 2019 (arXiv 1905.03960). Large tensors are cut into slices that are pushed,
summed, updated and answered independently, so that a tensor's tail travels while its head is
already on its way back. Every queue sends the slice of the earliest layer first, because the next
forward pass needs it first. Nothing is lost or rounded: training is bit-identical to training
without P3.

GeoMX prioritises only between worker and local server and slices at a million elements, which
leaves most models in one piece; here priorities hold on LAN and WAN, up and down, and a slice has
50,000 elements, the paper's best size.
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
    """Largest number in a slice."""
    prioritise: bool = True
    """Send first layers first; false only slices (for studies of what each half brings)."""


@dataclass(frozen=True)
class Slices(Partitioner):
    """Cuts shards to at most `slice_elements` and gives them the training loop's priority."""

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
        """Cut and prioritise every tensor."""
        return Slices(self.config)


@hookimpl
def geomx_register(register: Register) -> None:
    """Announce ``accel=[p3]``."""
    register("accel", "p3", P3Config, P3)
