"""The simulated world, as programs see it: `World` and what belongs to it (docs/world.md)."""

from geomx.sim.world.compute import Compute
from geomx.sim.world.nodes import WorldNode
from geomx.sim.world.readings import Flow
from geomx.sim.world.transfers import Transfer
from geomx.sim.world.wan import Wan
from geomx.sim.world.world import World

__all__ = ["Compute", "Flow", "Transfer", "Wan", "World", "WorldNode"]
