"""Faults and other events that are injected into a run: the option ``scenario``.

A scenario is a list of events (`ScenarioEvent`), each with its kind, its targets and its time.
`Scenario` expands it to acts in the order of time, which depend on the seed only; `Iterations`
finds the events that begin with local steps of workers. Simulated runs
(`geomx.sim.scenario`) and live ones (`geomx.live.disturbances`) carry out the same acts.
"""

from geomx.scenario.acts import Act, NodeActs, Scenario, check_slow
from geomx.scenario.events import ScenarioEvent, read_scenario
from geomx.scenario.iterations import Iterations
from geomx.scenario.programs import Program, read_programs

__all__ = [
    "Act",
    "Iterations",
    "NodeActs",
    "Program",
    "Scenario",
    "ScenarioEvent",
    "check_slow",
    "read_programs",
    "read_scenario",
]
