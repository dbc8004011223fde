"""FP16: float32 values are sent in IEEE half precision, on every hop and in both directions.

GeoMX's ``cnn_fp16.py`` halves the traffic in the same way, but adds in half precision, so that its
rounding errors grow with the number of workers. Here all stored sums and weights are float32, and
initial values are sent in float32. The cast is native: fp16.cc.
"""

from __future__ import annotations

from dataclasses import dataclass

from geomx.cluster import Link
from geomx.plugin import Native
from geomx.plugin.experiment import Simulation
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register
from geomx.plugins.fp16.sim import COSTS


@dataclass(frozen=True)
class Fp16Config:
    """Options of FP16."""

    lan: bool = True
    """Also on links inside a party; false: float32 there."""


class Fp16:
    """Half precision on the wire, float32 sums: half the bytes on every link."""

    def __init__(self, config: Fp16Config) -> None:
        self.config = config

    @hookimpl
    def geomx_codec(self, link: Link) -> Native | None:
        """Encode on WAN links, and on LAN links with `lan`."""
        if link.kind == "lan" and not self.config.lan:
            return None
        return Native("codec", "fp16")

    @hookimpl
    def geomx_sim(self, simulation: Simulation) -> None:
        """Supply the measured costs of sim.py."""
        simulation.charge("fp16", COSTS)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[fp16]``."""
    register("accel", "fp16", Fp16Config, Fp16)
