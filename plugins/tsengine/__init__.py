"""TSEngine: members of a group add and hand on among themselves, over links that were fast lately.

Zhou et al., IEEE TNSM 18(4), 2021; GeoMX's ``ENABLE_INTRA_TS`` and ``ENABLE_INTER_TS``. With
everybody pushing to one server and being answered by it, that server's link carries all of it. Here
contributions meet in pairs on their way up, and on the way down everyone who has a value hands it
on; a scheduler pairs them by the throughput it saw. Sums are the same but for the order of
addition, total bytes are equal, and the server's share of them falls.

GeoMX's measures processor time instead of throughput, explores with another probability than it
says, and carries one key at a time; see `tsengine.cc` for what this one does.
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
    """Values are handed on, on the way down."""
    greed: Annotated[float, Interval(ge=0, le=1), Unit("probability")] = 0.9
    """Largest chance of taking the fastest known pair; else one is explored."""
    expiry_rounds: Annotated[int, Ge(1), Unit("rounds")] = 5
    """After which a throughput sample is forgotten."""
    in_flight: Annotated[int, Ge(1), Unit("transfers")] = 4
    """That one node sends, or receives, at a time; one per shard at most."""

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
        """One mind per party, on its server, and one for all global servers, on the scheduler."""
        config = self.config
        within = group.level == "party"
        if not (config.intra if within else config.inter):
            return None
        host = group.root if within else group.scheduler
        site = Site(host, Native("coordinator", "tsengine", native_options(config)))
        return Overlay(site, push=config.push, pull=config.pull)


@hookimpl
def geomx_register(register: Register) -> None:
    """Announce ``accel=[tsengine]``."""
    register("accel", "tsengine", TSEngineConfig, TSEngine)
