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

from geomx.errors import ConfigError
from geomx.plugin import Group, Native, Overlay, Site
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
    greed: float = 0.9
    """Largest probability of taking the fastest known pair, 0 to 1; else one is explored."""
    expiry_rounds: int = 5
    """Rounds after which a throughput sample is forgotten, 1 or more."""
    in_flight: int = 4
    """Transfers that one node sends, or receives, at a time, 1 or more; one per shard at most."""

    def __post_init__(self) -> None:
        if not (self.inter or self.intra) or not (self.push or self.pull):
            raise ConfigError(
                "inter", self.inter, "inter or intra, and push or pull, must be on; or leave it out"
            )
        if not 0 <= self.greed <= 1:
            raise ConfigError("greed", self.greed, "must lie between 0 and 1")
        if self.expiry_rounds < 1:
            raise ConfigError("expiry_rounds", self.expiry_rounds, "must be 1 or more rounds")
        if self.in_flight < 1:
            raise ConfigError("in_flight", self.in_flight, "must be 1 or more transfers")


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
        options = {
            "greed": config.greed,
            "expiry_rounds": float(config.expiry_rounds),
            "in_flight": float(config.in_flight),
        }
        host = group.root if within else group.scheduler
        site = Site(host, Native("coordinator", "tsengine", options))
        return Overlay(site, push=config.push, pull=config.pull)


@hookimpl
def geomx_register(register: Register) -> None:
    """Announce ``accel=[tsengine]``."""
    register("accel", "tsengine", TSEngineConfig, TSEngine)
