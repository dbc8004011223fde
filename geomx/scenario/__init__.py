"""What happens to the world of an experiment while it runs: the option ``scenario``.

A scenario is a list of happenings, each with what happens, to what, and when. `Scenario` turns it
into acts in the order of time, which depend on the seed alone. Simulated runs
(`geomx.sim.scenario`) and live ones (`geomx.live.disturbances`) carry out the same acts.
"""

from geomx.scenario.acts import Act, Scenario
from geomx.scenario.happenings import Happening, read_scenario

__all__ = ["Act", "Happening", "Scenario", "read_scenario"]
