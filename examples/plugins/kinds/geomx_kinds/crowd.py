"""crowd: traffic of others on every WAN link of the parties, in simulations.

Other tenants of a site send files now and then, and share its uplink and downlink with training.
Each party sends one to the central site, or receives one from it, at random times (by the
experiment's seed). Whether an accelerator still helps on a crowded WAN is seen by comparing runs:
``python -m geomx -m '+accel=[],[crowd],[bisparse],[bisparse,crowd]'``.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Gt, Unit

import geomx
from geomx.plugin.experiment import World

geomx_api = "2.1"


@dataclass(frozen=True)
class CrowdConfig:
    """Options of crowd."""

    every_s: Annotated[float, Gt(0), Unit("s")] = 5.0
    """Mean time between two files of a party; exponentially distributed."""
    megabytes: Annotated[float, Gt(0), Unit("MB")] = 10.0
    """Size of a file."""


class Crowd:
    """Files of other tenants share the WAN with training."""

    lossless = True

    def __init__(self, config: CrowdConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_scenario(self, world: World) -> None:
        """Start a process for each party."""
        cluster = world.experiment.cluster
        for party in cluster.parties:
            world.process(self.send(world, party.name, cluster.global_servers[0].party))

    def send(self, world: World, party: str, centre: str) -> Generator[Any, Any, None]:
        """Send or receive a file now and then."""
        while True:
            wait_s = world.random.expovariate(1 / self.config.every_s)
            yield world.env.timeout(world.seconds(wait_s))
            ends = [party, centre] if world.random.random() < 0.5 else [centre, party]
            yield world.wan.transfer(*ends, 1e6 * self.config.megabytes)


@geomx.hookimpl
def geomx_register(register) -> None:
    """Register ``accel=[crowd]``."""
    register("accel", "crowd", CrowdConfig, Crowd)
