"""FSA, the fully synchronous algorithm: in every step, all nodes wait for each other.

Each worker pushes its gradient after every local step; the local server sums its party, the global
server sums the parties, updates the weights with the mean gradient, and answers with the weights.
HiPS (Li et al., ZTE Technology Journal 26(5), 2020); GeoMX's ``dist_sync``.
"""

from __future__ import annotations

from dataclasses import dataclass

from geomx.cluster import Cluster
from geomx.plugin import SyncPolicy
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register


@dataclass(frozen=True)
class FsaConfig:
    """FSA has no options."""


class Fsa:
    """Fully synchronous: every step, the global server updates with the mean gradient of all."""

    lossless = True

    def __init__(self, config: FsaConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_sync_policy(self, cluster: Cluster) -> SyncPolicy:
        """Return the base policy, which implements this algorithm."""
        return SyncPolicy()


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``sync=fsa``."""
    register("sync", "fsa", FsaConfig, Fsa)
