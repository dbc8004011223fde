"""MPQ, mixed-precision quantisation: tiny tensors in half precision, large ones Bi-Sparse.

GeoMX's table:

    =============  ==================  ===================================
    shard          inside a party      between parties
    =============  ==================  ===================================
    below bound    half precision      half precision
    others         float32             Bi-Sparse up, and its sum down
    =============  ==================  ===================================

In GeoMX scripts compare with ``>`` and servers with ``>=``, so a tensor of exactly the bound's size
is read as something that it is not. Here the core compares once, ``elements >= bound``, in one
place, for every link of both modes. The codecs are those of ``fp16`` and ``bisparse``, whose native
parts must be installed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from geomx.cluster import Cluster, Link
from geomx.errors import ConfigError
from geomx.plugin import BySize, Native
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register


@dataclass(frozen=True)
class MpqConfig:
    """Options of MPQ."""

    size_lower_bound: int = 1000
    """Elements from which a shard is large (GeoMX's MXNET_KVSTORE_SIZE_LOWER_BOUND)."""
    ratio: float = field(default=0.01, metadata={"search": (0.01, 0.05)})
    """Share of a large shard's elements that is sent, above 0, up to 1."""
    momentum: float = 0.0
    """Momentum correction, 0 (off) to below 1. DGC's and GeoMX's 0.9 is for an optimizer without
    momentum of its own (Adam has it). Off wherever parameters are exchanged."""
    masking: bool = True
    """Forget the momentum of what has been sent."""
    clip: float | None = None
    """Bound on the norm of a shard's gradient, shared as clip / sqrt(parties); null: none."""
    warmup_rounds: int = 20
    """Rounds over which the share falls from 25 % to ratio in equal factors; 0: none."""
    exact: bool = False
    """Exactly the largest, also where the threshold from a sample turns out too high."""
    pull: bool = True
    """Sparse answers too, with the optimizer at the parties; false: dense weights come back."""
    reselect: bool = False
    """Answers of one party's size: the largest of the sum, the rest in a residual."""

    def __post_init__(self) -> None:
        if self.size_lower_bound < 1:
            raise ConfigError("size_lower_bound", self.size_lower_bound, "must be 1 or more")
        if not 0.0 < self.ratio <= 1.0:
            raise ConfigError("ratio", self.ratio, "must be above 0 and at most 1")
        if not 0.0 <= self.momentum < 1.0:
            raise ConfigError("momentum", self.momentum, "must be 0 or more and less than 1")
        if self.clip is not None and not self.clip > 0.0:
            raise ConfigError("clip", self.clip, "must be above 0, or null")
        if self.warmup_rounds < 0:
            raise ConfigError("warmup_rounds", self.warmup_rounds, "must be 0 or more rounds")


class Mpq:
    """Half precision for tensors below 1,000 elements, Bi-Sparse over the WAN for the others."""

    def __init__(self, config: MpqConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_codec(self, link: Link) -> BySize:
        """The table above."""
        large = [] if link.kind == "lan" or link.carries == "weights" else [self._sparse(link)]
        return BySize(self.config.size_lower_bound, small=[Native("codec", "fp16")], large=large)

    @hookimpl
    def geomx_update(self, cluster: Cluster) -> str | None:
        """Sums come down, so the optimizer has to run at the parties."""
        return "party" if self.config.pull else None

    def _sparse(self, link: Link) -> Native:
        config = self.config
        shared = {"ratio": config.ratio, "warmup_rounds": float(config.warmup_rounds)}
        if link.direction == "pull":
            times = 1.0 if config.reselect else float(link.parties)
            return Native("codec", "bisparse_pull", {**shared, "times": times})
        options = {
            **shared,
            # Moves of parameters are steps already: the workers' optimizers have their momentum.
            "momentum": config.momentum if link.exchange == "gradients" else 0.0,
            "masking": float(config.masking),
            "clip": 0.0 if config.clip is None else config.clip / link.parties**0.5,
            "exact": float(config.exact),
        }
        return Native("codec", "bisparse", options)


@hookimpl
def geomx_register(register: Register) -> None:
    """Announce ``accel=[mpq]``."""
    register("accel", "mpq", MpqConfig, Mpq)
