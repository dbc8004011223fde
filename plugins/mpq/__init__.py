"""MPQ, mixed-precision quantisation: tiny tensors in half precision, large ones Bi-Sparse.

GeoMX's table:

    =============  ==================  ===================================
    shard          inside a party      between parties
    =============  ==================  ===================================
    below bound    half precision      half precision
    others         float32             Bi-Sparse up, and its sum down
    =============  ==================  ===================================

In GeoMX scripts compare with ``>`` and servers with ``>=``, so a tensor of exactly the bound's size
is read as something that it is not. Here the core compares once, ``elements >= bound``, in one
place, for every link of both modes. The codecs are those of ``fp16`` and ``bisparse``, with their
options: this plugin is made of both, and needs both installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

from annotated_types import Ge, Unit

from geomx.cluster import Cluster, Link
from geomx.plugin import BySize, Native
from geomx.plugin.experiment import Simulation
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register
from geomx.plugins.mpq.sim import COSTS


@dataclass(frozen=True)
class MpqConfig:
    """Options of MPQ; Bi-Sparse's follow."""

    size_lower_bound: Annotated[int, Ge(1), Unit("elements")] = 1000
    """From which a shard is large (GeoMX's MXNET_KVSTORE_SIZE_LOWER_BOUND)."""


class Sparse(Protocol):
    """What this plugin asks of Bi-Sparse."""

    def geomx_codec(self, link: Link) -> BySize | None:
        """Encode large shards on links that carry gradients over the WAN."""
        ...

    def geomx_update(self, cluster: Cluster) -> str | None:
        """Say whether sums come down, so that the optimizer runs at the parties."""
        ...


class Half(Protocol):
    """What this plugin asks of FP16."""

    def geomx_codec(self, link: Link) -> Native | None:
        """Encode in half precision, on every link."""
        ...


class Mpq:
    """Half precision for tensors below 1,000 elements, Bi-Sparse over the WAN for the others."""

    def __init__(self, config: MpqConfig, sparse: Sparse, half: Half) -> None:
        self.config = config
        self._sparse, self._half = sparse, half

    @hookimpl
    def geomx_codec(self, link: Link) -> BySize:
        """The table above."""
        sparse, half = self._sparse.geomx_codec(link), self._half.geomx_codec(link)
        large = [] if sparse is None else sparse.large
        small = [] if half is None else [half]
        return BySize(self.config.size_lower_bound, small=small, large=large)

    @hookimpl
    def geomx_update(self, cluster: Cluster) -> str | None:
        """As Bi-Sparse says."""
        return self._sparse.geomx_update(cluster)

    @hookimpl
    def geomx_sim(self, simulation: Simulation) -> None:
        """What the codecs take, measured; see sim.py."""
        simulation.charge("mpq", COSTS)


@hookimpl
def geomx_register(register: Register) -> None:
    """Announce ``accel=[mpq]``."""
    made_of = {"bisparse": ["min_elements"], "fp16": ["lan"]}
    register("accel", "mpq", MpqConfig, Mpq, made_of)
