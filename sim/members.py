"""Loss and return of nodes in simulations that continue without lost nodes.

The scenario kills and restarts processes, and the core decides the consequences for rounds. This
module ends a worker's training with its process, restarts it with the next one, and records the
core's notices of participation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any

import simpy

from geomx.cluster import NodeSpec
from geomx.errors import NodeLost
from geomx.experiment.rounds import may_lack_some
from geomx.options.schema import restart_delay_s
from geomx.results.participation import Partial, divided
from geomx.sim.protocols import Notice, Running, Worker
from geomx.sim.worker import SimulatedWorker
from geomx.training.pace import NS

KILLED = "it was killed by the scenario"


class Members:
    """The processes of a simulation that continues without nodes that are lost or late.

    Args:
        simulation: The simulation before its start.

    Attributes:
        unjoined: Ids of nodes that have not joined yet.
        out_of_reach: Returns whether a node, by its id, is paused or a link of it is cut.
    """

    def __init__(self, simulation: Running) -> None:
        self._simulation = simulation
        self._participation = simulation.recorder.continues(simulation.experiment.cluster)
        self._processes: dict[int, simpy.Process] = {}
        self._training: set[int] = set()
        self._dead: set[int] = set()
        self.unjoined = set(simulation.experiment.event_schedule.late)
        self._ended_with: dict[int, list[NodeSpec]] = {}  # workers, by the lost server
        self._refused: set[int] = set()  # lost nodes whose process still exists, out of reach
        self._replaced: Counter[int] = Counter()  # times, by node
        self.out_of_reach: Callable[[int], bool] = lambda node: False
        self._left = False  # a worker has completed its training
        self._gone: set[int] = set()  # workers whose node has left
        self._end = simulation.env.event()

    @classmethod
    def of(cls, simulation: Running) -> Members | None:
        """Return those of a simulation before its start; None if all take part in all rounds."""
        experiment = simulation.experiment
        some = may_lack_some(experiment.cluster, experiment.selection, experiment.faults)
        return cls(simulation) if some else None

    def start(self) -> simpy.Event:
        """Start the training of all workers; return the event of the last one's end."""
        for node in self.unjoined:
            self._dead.add(node)
            self._simulation.fabric.kill(node, "it has not joined yet", self._simulation.env.now)
        for worker in tuple(self._simulation.workers.values()):
            if worker.spec.id not in self.unjoined:
                self._train(worker)
        return self._end

    # ---- processes ----

    def kill(self, node: NodeSpec, reason: str = KILLED) -> None:
        """Kill a node's process; no effect if it has none.

        Raises:
            NodeLost: The run cannot continue without it.
        """
        if node.id in self._dead:
            return
        if node.role not in ("worker", "server"):
            raise NodeLost(node.name, reason)
        self._dead.add(node.id)
        if node.role == "worker":
            self._simulation.workers[node.id].trains = False
        self._simulation.fabric.kill(node.id, reason, self._simulation.env.now)
        process = self._processes.get(node.id)
        if process is not None and process.is_alive:
            process.interrupt()

    def is_dead(self, node: int) -> bool:
        """Return whether a node, by its id, has no process."""
        return node in self._dead

    def restart(self, node: NodeSpec) -> None:
        """Start a new process of a node; no effect if it has one."""
        if node.id not in self._dead or self._end.triggered:
            return
        self._dead.discard(node.id)
        self.unjoined.discard(node.id)
        simulation = self._simulation
        simulation.fabric.restart(simulation.config(node), simulation.env.now)
        if node.role == "worker":
            rank = simulation.experiment.cluster.workers.index(node)
            self._train(SimulatedWorker(simulation, node, rank, returns=True))
        for worker in self._ended_with.pop(node.id, ()):
            self.restart(worker)

    def _refuse(self, node: NodeSpec, reason: str) -> None:
        """A node is lost although its process exists: all nodes refuse it, and it is replaced.

        As in a live run, it ends when it is told so, which may be at the end of a pause or a cut,
        and counts as a restart. Until then it only has no effect, so it is ended here at once.
        """
        if node.id in self._dead or (node.role == "worker" and node.id not in self._training):
            return
        self.kill(node, reason)
        server = self._simulation.experiment.cluster.party_of(node).server
        if node.role == "worker" and server.id in self._dead:
            self._ended_with.setdefault(server.id, []).append(node)
            return
        self._refused.add(node.id)
        self.reconnected()

    def reconnected(self) -> None:
        """Replace the lost nodes that can be reached again."""
        for node in sorted(self._refused):
            if not self.out_of_reach(node):
                self._refused.discard(node)
                self._replaced[node] += 1
                if self._replaced[node] <= self._simulation.experiment.faults.restarts:
                    self._simulation.env.process(self._replace(node))

    def _replace(self, node: int) -> Generator[simpy.Event, Any, None]:
        yield self._simulation.env.timeout(round(restart_delay_s(self._replaced[node]) * NS))
        self.restart(self._simulation.experiment.cluster.nodes[node])

    def join(self, nodes: Sequence[NodeSpec]) -> None:
        """Start the first processes of nodes that join later, servers before their workers."""
        for node in sorted(nodes, key=lambda node: node.role == "worker"):
            self.restart(node)

    def leave(self, node: NodeSpec) -> None:
        """Let a worker leave after the next step that it begins; no effect if it does not train."""
        if node.id in self._training:
            self._simulation.workers[node.id].steps.leave()

    def _train(self, worker: Worker) -> None:
        if worker.spec.id in self._processes:
            self._simulation.acts.iterations.renew(worker.spec.id)
        self._simulation.workers[worker.spec.id] = worker
        self._training.add(worker.spec.id)
        self._gone.discard(worker.spec.id)
        process = self._simulation.env.process(self._life(worker))
        self._processes[worker.spec.id] = process

    def _life(self, worker: Worker) -> Generator[simpy.Event, Any, None]:
        try:
            yield from worker.run()
        except simpy.Interrupt:
            self._training.discard(worker.spec.id)
            return
        self._training.discard(worker.spec.id)
        self.depart(worker)
        if not self._training:
            self._succeed()

    def depart(self, worker: Worker) -> None:
        """Let a worker that is done leave: later rounds do not wait for it. Once is enough."""
        self._left = True
        if worker.spec.id not in self._gone:
            self._gone.add(worker.spec.id)
            self._simulation.fabric.leave(worker.spec.id, self._simulation.env.now)

    def _succeed(self) -> None:
        if not self._end.triggered:
            self._end.succeed()

    def finish(self) -> None:
        """Count the rounds of all servers."""
        for node in self._simulation.experiment.cluster.nodes:
            self._participation.closed(node, self._simulation.fabric.node_stats(node.id))

    # ---- notices of the core ----

    def hear(self, notice: Notice) -> bool:
        """Handle a notice of the fabric if it concerns participation; return whether it does."""
        node, kind, key, number, text, reason, values, partial = notice
        simulation = self._simulation
        nodes, now_s = simulation.experiment.cluster.nodes, simulation.env.now / NS
        if kind == "gone":
            self._participation.lost(now_s, text)
            self._refuse(simulation.experiment.cluster.node(text), reason)
            if self._left and not self._training:
                self._succeed()
        elif kind == "stopped":
            self._succeed()
        elif kind == "takes_part":
            self._participation.takes_part(now_s, nodes[node].name)
        elif kind == "ends":
            server = simulation.experiment.cluster.party_of(nodes[node]).server
            self._ended_with.setdefault(server.id, []).append(nodes[node])
            self.kill(nodes[node], reason)
        elif partial is not None:
            shard, workers, above, late, dropped = partial
            tensor = simulation.tensor_name(key)
            absent = tuple(nodes[int(each)].name for each in values)
            tardy = tuple(f"{nodes[who].name}:{meant}" for who, meant in late)
            name = nodes[node].name
            about = (name, tensor, shard, number, above, workers, absent)
            row = Partial(now_s, *about, *divided(tardy, dropped))
            self._participation.partial(row)
        else:
            return False
        return True
