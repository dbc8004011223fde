"""The world: what programs see of a running simulation, and what they may do to it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Mapping
from typing import Any

import simpy

from geomx.events import NodeActed, StepEnded, TransferEnded, ValueArrived
from geomx.network.schedules import SHORTEST_S
from geomx.scenario.places import Edge
from geomx.sim.clock import Clock
from geomx.sim.numbers import function, number
from geomx.sim.protocols import IterationRow, Running
from geomx.sim.world.calling import called
from geomx.sim.world.compute import Compute
from geomx.sim.world.events import WorldEvents
from geomx.sim.world.nodes import WorldNodes, key_of
from geomx.sim.world.transfers import Transfer
from geomx.sim.world.wan import Wan
from geomx.training.pace import NS

Process = Generator[simpy.Event, Any, Any]


class World:
    """A running simulation, for SimPy processes that act on it (docs/world.md).

    Args:
        simulation: The simulation, built.
        ids: Numbers of the edges in its fabric.

    Attributes:
        env: SimPy's environment. Its clock counts whole nanoseconds: `seconds` converts, and delays
            are rounded up.
        wan: The network: a networkx graph that can be read and changed, and that carries transfers.
        nodes: The nodes by name: their state, and `kill`, `pause` and `restart`.
        compute: How long steps take.
        events: Typed events: `subscribe`, and `next` to wait for one.
        random: Random numbers from the experiment's seed.
        experiment: What is run: cluster, workload and options; it must not be changed.
    """

    def __init__(self, simulation: Running, ids: Mapping[Edge, int]) -> None:
        self._simulation = simulation
        self.experiment = simulation.experiment
        self.env: Clock = simulation.env
        self.wan = Wan.of(simulation, ids)
        self.nodes = WorldNodes(simulation, self.wan)
        self.compute = Compute(simulation)
        self.events = WorldEvents(self.env, self._want, simulation.experiment.selection)
        self.random = random.Random(f"{simulation.experiment.seed}/world")
        self._conditions: list[tuple[Callable[[], Any], simpy.Event]] = []

    @property
    def now_s(self) -> float:
        """The present time in seconds of the run."""
        return self.env.now / NS

    def seconds(self, seconds: float) -> int:
        """Convert seconds to nanoseconds of SimPy's clock: ``env.timeout(world.seconds(2.5))``.

        Args:
            seconds: A number of seconds, 0 or more.

        Returns:
            The nanoseconds, rounded to a whole number; 2^63 for an infinite time, which never ends.

        Raises:
            ValueError: It is negative or not a number.
        """
        seconds = number("seconds", seconds, lambda value: value >= 0, "0 or more")
        return round(seconds * NS) if seconds < 2**63 / NS else 2**63

    def process(self, generator: Process) -> simpy.Process:
        """Start a SimPy process.

        Args:
            generator: A generator, as ``neighbour(world)`` of a function that yields events.

        Returns:
            The process, an event that triggers when it ends.

        Raises:
            TypeError: It is a function that was not called, or no generator.
        """
        if not isinstance(generator, Generator):
            hint = "call the function" if callable(generator) else "its function must yield events"
            raise TypeError(f"world.process needs a generator and not {generator!r}: {hint}")
        return self.env.process(generator)

    def when(
        self, predicate: Callable[[], Any], every_s: float | None = None
    ) -> simpy.Event | simpy.Process:
        """Return an event that triggers as soon as a condition holds; its value is the condition's.

        The condition is evaluated now, and at every instant at which a step ends, a new value
        arrives at a worker, or a SimPy event happens. Figures of the WAN also change in between:
        for these, choose `every_s`.

        Args:
            predicate: A function without arguments.
            every_s: Evaluate it periodically instead, every so many seconds: 0.001 or more.

        Returns:
            The event.

        Raises:
            ValueError: `every_s` is out of range.
        """
        function("predicate", predicate, "without arguments")
        if every_s is not None:
            number("every_s", every_s, lambda value: value >= SHORTEST_S, f"{SHORTEST_S:g} or more")
            return self.process(self._poll(predicate, self.seconds(every_s)))
        event = self.env.event()
        if value := self._holds(predicate):
            event.succeed(value)
        else:
            self._conditions.append((predicate, event))
            self._simulation.fabric.report_values(True)
        return event

    def _holds(self, predicate: Callable[[], Any]) -> Any:
        return called(self.experiment.selection, "condition of world.when", predicate)

    def _poll(self, predicate: Callable[[], Any], every_ns: int) -> Process:
        while not (value := self._holds(predicate)):
            yield self.env.timeout(every_ns)
        return value

    def round(self, tensor: str | None = None) -> int:
        """Return the last round whose values all training workers have received.

        Workers that are absent, lost or done do not count, nor do those that return before they
        have the current values.

        Args:
            tensor: Name of the tensor; None: all of them.

        Returns:
            The round, counted by the workers' synchronisations; 0 before the first one.

        Raises:
            ValueError: There is no such tensor.
        """
        simulation = self._simulation
        every = range(len(self.experiment.workload.tensors))
        keys = every if tensor is None else [key_of(simulation, tensor)]
        workers = [worker for worker in simulation.workers.values() if worker.trains]
        rounds = (worker.round(key) for worker in workers for key in keys)
        return max(0, min(rounds, default=0))

    # ---- for the simulation ----

    def look(self) -> None:
        """Trigger the events of conditions that hold now."""
        if not self._conditions:
            return
        waiting = []
        for predicate, event in self._conditions:
            if value := self._holds(predicate):
                event.succeed(value)
            else:
                waiting.append((predicate, event))
        if len(waiting) < len(self._conditions):
            self._conditions[:] = waiting
            self._report()

    def _want(self, kind: type) -> None:
        if kind is ValueArrived:
            self._simulation.fabric.report_values(True)

    def _report(self) -> None:
        wanted = (
            self._conditions or self.events.observed(ValueArrived) or self._simulation.needs_values
        )
        self._simulation.fabric.report_values(bool(wanted))

    def step_ended(self, row: IterationRow, loss: float = math.nan) -> None:
        """Publish the end of a worker's step.

        Args:
            row: Worker, number and times of the step.
            loss: Its training loss.
        """
        if self.events.observed(StepEnded):
            self.events.publish(StepEnded(row.end_ns / NS, row.worker.spec.name, row.step, loss))

    def value_arrived(self, node: int, key: int, number: int) -> None:
        """Publish the arrival of a value at a worker.

        Args:
            node: Id of the worker.
            key: Number of the tensor.
            number: Its round.
        """
        if self.events.observed(ValueArrived):
            tensor = self._simulation.tensor_name(key)
            name = self.experiment.cluster.nodes[node].name
            self.events.publish(ValueArrived(self.now_s, name, tensor, number))

    def acted(self, node: int, what: str) -> None:
        """Publish that something is done to a node.

        Args:
            node: Its id.
            what: As of `NodeActed`.
        """
        if self.events.observed(NodeActed):
            name = self.experiment.cluster.nodes[node].name
            self.events.publish(NodeActed(self.now_s, name, what))

    def transferred(self, transfer: Transfer) -> None:
        """Publish the end of a transfer.

        Args:
            transfer: The transfer.
        """
        if self.events.observed(TransferEnded):
            self.events.publish(
                TransferEnded(
                    self.now_s, transfer.source, transfer.target, transfer.sent_bytes,
                    transfer.started_s, transfer.cancelled,
                )
            )  # fmt: skip
