"""TwoBit: a party pushes two bits per value; the quantisation error is added to its next push.

MXNet's 2-bit compression with a residual, which GeoMX inherits (``{"type": "2bit"}``): +t, -t or 0.
MXNet's threshold t is a constant in the units of the gradient, and its default of 0.5 is far above
most gradients, so that a model learns little or nothing for many rounds. Here the scale adapts to
the values unless a threshold is given: each round sends the nearest of -s, 0 and s, where s is the
mean magnitude of gradient plus residual, weighted by magnitude; each slice contains s (four bytes).
With ``accel.twobit.threshold=0.5``, codes and residuals equal MXNet's bit by bit.

As in GeoMX, only the parties' pushes over the WAN are encoded; answers are dense. After a codec
that selects rows (Bi-Sparse), the selected values are encoded, and residuals belong to the
elements. The codec is native: twobit.cc.
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
    """MXNet's threshold (0.5 there); null: adapt the scale to the values."""


class TwoBit:
    """Two bits per value on the way to the global server: +s, -s or 0, with error feedback."""

    mxnet: ClassVar = {"type": "2bit"}

    def __init__(self, config: TwoBitConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_codec(self, link: Link) -> Native | None:
        """Encode what a party pushes over the WAN; None for other links."""
        if link.kind != "wan" or link.direction != "push":
            return None
        return Native("codec", "twobit", native_options(self.config))

    @hookimpl
    def geomx_sim(self, simulation: Simulation) -> None:
        """Supply the measured costs of sim.py."""
        simulation.charge("twobit", COSTS)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[twobit]``."""
    register("accel", "twobit", TwoBitConfig, TwoBit)
