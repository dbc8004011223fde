"""MPQ, mixed-precision quantisation: small tensors in half precision, large ones Bi-Sparse.

GeoMX's table:

    =============  ==================  ===================================
    shard          inside a party      between parties
    =============  ==================  ===================================
    below bound    half precision      half precision
    others         float32             Bi-Sparse up, and its sum down
    =============  ==================  ===================================

GeoMX's scripts compare by ``>`` and its servers by ``>=``, so that a tensor of exactly the bound's
size is decoded incorrectly. Here the core compares ``elements >= bound`` in one place, for every
link and both modes. The codecs are those of ``fp16`` and ``bisparse``, with their options; both
plugins must be installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

from annotated_types import Ge, Unit

from geomx.cluster import Cluster, Link
from geomx.plugin import BySize, Native
from geomx.plugin.experiment import Experiment, Simulation
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register
from geomx.plugins.mpq.sim import COSTS


@dataclass(frozen=True)
class MpqConfig:
    """Options of MPQ, to which Bi-Sparse's are added."""

    size_lower_bound: Annotated[int, Ge(1), Unit("elements")] = 1000
    """Smallest size of a large shard (GeoMX's MXNET_KVSTORE_SIZE_LOWER_BOUND)."""


class Sparse(Protocol):
    """The hooks of Bi-Sparse that this plugin uses."""

    def geomx_codec(self, link: Link) -> BySize | None:
        """Encode large shards on links that carry gradients over the WAN."""
        ...

    def geomx_update(self, cluster: Cluster) -> str | None:
        """Ask for the optimizer at the parties."""
        ...

    def geomx_validate(self, experiment: Experiment) -> None:
        """Warn of optimizers that learn slowly."""
        ...


class Half(Protocol):
    """The hook of FP16 that this plugin uses."""

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
        """Combine the codecs of both plugins as in the table above."""
        sparse, half = self._sparse.geomx_codec(link), self._half.geomx_codec(link)
        large = [] if sparse is None else sparse.large
        small = [] if half is None else [half]
        return BySize(self.config.size_lower_bound, small=small, large=large)

    @hookimpl
    def geomx_update(self, cluster: Cluster) -> str | None:
        """See `Bisparse.geomx_update`."""
        return self._sparse.geomx_update(cluster)

    @hookimpl
    def geomx_validate(self, experiment: Experiment) -> None:
        """See `Bisparse.geomx_validate`."""
        self._sparse.geomx_validate(experiment)

    @hookimpl
    def geomx_sim(self, simulation: Simulation) -> None:
        """Supply the measured costs of sim.py."""
        simulation.charge("mpq", COSTS)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[mpq]``."""
    made_of = {"bisparse": ["min_elements"], "fp16": ["lan"]}
    register("accel", "mpq", MpqConfig, Mpq, made_of)
