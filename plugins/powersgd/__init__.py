"""PowerSGD: a shard, viewed as a matrix, crosses the WAN as thin matrices.

Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization", NeurIPS 2019 (arXiv 1905.13727). A matrix M of gradients is close to one of low rank,
which subspace iteration finds: with an orthonormal basis V of a few columns, U = M V is sent, and
U V' approximates M. The next round continues from this one (warm start), and the remainder is added
to the next M (error feedback).

V must be the same for all parties: then the sum of what they send equals what would be sent for
their sum, which makes the codec *linear*. Servers add U without decoding it. The optimizer runs at
the parties, which therefore receive the sum of U: every party derives the same sum and the same
next basis from it, and the WAN carries thin matrices in both directions. The paper iterates both
sides of the matrix in every round, with an exchange for each. Here a round has one exchange, and
iterates one side: U in odd rounds, V in even ones (Zhang et al., "Evaluation and Optimization of
Gradient Compression for Distributed Deep Learning", ICDCS 2023, arXiv 2306.08881).

If parties are answered one by one there is no common sum, and each sends both factors of its own
matrix instead. A shard has no shape when it is encoded; matrix.h says what its matrix is. The
codecs are native: powersgd.cc.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Interval, Unit

from geomx.cluster import Cluster, Link
from geomx.plugin import BySize, Native, native_options
from geomx.plugin.experiment import Simulation
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register
from geomx.plugins.powersgd.sim import COSTS


@dataclass(frozen=True)
class PowerSGDConfig:
    """Options of PowerSGD."""

    rank: Annotated[int, Interval(ge=1, le=1024), Unit("columns")] = 8
    """Columns of the thin matrices."""
    dense_rounds: Annotated[int, Interval(ge=0, le=2**31 - 1), Unit("rounds")] = 1
    """First rounds in which everything is sent. The last of them gives the first basis."""
    min_elements: Annotated[int, Ge(1), Unit("elements")] = 1000
    """Smaller shards are sent completely."""
    steps: bool = True
    """Where gradients are exchanged, run the optimizer at each party and encode its steps."""
    flush: bool = True
    """Where parties exchange parameters together, send everything that was kept in the last round,
    so that a party's workers go on from what is kept; false: they make such moves again."""


class PowerSGD:
    """Thin matrices of rank 8 up and down the WAN; servers add without decoding."""

    def __init__(self, config: PowerSGDConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_codec(self, link: Link) -> BySize | None:
        """Encode contributions to global servers.

        All summands must be encoded alike, including those of a party at the servers' site.
        """
        if link.summed:
            name = "powersgd"
        elif link.kind == "wan" and link.carries == "contributions":
            name = "powersgd_own"
        else:
            return None
        flush = self.config.flush and link.moves
        codec = Native("codec", name, native_options(self.config, flush=flush))
        return BySize(self.config.min_elements, large=[codec])

    @hookimpl
    def geomx_update(self, cluster: Cluster) -> str:
        """Let parties receive sums, from which they derive the next basis."""
        return "steps" if self.config.steps else "party"

    @hookimpl
    def geomx_sim(self, simulation: Simulation) -> None:
        """Supply the measured costs of sim.py."""
        simulation.charge("powersgd", COSTS)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[powersgd]``."""
    register("accel", "powersgd", PowerSGDConfig, PowerSGD)
