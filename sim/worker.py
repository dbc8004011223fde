"""A simulated worker: the driver, in virtual time, of the training loop (`geomx.training`).

The passes over the layers, with their pushes and waits, run inside the fabric
(runtime_cpp/fabric/trainer.h). This SimPy process instructs the fabric once per pass, and computes
the gradients in between.

With numerics, gradients are real: the shared model computes this worker's batch from this worker's
parameters as soon as all of them have arrived; time remains virtual.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from geomx import _core
from geomx.cluster import NodeSpec
from geomx.events import Event
from geomx.experiment.rounds import close_early
from geomx.plugin.parts import as_vector, optimizer_text
from geomx.sim.protocols import IterationRow, Notice, Running
from geomx.training.flights import Answer, Flights
from geomx.training.pace import NS
from geomx.training.passes import Backward, Forward, evaluates, passes
from geomx.training.steps import Steps
from geomx.workload import Model

Vector = NDArray[np.float32]


class SimulatedWorker:
    """One worker of the cluster.

    Args:
        simulation: The simulation.
        spec: The node.
        rank: Its position among all workers, which determines its slice of the data.
        returns: Whether it replaces a lost process of this worker, and continues from the current
            values.

    Attributes:
        steps: Its local steps.
        compute_s: Seconds of computing in one step, as the workload says.
        took_s: Seconds of computing in the present step.
        loss: Training loss of the last step; NaN without numerics.
        parameters: Arrays by key; empty without numerics.
        ended: Whether its training has ended.
        trains: Whether it has begun, with current values if it returns, and has not ended.
    """

    def __init__(
        self, simulation: Running, spec: NodeSpec, rank: int, returns: bool = False
    ) -> None:
        self.simulation = simulation
        self.spec = spec
        self.rank = rank
        self.ended = self.trains = False
        self._returns = returns
        pace = simulation.pace(spec.speed)
        self.compute_s = self.took_s = pace.seconds
        self.parameters: list[Vector] = []
        experiment = simulation.experiment
        self.steps = Steps(simulation.policy, experiment.cluster, spec, experiment.iterations)
        self.steps.train([tensor.elements for tensor in experiment.workload.tensors])
        selection, faults = experiment.selection, experiment.faults
        self._early = close_early(experiment.cluster, selection, faults)
        self._optimizers: list[_core.Optimizer] = []
        local = simulation.local_optimizer
        if local is not None and simulation.model is not None:
            self._optimizers = [
                _core.Optimizer(optimizer_text(local), key, simulation.optimizer_factories)
                for key in range(len(experiment.workload.tensors))
            ]
        self._order: simpy.Event | None = None
        self._answers: deque[list[float]] = deque()  # unread replies of the coordinator
        self._pulled = True  # new values have arrived or are in flight
        self._gradients: list[Vector] = []
        self.loss = float("nan")
        self._start_ns = 0
        self._due: tuple[int, float] | None = None  # step and end of the due evaluation
        simulation.fabric.train(spec.id, simulation.plan, pace.native)

    # ---- notices of the fabric ----

    def hear(self, notice: Notice) -> None:
        """Handle a notice: the end of a pass, the coordinator's reply, or a new value."""
        _, kind, key, number, _, _, values, _ = notice
        if kind == "value":
            self._publish(key, number)
        elif kind == "reply":
            self._answers.append(values)
        else:
            assert self._order is not None
            self._order.succeed()

    def round(self, key: int) -> int:
        """See `geomx.sim.protocols.Worker.round`."""
        return 0 if self._order is None else self.simulation.fabric.round(self.spec.id, key)

    def pause(self, for_ns: int) -> None:
        """See `geomx.sim.protocols.Worker.pause`: the fabric pauses its computing."""

    def standing(self) -> str:
        """See `geomx.sim.protocols.Worker.standing`: the fabric knows."""
        return ""

    def _publish(self, key: int, round_number: int) -> None:
        """Publish the arrival of a new value of `key` to observers."""
        simulation = self.simulation
        event = Event(simulation.env.now / NS, self.spec.name, "value", key, round_number)
        simulation.events.publish([event])

    # ---- the training loop ----

    def run(self) -> Generator[simpy.Event, Any, None]:
        """Train; this is the worker's SimPy process."""
        simulation = self.simulation
        master = self.rank == 0  # if it returns, what another process of it has given stands
        self.trains = not self._returns
        if master:
            self._command()
        simulation.fabric.start(self.spec.id, master, simulation.initial, simulation.env.now)
        yield self._carried_out()
        self.trains = True
        if self._returns:
            keys = range(len(simulation.experiment.workload.tensors))
            self.steps.resume(max(simulation.fabric.round(self.spec.id, key) for key in keys))
        for order in passes(self.steps):
            if isinstance(order, Forward):
                self._begin_forward(order)
                yield self._carried_out()
                self._end_forward(order)
            else:
                self._begin_backward(order)
                yield self._carried_out()
                self._end_backward(order)
        self._take_values(final=True)
        self.ended, self.trains = True, False

    def _begin_forward(self, order: Forward) -> None:
        simulation = self.simulation
        self._start_ns = simulation.env.now
        self.took_s = self.compute_s * simulation.begin(self)
        simulation.fabric.forward(self.spec.id, self._start_ns, list(order.needs))

    def _end_forward(self, order: Forward) -> None:
        if self.steps.flights is not None:
            self._catch_up()
        self._take_values(final=False)
        if self.simulation.model is not None:
            self._compute(self.simulation.model)
        order.compute_s = self.took_s

    def _begin_backward(self, order: Backward) -> None:
        simulation, report = self.simulation, order.report
        self._pulled = order.push != "nothing"
        simulation.fabric.backward(
            self.spec.id,
            order.push,
            self._pushed(order) if self._pulled and simulation.model is not None else None,
            self.loss,
            order.last,
            None if report is None else (report.host, report.coordinator, report.values),
            simulation.env.now,
            order.part,
        )

    def _end_backward(self, order: Backward) -> None:
        simulation, now_ns = self.simulation, self.simulation.env.now
        if self.steps.flights is None:
            self._catch_up()
        step = self.steps.step  # includes steps that were counted as repetitions
        simulation.iteration(IterationRow(self, step, self._start_ns, now_ns), self.loss)
        every = simulation.experiment.evaluate_every
        if simulation.model is not None and evaluates(self.steps, every):
            self._due = step, now_ns / NS
        if order.report is not None:
            order.answer = self._answers.popleft()

    def _catch_up(self) -> None:
        """Note the rounds that have closed without this worker's party.

        Where answers are in flight while training goes on, this is done when all have arrived that
        are applied, so that the workers of a party leave out the same steps.
        """
        experiment, fabric = self.simulation.experiment, self.simulation.fabric
        if self._early:
            keys = range(len(experiment.workload.tensors))
            flights = self.steps.flights
            arrived = keys if flights is None else (*flights.due, *flights.early)
            self.steps.reach([(key, fabric.reached(self.spec.id, key)) for key in arrived])

    def _carried_out(self) -> simpy.Event:
        self._order = self.simulation.env.event()
        return self._order

    def _command(self) -> None:
        simulation = self.simulation
        optimizer = simulation.global_optimizer
        if optimizer is not None:
            text = optimizer_text(optimizer)
            now_ns = simulation.env.now
            simulation.fabric.run_optimizer(self.spec.id, text, self._returns, now_ns)

    # ---- numerics ----

    def _take_values(self, final: bool) -> None:
        """Copy received values, and evaluate the model after the last step if that is due."""
        simulation = self.simulation
        flights = self.steps.flights
        new = flights is None and self._pulled
        if simulation.model is not None and (new or not self.parameters):
            keys = range(len(simulation.experiment.workload.tensors))
            self.parameters = [self._value(key) for key in keys]
        if flights is not None:
            self._apply(flights, flights.take_due())
        if self._due is not None:
            simulation.evaluate(self, *self._due, final=final)
            self._due = None
        if flights is not None:
            self._apply(flights, flights.take_early())

    def _apply(self, flights: Flights, answers: Sequence[Answer]) -> None:
        """Apply answers that have arrived."""
        for answer in answers if self.simulation.model is not None else ():
            local, value = self.parameters[answer.key], self._value(answer.key)
            self.parameters[answer.key] = flights.merge(answer, local, value)

    def _value(self, key: int) -> Vector:
        value: Callable[[int, int], Any] = self.simulation.fabric.value
        copy: Vector = value(self.spec.id, key)
        return copy

    def _compute(self, model: Model) -> None:
        """Compute the gradients of this step's batch, and apply the worker's own optimizers."""
        experiment = self.simulation.experiment
        shapes = experiment.workload.tensors
        for key, tensor in enumerate(shapes):
            model.set(key, self.parameters[key].reshape(tensor.shape))
        self.loss = model.step(self.steps.step, self.rank, len(experiment.cluster.workers))
        self._gradients = [as_vector(model.get(model.gradients, key)) for key in range(len(shapes))]
        for key, optimizer in enumerate(self._optimizers):
            optimizer.update(self.parameters[key], self._gradients[key])

    def _pushed(self, order: Backward) -> list[Vector]:
        """Return this worker's contributions, by key; where some are pushed only, these."""
        scale, by_layer = self.steps.scale, self.steps.exchange == "gradients"
        values = self._gradients if by_layer else self.parameters
        if order.part is not None:
            values = [values[key] for key in order.part[0]]
        return values if scale == 1.0 else [value * scale for value in values]
