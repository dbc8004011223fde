"""The simulator: the protocol of the live runtime, driven in virtual time over a fluid WAN.

`geomx.sim.simulation.simulate` runs an experiment; `transfer_times` is the network model alone.
Programs act on a running simulation through its `World`.
"""

from geomx.events import EdgeChanged, NodeActed, StepEnded, TransferEnded, ValueArrived
from geomx.sim.transfer import transfer_times
from geomx.sim.world import Transfer, Wan, World

__all__ = [
    "EdgeChanged",
    "NodeActed",
    "StepEnded",
    "Transfer",
    "TransferEnded",
    "ValueArrived",
    "Wan",
    "World",
    "transfer_times",
]
