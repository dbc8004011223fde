"""TwoBit: what a party pushes takes two bits a value; what was not said is kept and said later.

MXNet's 2-bit compression with a residual, which GeoMX inherits (``{"type": "2bit"}``): +t, -t or
nothing. MXNet's threshold t is a constant in the units of the gradient, and its default of 0.5 is
far above most gradients, so that a model learns little or nothing for many rounds. Here the scale
follows the values unless a threshold is given: each round sends the nearest of -s, 0 and s, with s
the mean magnitude of what waits, weighted by magnitude; s travels along, four bytes a slice. With
``accel.twobit.threshold=0.5`` codes and residuals are MXNet's, bit by bit.

Only what parties push over the WAN is coded, as in GeoMX; answers are dense. After a codec that has
chosen rows (Bi-Sparse) their values are coded, and residuals stay with the elements. The codec is
native: twobit.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Gt, Unit

from geomx.cluster import Link
from geomx.plugin import Native, native_options
from geomx.plugin.experiment import Simulation
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register
from geomx.plugins.twobit.sim import COSTS


@dataclass(frozen=True)
class TwoBitConfig:
    """Options of 2-bit compression."""

    threshold: Annotated[float | None, Gt(0), Unit("of the gradient's sum over a party")] = None
    """MXNet's threshold (there 0.5); null: follow the values."""


class TwoBit:
    """Two bits a value on the way to the global server: +s, -s or nothing, the rest is kept."""

    mxnet: ClassVar = {"type": "2bit"}

    def __init__(self, config: TwoBitConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_codec(self, link: Link) -> Native | None:
        """Only what a party pushes over the WAN."""
        if link.kind != "wan" or link.direction != "push":
            return None
        return Native("codec", "twobit", native_options(self.config))

    @hookimpl
    def geomx_sim(self, simulation: Simulation) -> None:
        """What the codec takes, measured; see sim.py."""
        simulation.charge("twobit", COSTS)


@hookimpl
def geomx_register(register: Register) -> None:
    """Announce ``accel=[twobit]``."""
    register("accel", "twobit", TwoBitConfig, TwoBit)
