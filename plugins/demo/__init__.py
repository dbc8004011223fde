"""DeMo: the WAN carries 32 coefficients of the cosine transform of every chunk of 4,096 values.

Decoupled momentum (Peng et al., 2024, arXiv 2411.19870). A node adds gradients to a
momentum, of which only the part that is large after a discrete cosine transform is exchanged and
taken away; the rest stays and goes on growing. A chunk takes 896 bits: 32 coefficients of 16 bits,
and 32 places of 12 bits. That is 0.219 bits per value.

Parts of the paper's algorithm are where geomx has them. The momentum is what the codec keeps
(`decay` is the paper's beta), one of each party. The step is an optimizer's: by default, parties
run the workload's optimizer and exchange its steps; with `signs`, the codec gets gradients, and
parties move every weight by the learning rate against the sign of the sum, as in the paper. There,
all nodes receive what all others send. Here the global servers add it and answer with the sum,
again in this form, with as many coefficients as all pushes together. The codec is native: demo.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Interval, Unit
from numpy.typing import NDArray

from geomx.cluster import Cluster, Link
from geomx.errors import ConfigError
from geomx.plugin import Native, native_options
from geomx.plugin.experiment import Simulation
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register
from geomx.plugins.demo.sim import COSTS


@dataclass(frozen=True)
class DemoConfig:
    """Options of DeMo."""

    kept: Annotated[int, Interval(ge=1, le=4096), Unit("coefficients")] = 32
    """Coefficients of a chunk that are sent."""
    side: Annotated[int, Interval(ge=4, le=64), Unit("values")] = 64
    """A chunk has side x side values, at most, and is transformed as a matrix; a power of two."""
    bits: Annotated[int, Unit("bits")] = 16
    """Of a coefficient: 16 (bfloat16) or 32."""
    decay: Annotated[float, Interval(ge=0, le=1)] = 1.0
    """Factor of the momentum in every round (the paper: 0.999); below 1, a part is never sent."""
    steps: bool = True
    """Where gradients are exchanged, run the optimizer at each party and encode its steps. Where
    parties cannot run it, nothing is encoded; false: gradients are."""
    signs: bool = False
    """The optimizer moves every weight by the learning rate against the sign of the sum (the
    paper's); false: the workload's. Needs steps=false."""
    flush: bool = True
    """Where parties exchange parameters together, send everything that was kept in the last round,
    so that a party's workers go on from what is kept; false, or with decay below 1: they make such
    moves again."""
    pull: bool = True
    """Answer in this form, and run the optimizer at the parties; false: dense weights."""

    def __post_init__(self) -> None:
        if self.side & (self.side - 1):
            raise ConfigError("side", self.side, "must be a power of two")
        if self.kept > self.side**2:
            raise ConfigError("kept", self.kept, f"must be at most {self.side**2}, side x side")
        if self.bits not in (16, 32):
            raise ConfigError("bits", self.bits, "must be 16 or 32")
        if self.steps and not self.pull:
            remedy = "parties that run the optimizer need sums: choose steps=false"
            raise ConfigError("pull", self.pull, remedy)
        if self.steps and self.signs:
            remedy = "steps of signs are no momentum: choose steps=false, which encodes gradients"
            raise ConfigError("signs", self.signs, remedy)


class Signs:
    """Moves every weight by the learning rate."""

    def update(
        self, weight: NDArray[np.float32], gradient: NDArray[np.float32], learning_rate: float
    ) -> NDArray[np.float32]:
        """Return the new weights."""
        return weight - np.float32(learning_rate) * np.sign(gradient)


class Demo:
    """The largest 32 cosine coefficients of 4,096 values, up and down, the rest kept for later."""

    def __init__(self, config: DemoConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_codec(self, link: Link) -> Native | None:
        """Encode sums that cross the WAN; weights and all LAN traffic stay dense.

        With `steps`, also gradients for an optimizer at the global servers: Adam hardly learns from
        so few of their coefficients.
        """
        if link.kind != "wan" or link.carries == "weights":
            return None
        gradients = link.carries == "contributions" and link.exchange == "gradients"
        if self.config.steps and gradients and not link.summed:
            return None
        answer = link.direction == "pull"
        times, decay = (link.parties, 1.0) if answer else (1, self.config.decay)
        others = {"times": times, "decay": decay, "shared": answer}
        flush = self.config.flush and link.moves and self.config.decay == 1
        options = native_options(self.config, **others, flush=flush)
        return Native("codec", "demo", options)

    @hookimpl
    def geomx_update(self, cluster: Cluster) -> str | None:
        """Run the optimizer at the parties, before the exchange or on the sums."""
        if self.config.steps:
            return "steps"
        return "party" if self.config.pull else None

    @hookimpl
    def geomx_optimizer(self) -> Signs | None:
        """Supply the paper's optimizer."""
        return Signs() if self.config.signs else None

    @hookimpl
    def geomx_sim(self, simulation: Simulation) -> None:
        """Supply the measured costs of sim.py."""
        simulation.charge("demo", COSTS)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[demo]``."""
    register("accel", "demo", DemoConfig, Demo)
