"""Bi-Sparse: what crosses the WAN is the largest entries, up and down, with everything else kept.

GeoMX's BSC, which is Deep Gradient Compression (Lin et al., ICLR 2018) between a party and the
global server. Up: a party's sum goes through momentum correction into an accumulator; its k largest
entries are sent and zeroed, the rest waits. Down: the sum of what the parties sent is sparse as
well, so global servers answer with that sum and every local server runs the optimizer on its own
replica of the weights. Workers get dense weights over the LAN.

Where GeoMX is wrong this is right: indices are whole numbers of ceil(log2 n) bits (float32 ones
fail beyond 2^24), tensors may be cut over several global servers, the largest entries win instead
of the first ones, nothing is shuffled, and the way down has a re-selection with a residual of its
own, so that it need not grow with the number of parties. The codecs are native: push.cc, pull.cc.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Interval, Unit

from geomx.cluster import Cluster, Link
from geomx.plugin import BySize, Native, native_options
from geomx.plugin.experiment import Simulation
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register
from geomx.plugins.bisparse.sim import COSTS


@dataclass(frozen=True)
class BisparseConfig:
    """Options of Bi-Sparse."""

    ratio: Annotated[float, Interval(gt=0, le=1), Unit("share of elements")] = field(
        default=0.01, metadata={"search": (0.01, 0.05)}
    )
    """Of a shard that is sent."""
    momentum: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """Momentum correction; 0: off. DGC's and GeoMX's 0.9 is for an optimizer without
    momentum of its own (Adam has it). Off wherever parameters are exchanged."""
    masking: bool = True
    """Forget the momentum of what has been sent (DGC's momentum factor masking)."""
    clip: Annotated[float | None, Gt(0), Unit("L2 norm")] = None
    """Bound on the norm of a shard's gradient, shared as clip / sqrt(parties); null: none."""
    warmup_rounds: Annotated[int, Ge(0), Unit("rounds")] = 20
    """Rounds over which the share falls from 25 % to ratio in equal factors; 0: none."""
    exact: bool = False
    """Exactly the largest, also where the threshold from a sample turns out too high."""
    min_elements: Annotated[int, Ge(1), Unit("elements")] = 1000
    """Smaller shards travel whole."""
    pull: bool = True
    """Sparse answers too, with the optimizer at the parties; false: dense weights come back."""
    reselect: bool = False
    """Answers of one party's size: the largest of the sum, the rest in a residual."""


class Bisparse:
    """The largest 1 % of a party's gradient up, their sum down, the rest kept for later (DGC)."""

    mxnet: ClassVar = {"type": "bsc", "threshold": "ratio"}

    def __init__(self, config: BisparseConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_codec(self, link: Link) -> BySize | None:
        """Sums of gradients over the WAN; weights and everything on a LAN stay dense."""
        if link.kind != "wan" or link.carries == "weights":
            return None
        codec = self._pull(link) if link.direction == "pull" else self._push(link)
        return BySize(self.config.min_elements, large=[codec])

    @hookimpl
    def geomx_update(self, cluster: Cluster) -> str | None:
        """Sums come down, so the optimizer has to run at the parties."""
        return "party" if self.config.pull else None

    def _push(self, link: Link) -> Native:
        config = self.config
        # Moves of parameters are steps already: the workers' optimizers have their momentum.
        momentum = config.momentum if link.exchange == "gradients" else 0.0
        clip = 0.0 if config.clip is None else config.clip / link.parties**0.5
        return Native("codec", "bisparse", native_options(config, momentum=momentum, clip=clip))

    def _pull(self, link: Link) -> Native:
        times = 1.0 if self.config.reselect else float(link.parties)
        return Native("codec", "bisparse_pull", native_options(self.config, times=times))

    @hookimpl
    def geomx_sim(self, simulation: Simulation) -> None:
        """What the codecs take, measured; see sim.py."""
        simulation.charge("bisparse", COSTS)


@hookimpl
def geomx_register(register: Register) -> None:
    """Announce ``accel=[bisparse]``."""
    register("accel", "bisparse", BisparseConfig, Bisparse)
