"""The scenario of an experiment, carried out in virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from functools import cached_property
from typing import Any

import simpy

from geomx.cluster import NodeSpec
from geomx.errors import ConfigError, NodeLost
from geomx.experiment.unreached import warn_of_unreached
from geomx.experiment.wiring import peers
from geomx.network.links import PAYLOAD_SHARE
from geomx.network.schedules import BYTES_PER_MBIT
from geomx.scenario import Act, Iterations, Scenario
from geomx.scenario.acts import NS
from geomx.sim.members import KILLED, Members
from geomx.sim.protocols import Running

FRUITLESS = 10_000
"""Breaks of a link without an arrival, while messages wait, after which a run is given up."""

VERBS = {"pause": "cut", "kill": "cut", "resume": "reconnect", "restart": "reconnect"}
"""The operation on all links of a node that simulates an act on the node itself."""

WORLDLY = ("set", "traffic", "quiet", "slow", "usual")
"""Acts on the simulated world, which programs may do too."""

BEFORE_STEPS = ("leave", "slow")
"""Acts that apply to a step that begins at the same instant; all others happen during it."""

PUBLISHED = ("kill", "restart", "pause", "slow")
"""Acts on nodes of which programs hear (`geomx.events.NodeActed`)."""


def play(simulation: Running, scenario: Scenario, end: simpy.Event) -> None:
    """Schedule the acts of a scenario in a simulation that is about to run.

    Events that the run does not reach are warned of at its end.

    Args:
        simulation: The simulation.
        scenario: Its scenario.
        end: Triggers when the run ends.
    """
    if not scenario:
        return

    def ended(event: simpy.Event) -> None:
        if event.ok:
            end_s = (simulation.env.now + simulation.skipped_ns) / NS
            warn_of_unreached(scenario, end_s, simulation.acts.iterations.waiting)

    assert end.callbacks is not None
    end.callbacks.append(ended)
    simulation.env.process(_play(simulation, scenario))


def _play(simulation: Running, scenario: Scenario) -> Generator[simpy.Event, Any, None]:
    acts = simulation.acts
    acts.coming += scenario.dated
    for act in scenario.acts():
        yield simulation.env.timeout(act.at_ns - simulation.env.now)
        every_s = scenario.event(act).every_s
        acts.coming -= every_s is None
        acts.carry_out(act, scenario.row(act))
        if acts.fruitless >= FRUITLESS and every_s is not None:
            remedy = f"must be longer: {FRUITLESS} of these faults let no message cross a link"
            raise ConfigError(f"scenario[{act.event}].every_s", every_s, remedy)


class Acts:
    """What may be done to the links and nodes of a simulation.

    Args:
        simulation: The simulation, built.
        members: The processes of a run that continues without lost or late nodes; None for others.

    Attributes:
        fruitless: How often at most a link has broken without an arrival in between, while messages
            waited to cross it.
        coming: How many acts are to come at known times, without those that repeat.
        iterations: The events that begin with local steps.
    """

    def __init__(self, simulation: Running, members: Members | None) -> None:
        self._simulation = simulation
        self.iterations = Iterations(simulation.experiment.event_schedule)
        self._members = members if simulation.experiment.faults.continues else None
        self.fruitless = self.coming = 0
        self._cuts: Counter[int] = Counter()  # of the links of each node
        self._due: dict[int, int | None] = {}  # when killed nodes restart, by node; None: never
        self._vain: Counter[tuple[int, int]] = Counter()  # pauses of dead nodes, by node and end
        if members:
            members.out_of_reach = lambda node: self._cuts[node] > 0
        self._traffic: dict[tuple[int, int], Any] = {}  # by event and end, while it lasts

    @cached_property
    def _linked(self) -> dict[int, set[int]]:
        experiment = self._simulation.experiment
        cluster = experiment.cluster
        return {
            node.id: {peer.id for peer in peers(cluster, experiment.selection, node)}
            for node in cluster.nodes
        }

    def carry_out(self, act: Act, row: dict[str, Any] | None) -> None:
        """Carry out an act now; one on a dead node has no effect, and neither has its end.

        Args:
            act: The act; the end of one that lasts is another act.
            row: Its row in ``faults`` of ``summary.json``; None for the end of an event.

        Raises:
            NodeLost: A node was killed without which the run ends.
        """
        simulation, members = self._simulation, self._members
        nodes, now = simulation.experiment.cluster.nodes, simulation.env.now
        anew = members is not None and not self._resumes(act)
        vain = act.what in VERBS and self._is_vain(act, row is not None)
        if row is not None:
            if act.what == "kill" and act.for_ns and not anew:
                row["recovered_s"] = None if vain else act.for_ns / NS
            row = simulation.recorder.fault(row)
            if act.what in ("kill", "pause") and not vain:
                simulation.standbys.expects(nodes[min(act.one)], row)
        if vain:
            return
        if act.what in PUBLISHED and simulation.has_world:
            simulation.world.acted(min(act.one), act.what)
        if act.what in WORLDLY:
            self._disturb(act)
            return
        if act.what in ("join", "leave"):
            assert members is not None  # checked when the experiment was composed
            _membership(act, [nodes[each] for each in sorted(act.one)], members)
            return
        if act.what == "kill" and simulation.standbys.kill(nodes[min(act.one)], KILLED):
            return
        if act.what in ("kill", "restart") and members and anew:
            do_to = members.kill if act.what == "kill" else members.restart
            do_to(nodes[min(act.one)])
            return
        if act.what == "kill" and not act.for_ns:
            raise NodeLost(nodes[min(act.one)].name, KILLED)
        if act.what in ("pause", "kill"):
            simulation.fabric.pause(min(act.one), act.for_ns, now)
            if (worker := simulation.workers.get(min(act.one))) is not None:
                worker.pause(act.for_ns)
        # To its peers, a node that does not run equals one whose links are cut. A killed
        # node resumes where it was.
        verb = VERBS.get(act.what, act.what)
        do = getattr(simulation.fabric, verb)
        for one, other in self._pairs(act):
            broke = do(one, other, now)  # times without a message since; None if connected again
            self.fruitless = max(self.fruitless, broke or 0)
            if verb != "reset":
                self._cuts.update(dict.fromkeys((one, other), 1 if verb == "cut" else -1))
        if members:
            members.reconnected()

    def begin_step(self, worker: int, step: int) -> None:
        """Let the events begin that do so as a worker begins a local step.

        Args:
            worker: Id of the worker.
            step: The number of the step.
        """
        simulation, scenario = self._simulation, self._simulation.experiment.event_schedule
        for number in self.iterations.begins(worker, step):
            act = scenario.act(number, simulation.env.now)
            if act.what in BEFORE_STEPS:
                self.carry_out(act, scenario.row(act))
            simulation.env.process(self._lasting(act))

    def _lasting(self, act: Act) -> Generator[simpy.Event, Any, None]:
        """Carry out an act and, after its duration, the one that ends its event."""
        scenario = self._simulation.experiment.event_schedule
        if act.what not in BEFORE_STEPS:
            self.carry_out(act, scenario.row(act))
        if (end := scenario.end(act)) is not None:
            yield from self.later(end)

    def later(self, act: Act) -> Generator[simpy.Event, Any, None]:
        """Wait until the time of an act that ends another, and carry it out; a SimPy process."""
        self.coming += 1
        yield self._simulation.env.timeout(act.at_ns - self._simulation.env.now)
        self.coming -= 1
        self.carry_out(act, None)

    def _is_vain(self, act: Act, begins: bool) -> bool:
        """Whether an act on a node has no effect: it is dead, or another kill has ended it.

        A dead process cannot carry out a kill or a pause, and only the kill that has ended it
        restarts it. `begins`: the act is no end of another one.
        """
        node, end_ns = min(act.one), act.at_ns + act.for_ns
        dead = node in self._due or (self._members is not None and self._members.is_dead(node))
        if act.what == "kill" and not dead:
            self._due[node] = end_ns if act.for_ns else None
        elif act.what == "pause" and dead:
            self._vain[node, end_ns] += 1
        elif act.what == "resume" and self._vain[node, act.at_ns] > 0:
            self._vain[node, act.at_ns] -= 1
            return True
        elif act.what == "restart":
            if not begins and self._due.get(node) != act.at_ns:
                return True
            self._due.pop(node, None)
            return not dead
        return dead and act.what in ("kill", "pause")

    def _resumes(self, act: Act) -> bool:
        """Whether a new process of the node of an act resumes where the killed one was."""
        experiment = self._simulation.experiment
        return bool(act.one) and experiment.faults.logs(experiment.cluster.nodes[min(act.one)].role)

    def _disturb(self, act: Act) -> None:
        """Change the network, its traffic or the pace of a node."""
        world, event = self._simulation.world, self._simulation.experiment.event_schedule.event(act)
        if act.what == "set":
            world.wan.set(
                *event.targets,
                mbps=event.mbps,
                delay_ms=event.delay_ms,
                loss=event.loss,
                both=True,
            )
        elif act.what == "traffic":
            per_s = (event.mbps or 0.0) * BYTES_PER_MBIT * PAYLOAD_SHARE
            size = event.bytes or per_s * (event.for_s or 0.0)
            transfer = world.wan.transfer(*event.targets, size, mbps=event.mbps)
            if act.for_ns:
                self._traffic[act.event, act.at_ns + act.for_ns] = transfer
        elif act.what == "quiet":
            self._traffic.pop((act.event, act.at_ns)).cancel()
        else:
            world.compute.scale(min(act.one), event.times, act.what == "slow")

    def _pairs(self, act: Act) -> list[tuple[int, int]]:
        """Return the links that an act affects; all links of a node for an act on a node."""
        linked = self._linked
        return [
            (one, other)
            for one in sorted(act.one)
            for other in sorted(act.other or linked.keys() - act.one)
            if other in linked[one] or one in linked[other]
        ]


def _membership(act: Act, nodes: list[NodeSpec], members: Members) -> None:
    if act.what == "join":
        members.join(nodes)
    else:
        members.leave(nodes[0])
