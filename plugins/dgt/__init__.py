"""DGT, differential gradient transmission: what matters goes first, the rest may be lost.

Zhou et al., Future Generation Computer Systems 121, 2021. On its way from a party to the global
server a shard is cut into blocks; the share `k` of them that contributes most (a moving average of
the mean magnitude) travels on the reliable channel in order of contribution, the rest on lossy
datagram channels of falling priority. A block that misses its round counts as zero there and is
added, once, to the next round; an older one is dropped. As the loss falls, so does k.

Where GeoMX is wrong this is right: blocks really leave in order of contribution, the channels
really are datagrams, k really adapts to the training loss, and half-precision values rank by their
value. Pulls and links inside a party are left alone, as in GeoMX. The rules are native: dgt.cc.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Interval, Unit

from geomx.cluster import Link
from geomx.errors import ConfigError
from geomx.plugin import Native, native_options
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register


@dataclass(frozen=True)
class DgtConfig:
    """Options of DGT."""

    k: Annotated[float, Interval(ge=0, le=1), Unit("share of blocks")] = field(
        default=0.8, metadata={"search": (0.5, 0.8)}
    )
    """That travels reliably at the start."""
    k_min: Annotated[float, Interval(ge=0, le=1), Unit("share of blocks")] = 0.2
    """Below which k never falls; at most k."""
    adaptive: bool = True
    """Scale k by the party's loss over its first loss; false keeps k constant."""
    alpha: Annotated[float, Interval(ge=0, lt=1)] = 0.3
    """Weight of history in a block's contribution."""
    block_bytes: Annotated[int, Interval(ge=64, le=60_000), Unit("bytes")] = 4096
    """Per block; one datagram holds it."""
    channels: Annotated[int, Interval(ge=1, le=7), Unit("channels")] = 3
    """Best-effort ones."""
    wait_ms: Annotated[float, Ge(0), Unit("ms")] = 0.0
    """That the global server waits for best-effort blocks at a round's end."""

    def __post_init__(self) -> None:
        if self.k_min > self.k:
            raise ConfigError("k_min", self.k_min, f"must be between 0 and k ({self.k})")


class Dgt:
    """Blocks by contribution: the top share reliably and first, the rest by lossy channels."""

    def __init__(self, config: DgtConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_slicer(self, link: Link) -> Native | None:
        """Only what a party pushes over the WAN."""
        if link.kind != "wan" or link.direction != "push":
            return None
        grace_s = self.config.wait_ms / 1e3
        return Native("slicer", "dgt", native_options(self.config), grace_s=grace_s)


@hookimpl
def geomx_register(register: Register) -> None:
    """Announce ``accel=[dgt]``."""
    register("accel", "dgt", DgtConfig, Dgt)
