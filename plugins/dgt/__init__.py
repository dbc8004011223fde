"""DGT, differential gradient transmission: important blocks first and reliably, others lossy.

Zhou et al., Future Generation Computer Systems 121, 2021. A party's push of a shard is divided into
blocks. The share `k` of blocks that contributes most (by a moving average of the mean magnitude) is
sent on the reliable channel in order of contribution, the rest on lossy datagram channels of
decreasing priority. A block that misses its round counts as zero in that round and is added, once,
to the next one; an older block is dropped. k decreases with the training loss.

Differences to GeoMX: blocks are sent in order of contribution, the channels are datagrams, k adapts
to the training loss, and half-precision values are ranked by their value. As in GeoMX, pulls and
links inside a party are unchanged. The rules are native: dgt.cc.
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
    """Share that is sent reliably at the start."""
    k_min: Annotated[float, Interval(ge=0, le=1), Unit("share of blocks")] = 0.2
    """Lower bound of k; at most k."""
    adaptive: bool = True
    """Scale k by the ratio of the party's loss to its first loss; false: k is constant."""
    alpha: Annotated[float, Interval(ge=0, lt=1)] = 0.3
    """Weight of history in a block's contribution."""
    block_bytes: Annotated[int, Interval(ge=64, le=60_000), Unit("bytes")] = 4096
    """Size of a block, which is sent in one datagram."""
    channels: Annotated[int, Interval(ge=1, le=7), Unit("channels")] = 3
    """Number of best-effort channels."""
    wait_ms: Annotated[float, Ge(0), Unit("ms")] = 0.0
    """Time that the global server waits for best-effort blocks at the end of a round."""

    def __post_init__(self) -> None:
        if self.k_min > self.k:
            raise ConfigError("k_min", self.k_min, f"must be between 0 and k ({self.k})")


class Dgt:
    """Blocks by contribution: the top share reliably and first, the rest by lossy channels."""

    def __init__(self, config: DgtConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_slicer(self, link: Link) -> Native | None:
        """Slice what a party pushes over the WAN; None for other links."""
        if link.kind != "wan" or link.direction != "push":
            return None
        grace_s = self.config.wait_ms / 1e3
        options = native_options(self.config)
        return Native("slicer", "dgt", options, grace_s=grace_s, best_effort=True)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[dgt]``."""
    register("accel", "dgt", DgtConfig, Dgt)
