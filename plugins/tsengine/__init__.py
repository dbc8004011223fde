"""TSEngine: members of a group aggregate and forward among themselves, over currently fast links.

Zhou et al., IEEE TNSM 18(4), 2021; GeoMX's ``ENABLE_INTRA_TS`` and ``ENABLE_INTER_TS``. In a star,
the server's link carries all pushes and answers. Here contributions meet in pairs on the way up,
and members that have a value forward it on the way down; a scheduler forms the pairs by measured
throughput. Sums are equal up to the order of addition, total bytes are equal, and the server's
share of them decreases.

GeoMX's version measures processor time instead of throughput, explores with another probability
than documented, and transfers one key at a time; `tsengine.cc` describes this one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Interval, Unit

from geomx.errors import ConfigError
from geomx.plugin import Group, Native, Overlay, Site, native_options
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register


@dataclass(frozen=True)
class TSEngineConfig:
    """Options of TSEngine."""

    inter: bool = True
    """Between parties: local servers and each global server, where parties update together."""
    intra: bool = True
    """Inside parties: workers and their local server."""
    push: bool = True
    """Contributions are added on the way up."""
    pull: bool = True
    """Values are forwarded on the way down."""
    greed: Annotated[float, Interval(ge=0, le=1), Unit("probability")] = 0.9
    """Largest probability of taking the fastest known pair instead of exploring."""
    expiry_rounds: Annotated[int, Ge(1), Unit("rounds")] = 5
    """Age at which a throughput sample is discarded."""
    in_flight: Annotated[int, Ge(1), Unit("transfers")] = 4
    """Limit on the transfers that a node sends, or receives, at a time; one per shard."""

    def __post_init__(self) -> None:
        if not (self.inter or self.intra) or not (self.push or self.pull):
            raise ConfigError(
                "inter", self.inter, "set inter or intra, and push or pull; or leave tsengine out"
            )


class TSEngine:
    """Aggregation and dissemination trees that follow the throughput of links."""

    lossless = True

    def __init__(self, config: TSEngineConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_overlay(self, group: Group) -> Overlay | None:
        """Return a coordinator: on a party's server, or on the scheduler for all servers."""
        config = self.config
        within = group.level == "party"
        if not (config.intra if within else config.inter):
            return None
        host = group.root if within else group.scheduler
        site = Site(host, Native("coordinator", "tsengine", native_options(config)))
        return Overlay(site, push=config.push, pull=config.pull)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[tsengine]``."""
    register("accel", "tsengine", TSEngineConfig, TSEngine)
