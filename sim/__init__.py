"""The simulator: the protocol of the live runtime, driven in virtual time over a fluid WAN.

`geomx.sim.simulation.simulate` runs an experiment; `transfer_times` is the network model alone.
"""

from geomx.sim.transfer import transfer_times

__all__ = ["transfer_times"]
