"""The scenario of an experiment, carried out in virtual time."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from geomx.cluster import NodeSpec
from geomx.errors import NodeLost
from geomx.experiment.wiring import peers
from geomx.scenario import Act, Scenario
from geomx.scenario.acts import NS
from geomx.sim.members import KILLED, Members
from geomx.sim.world import World

VERBS = {"pause": "cut", "kill": "cut", "resume": "reconnect", "restart": "reconnect"}
"""The operation on all links of a node that simulates an act on the node itself."""


def play(simulation: World, scenario: Scenario, members: Members | None) -> None:
    """Schedule the acts of a scenario in a simulation that is about to run.

    Args:
        simulation: The simulation.
        scenario: Its scenario.
        members: The processes of a run that continues without lost nodes; None for other runs.
    """
    if scenario:
        simulation.fabric.expect_faults()
        simulation.env.process(_acts(simulation, scenario, members))


def _acts(
    simulation: World, scenario: Scenario, members: Members | None
) -> Generator[simpy.Event, Any, None]:
    experiment = simulation.experiment
    cluster = experiment.cluster
    linked = {
        node.id: {peer.id for peer in peers(cluster, experiment.selection, node)}
        for node in cluster.nodes
    }
    for act in scenario.acts():
        yield simulation.env.timeout(act.at_ns - simulation.env.now)
        if row := scenario.row(act):
            if act.what == "kill" and act.for_ns and members is None:
                row["recovered_s"] = act.for_ns / NS
            simulation.recorder.fault(row)
        if act.what in ("join", "leave"):
            assert members is not None  # checked when the experiment was composed
            _membership(act, [cluster.nodes[each] for each in sorted(act.one)], members)
            continue
        if act.what in ("kill", "restart") and members:
            do_to = members.kill if act.what == "kill" else members.restart
            do_to(cluster.nodes[min(act.one)])
            continue
        if act.what == "kill" and not act.for_ns:
            raise NodeLost(cluster.nodes[min(act.one)].name, KILLED)
        if act.what in ("pause", "kill"):
            simulation.fabric.pause(min(act.one), act.for_ns, simulation.env.now)
        # To its peers, a node that does not run equals one whose links are cut. A killed
        # node resumes where it was.
        verb = VERBS.get(act.what, act.what)
        do = getattr(simulation.fabric, verb)
        for one, other in _pairs(act, linked):
            do(one, other, simulation.env.now)


def _membership(act: Act, nodes: list[NodeSpec], members: Members) -> None:
    if act.what == "join":
        members.join(nodes)
    else:
        members.leave(nodes[0])


def _pairs(act: Act, linked: dict[int, set[int]]) -> list[tuple[int, int]]:
    """Return the links that an act affects; all links of a node for an act on a node."""
    return [
        (one, other)
        for one in sorted(act.one)
        for other in sorted(act.other or linked.keys() - act.one)
        if other in linked[one] or one in linked[other]
    ]
