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

from geomx.cluster import Link
from geomx.errors import ConfigError
from geomx.plugin import Native
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register


@dataclass(frozen=True)
class DgtConfig:
    """Options of DGT."""

    k: float = field(default=0.8, metadata={"search": (0.5, 0.8)})
    """Share of the blocks that travels reliably at the start, 0 to 1."""
    k_min: float = 0.2
    """Below this share k never falls, 0 to k."""
    adaptive: bool = True
    """Scale k by the party's loss over its first loss; false keeps k constant."""
    alpha: float = 0.3
    """Weight of history in a block's contribution, 0 to below 1."""
    block_bytes: int = 4096
    """Bytes per block, 64 to 60000 (one datagram)."""
    channels: int = 3
    """Number of best-effort channels, 1 to 7."""
    wait_ms: float = 0.0
    """Milliseconds that the global server waits for best-effort blocks at a round's end."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.k <= 1.0:
            raise ConfigError("k", self.k, "must be a share of the blocks between 0 and 1")
        if not 0.0 <= self.k_min <= self.k:
            raise ConfigError("k_min", self.k_min, f"must lie between 0 and k ({self.k})")
        if not 0.0 <= self.alpha < 1.0:
            raise ConfigError("alpha", self.alpha, "must be 0 or more and less than 1")
        if not 64 <= self.block_bytes <= 60_000:
            raise ConfigError("block_bytes", self.block_bytes, "must lie between 64 and 60000")
        if not 1 <= self.channels <= 7:
            raise ConfigError("channels", self.channels, "must lie between 1 and 7")
        if self.wait_ms < 0:
            raise ConfigError("wait_ms", self.wait_ms, "must be 0 or more milliseconds")


class Dgt:
    """Blocks by contribution: the top share reliably and first, the rest by lossy channels."""

    def __init__(self, config: DgtConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_slicer(self, link: Link) -> Native | None:
        """Only what a party pushes over the WAN."""
        if link.kind != "wan" or link.direction != "push":
            return None
        config = self.config
        options = {
            "k": config.k,
            "k_min": config.k_min,
            "adaptive": float(config.adaptive),
            "alpha": config.alpha,
            "block_bytes": float(config.block_bytes),
            "channels": float(config.channels),
        }
        return Native("slicer", "dgt", options, grace_s=config.wait_ms / 1e3)


@hookimpl
def geomx_register(register: Register) -> None:
    """Announce ``accel=[dgt]``."""
    register("accel", "dgt", DgtConfig, Dgt)
