"""LowBit: the WAN carries integers of 8 or 4 bits; rounding errors are added to the next values.

Every chunk of values has a scale, its largest magnitude over the largest integer (127 or 7), and
each value is sent as the nearest multiple of it. With error feedback nothing is lost: what rounding
leaves out of one round is part of the next. INTELLECT-1 (arXiv 2412.01152) exchanges changes of the
model in 8 bits, and Douillard et al. (arXiv 2501.18512) in 4.

Parties push sums in this form, and global servers answer with the sum of the pushes in the same
form, with an error of its own; every party runs the optimizer on it (`pull`). The codec is native:
lowbit.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval, Unit

from geomx.cluster import Cluster, Link
from geomx.errors import ConfigError
from geomx.plugin import Native, native_options
from geomx.plugin.experiment import Simulation
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register
from geomx.plugins.lowbit.sim import COSTS


@dataclass(frozen=True)
class LowBitConfig:
    """Options of LowBit."""

    bits: Annotated[int, Unit("bits")] = 8
    """Of an integer: 8 or 4."""
    chunk: Annotated[int, Interval(ge=16, le=4096), Unit("values")] = 256
    """Values with a common scale of 4 bytes; a power of two."""
    pull: bool = True
    """Answer with sums in this form, and run the optimizer at the parties; false: dense weights."""

    def __post_init__(self) -> None:
        if self.bits not in (8, 4):
            raise ConfigError("bits", self.bits, "must be 8 or 4")
        if self.chunk & (self.chunk - 1):
            raise ConfigError("chunk", self.chunk, "must be a power of two")


@dataclass(frozen=True)
class Int8Config(LowBitConfig):
    """Options of LowBit under the name of its integers."""


@dataclass(frozen=True)
class Int4Config(LowBitConfig):
    """Options of LowBit under the name of its shorter integers."""

    bits: Annotated[int, Unit("bits")] = 4


class LowBit:
    """Eight or four bits per value over the WAN, in both directions, with error feedback."""

    name = "lowbit"

    def __init__(self, config: LowBitConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_codec(self, link: Link) -> Native | None:
        """Encode sums that cross the WAN; weights and all LAN traffic stay dense."""
        if link.kind != "wan" or link.carries == "weights":
            return None
        shared = link.direction == "pull"
        return Native("codec", "lowbit", native_options(self.config, shared=shared))

    @hookimpl
    def geomx_update(self, cluster: Cluster) -> str | None:
        """Run the optimizer at the parties, on the sums."""
        return "party" if self.config.pull else None

    @hookimpl
    def geomx_sim(self, simulation: Simulation) -> None:
        """Supply the measured costs of sim.py."""
        simulation.charge(self.name, COSTS)


class Int8(LowBit):
    """Eight bits per value over the WAN: lowbit with bits=8."""

    name = "int8"


class Int4(LowBit):
    """Four bits per value over the WAN: lowbit with bits=4."""

    name = "int4"


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[lowbit]``, ``accel=[int8]`` and ``accel=[int4]``."""
    register("accel", LowBit.name, LowBitConfig, LowBit)
    register("accel", Int8.name, Int8Config, Int8, variant_of=LowBit.name)
    register("accel", Int4.name, Int4Config, Int4, variant_of=LowBit.name)
