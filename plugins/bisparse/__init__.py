"""Bi-Sparse: the WAN carries the largest entries only, in both directions; the rest is kept.

GeoMX's BSC, which is Deep Gradient Compression (Lin et al., ICLR 2018) between a party and the
global server. Push: a party's sum is added to an accumulator with momentum correction; its k
largest entries are sent and reset to 0, the others stay. Pull: the sum of the pushes is sparse too,
so global servers answer with that sum, and every local server keeps its own replica of the weights.
Workers receive dense weights over the LAN.

GeoMX runs the optimizer on the sparse sums. Adam does not learn from these as fast as from dense
ones: an entry arrives about once in 1 / ratio rounds as the sum of that many gradients, which its
second moment takes for noise, and moves the weight by as much as a single gradient would. By
default, parties therefore run the optimizer first and sparsify its steps (`steps`), which is what
DGC's momentum correction does for momentum SGD; their own workers train with all of the party's
steps, and the last round sends what is left (`flush`).

Differences to GeoMX: indices are integers of ceil(log2 n) bits (GeoMX's float32 indices fail beyond
2^24), tensors may be divided between several global servers, the largest entries are selected
instead of the first ones above a threshold, entries are not shuffled, and `reselect` limits
answers, with a residual of their own, so that they do not grow with the number of parties. The
codecs are
native: push.cc, pull.cc.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Interval, Unit

from geomx.cluster import Cluster, Link
from geomx.errors import ConfigError
from geomx.plugin import BySize, Native, native_options
from geomx.plugin.experiment import Experiment, Simulation
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register
from geomx.plugins.bisparse.sim import COSTS


@dataclass(frozen=True)
class BisparseConfig:
    """Options of Bi-Sparse."""

    ratio: Annotated[float, Interval(gt=0, le=1), Unit("share of elements")] = field(
        default=0.01, metadata={"search": (0.01, 0.05)}
    )
    """Share of a shard that is sent."""
    steps: bool = True
    """Run the optimizer at each party and sparsify its steps; false: as GeoMX, sparsify gradients
    and run the optimizer on their sum. Only where parties update together and push gradients."""
    flush: bool = True
    """Send everything that was kept in the last round."""
    momentum: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """Momentum correction (DGC, GeoMX: 0.9) of gradients, for SGD without momentum; 0: off, as
    wherever parameters are exchanged. Needs steps=false."""
    masking: bool = True
    """Reset the momentum of sent entries (DGC's momentum factor masking)."""
    clip: Annotated[float | None, Gt(0), Unit("L2 norm")] = None
    """Bound on the norm of a shard's gradient, shared as clip / sqrt(parties); null: none. Needs
    steps=false."""
    warmup_rounds: Annotated[int, Interval(ge=0, le=2**31 - 1), Unit("rounds")] = 20
    """Rounds over which the share falls from 25 % to ratio in equal factors; 0: none."""
    exact: bool = False
    """Select exactly the largest, even if the threshold estimated from a sample is too high."""
    min_elements: Annotated[int, Ge(1), Unit("elements")] = 1000
    """Smaller shards are sent completely."""
    pull: bool = True
    """Answer with sparse sums, and run the optimizer at the parties; false: dense weights."""
    reselect: bool = False
    """Limit answers to the size of one push: the largest of the sum, the rest in a residual."""

    def __post_init__(self) -> None:
        for name, off in (("momentum", 0.0), ("clip", None)):
            value = getattr(self, name)
            if self.steps and value != off:
                remedy = "is for gradients: choose steps=false, or let the optimizer do it"
                raise ConfigError(name, value, remedy)
        if self.steps and not self.pull:
            remedy = "parties that run the optimizer need sums: choose steps=false"
            raise ConfigError("pull", self.pull, remedy)


class Bisparse:
    """The largest 1 % of a party's gradient up, their sum down, the rest kept for later (DGC)."""

    mxnet: ClassVar = {"type": "bsc", "threshold": "ratio"}

    def __init__(self, config: BisparseConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_codec(self, link: Link) -> BySize | None:
        """Encode sums of gradients over the WAN; weights and all LAN traffic stay dense."""
        if link.kind != "wan" or link.carries == "weights":
            return None
        codec = self._pull(link) if link.direction == "pull" else self._push(link)
        return BySize(self.config.min_elements, large=[codec])

    @hookimpl
    def geomx_update(self, cluster: Cluster) -> str | None:
        """Run the optimizer at the parties, before the exchange or on the sums."""
        if self.config.steps:
            return "steps"
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
    def geomx_validate(self, experiment: Experiment) -> None:
        """Say which optimizer to take where a global server updates with sparse gradients."""
        name = experiment.scale_free_optimizer
        if name is not None:
            warnings.warn(
                f"{name} on sparse gradients learns slowly, and here parties cannot run it first; "
                "workload.optimizer=sgd with options steps=false momentum=0.9 of this accelerator "
                "learns as without it",
                stacklevel=2,
            )

    @hookimpl
    def geomx_sim(self, simulation: Simulation) -> None:
        """Supply the measured costs of sim.py."""
        simulation.charge("bisparse", COSTS)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[bisparse]``."""
    register("accel", "bisparse", BisparseConfig, Bisparse)
