"""SparseLoCo: of every chunk of 4,096 values, the 64 largest cross the WAN in two bits each.

The codec of SparseLoCo (Sarfi et al., 2025, arXiv 2508.15706), which is meant for changes of the
model over several local steps: what is not sent stays in an error buffer that is added to the next
change, and so takes the place of the outer optimizer's momentum. A chunk takes 928 bits: 64 places
of 12 bits, 64 values of two bits, and the two magnitudes that these stand for. That is 0.227 bits
per value.

The paper forgets a share of the error in every round (`beta=0.95`); here everything arrives unless
that is asked for. All workers receive all contributions there. Here the global servers add them and
answer with the sum, again in this form, with as many values as all pushes together and an error of
its own; every party runs the optimizer on it. The codec is native: sparseloco.cc.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval, Unit

from geomx.cluster import Cluster, Link
from geomx.errors import ConfigError
from geomx.plugin import Native, native_options
from geomx.plugin.experiment import Experiment, Simulation
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register
from geomx.plugins.sparseloco.sim import COSTS


@dataclass(frozen=True)
class SparseLocoConfig:
    """Options of SparseLoCo."""

    top: Annotated[int, Interval(ge=1, le=65536), Unit("values")] = 64
    """Values of a chunk that are sent."""
    chunk: Annotated[int, Interval(ge=8, le=65536), Unit("values")] = 4096
    """Size of a chunk, at most; the chunks of a shard are equally long."""
    bits: Annotated[int, Unit("bits")] = 2
    """Of a selected value: 2, or 32 to send it as it is."""
    beta: Annotated[float, Interval(ge=0, le=1)] = 1.0
    """Factor of the error in every round (the paper: 0.95); below 1, a part of it is never sent."""
    steps: bool = True
    """Where gradients are exchanged, run the optimizer at each party and encode its steps."""
    flush: bool = True
    """Where parties exchange parameters together, send everything that was kept in the last round,
    so that a party's workers go on from what is kept; false, or with beta below 1: they make such
    moves again."""
    pull: bool = True
    """Answer in this form, and run the optimizer at the parties; false: dense weights."""

    def __post_init__(self) -> None:
        if self.top > self.chunk:
            raise ConfigError("top", self.top, f"must be at most chunk={self.chunk}")
        if self.bits not in (2, 32):
            raise ConfigError("bits", self.bits, "must be 2 or 32")
        if self.steps and not self.pull:
            remedy = "parties that run the optimizer need sums: choose steps=false"
            raise ConfigError("pull", self.pull, remedy)


class SparseLoco:
    """The largest 64 of 4,096 values in two bits each, up and down, the rest kept for later."""

    def __init__(self, config: SparseLocoConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_codec(self, link: Link) -> Native | None:
        """Encode sums that cross the WAN; weights and all LAN traffic stay dense."""
        if link.kind != "wan" or link.carries == "weights":
            return None
        answer = link.direction == "pull"
        times, decay = (link.parties, 1.0) if answer else (1, self.config.beta)
        others = {"kept": self.config.top, "times": times, "decay": decay, "shared": answer}
        flush = self.config.flush and link.moves and self.config.beta == 1
        options = native_options(self.config, **others, flush=flush)
        return Native("codec", "sparseloco", options)

    @hookimpl
    def geomx_update(self, cluster: Cluster) -> str | None:
        """Run the optimizer at the parties, before the exchange or on the sums."""
        if self.config.steps:
            return "steps"
        return "party" if self.config.pull else None

    @hookimpl
    def geomx_validate(self, experiment: Experiment) -> None:
        """Say which optimizer to take where a global server updates with sparse gradients."""
        name = experiment.scale_free_optimizer
        if name is not None:
            warnings.warn(
                f"{name} on sparse gradients learns slowly, and here parties cannot run it first; "
                "workload.optimizer=sgd with option steps=false of this accelerator learns faster",
                stacklevel=2,
            )

    @hookimpl
    def geomx_sim(self, simulation: Simulation) -> None:
        """Supply the measured costs of sim.py."""
        simulation.charge("sparseloco", COSTS)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[sparseloco]``."""
    register("accel", "sparseloco", SparseLocoConfig, SparseLoco)
