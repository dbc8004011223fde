"""A simulated worker: a SimPy process that decides what each step is about.

The loop over layers, with its pushes and waits, is native (runtime_cpp/fabric/trainer.h) and runs
inside the fabric. This process gives it two orders per step, forward and backward, and between them
has the gradients made and asks the sync policy what to do with them.

With numerics the gradients are real: the shared model computes this worker's batch from this
worker's parameters at the moment when the last of them is in, and time stays virtual.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy
from numpy.typing import NDArray

from geomx import _core
from geomx.cluster import NodeSpec
from geomx.events import Event
from geomx.plugin.parts import as_vector, optimizer_text
from geomx.sim.repetition import IterationRow

if TYPE_CHECKING:
    from geomx.sim.simulation import Simulation

NS = 1_000_000_000
Vector = NDArray[np.float32]


class SimulatedWorker:
    """One worker of the cluster.

    Args:
        simulation: The world it lives in.
        spec: Which node it is.
        rank: Its position among all workers; decides its slice of the data.
    """

    def __init__(self, simulation: Simulation, spec: NodeSpec, rank: int) -> None:
        self.simulation = simulation
        self.spec = spec
        self.rank = rank
        self.step = -1  # the current one
        self.ended = False
        self.compute_s = simulation.pace(spec.speed).seconds
        self.order: simpy.Event | None = None
        self.parameters: list[Vector] = []
        self.optimizers: list[_core.Optimizer] = []
        experiment = simulation.experiment
        self.sync = simulation.policy.worker(experiment.cluster, spec, experiment.iterations)
        local = simulation.local_optimizer
        if local is not None and simulation.model is not None:
            self.optimizers = [
                _core.Optimizer(optimizer_text(local), key, simulation.optimizer_factories)
                for key in range(len(experiment.workload.tensors))
            ]
        simulation.fabric.train(spec.id, simulation.plan, simulation.pace(spec.speed).native)

    # ---- what the fabric tells ----

    def on_done(self) -> None:
        """The order that was given last is carried out."""
        assert self.order is not None
        self.order.succeed()

    def on_reply(self, values: list[float]) -> None:
        """The coordinator has answered."""
        self.sync.reply(values)

    def on_value(self, key: int, round_number: int) -> None:
        """A new value of `key` is in, and somebody observes."""
        simulation = self.simulation
        event = Event(simulation.env.now / NS, self.spec.name, "value", key, round_number)
        simulation.events.publish([event])

    # ---- the training loop ----

    def run(self) -> Generator[simpy.Event, Any, None]:
        """The process."""
        simulation = self.simulation
        env, fabric, policy = simulation.env, simulation.fabric, simulation.policy
        if self.rank == 0:
            self._command()
        fabric.start(self.spec.id, self.rank == 0, simulation.initial, env.now)
        yield self._carried_out()
        synchronised = True
        ended: float | None = None
        last = False
        while not last:
            self.step += 1
            last = self.sync.finished(self.step)
            start = env.now
            fabric.forward(self.spec.id, start)
            yield self._carried_out()
            if synchronised:
                self._take_values()
            if ended is not None:
                simulation.evaluate(self, self.step - 1, ended, final=False)
            loss, gradients = self._compute(self.step)
            self._update(gradients)
            synchronised = last or self.sync.after_step(self.step)
            fabric.backward(
                self.spec.id,
                policy.exchange if synchronised else "nothing",
                self._pushed(gradients) if synchronised else None,
                loss,
                last,
                self._report() if synchronised else None,
                env.now,
            )
            yield self._carried_out()
            ended = env.now / NS
            simulation.iteration(IterationRow(self, self.step, start, env.now), loss)
        self._take_values()
        if ended is not None:
            simulation.evaluate(self, self.step, ended, final=True)
        self.ended = True

    def _carried_out(self) -> simpy.Event:
        self.order = self.simulation.env.event()
        return self.order

    def _command(self) -> None:
        simulation = self.simulation
        optimizer = simulation.global_optimizer
        if optimizer is not None:
            text = "optimizer\n" + optimizer_text(optimizer)
            simulation.fabric.command(self.spec.id, text, simulation.env.now)

    def _report(self) -> tuple[int, int, list[float]] | None:
        """What the coordinator is told, if there is one: its host, its number, figures."""
        if self.sync.coordinator is None:
            return None
        host = self.simulation.coordinators[self.sync.coordinator].host
        return host.id, self.sync.coordinator, self.sync.report(self.compute_s)

    # ---- numbers ----

    def _take_values(self) -> None:
        simulation = self.simulation
        if simulation.model is not None:
            keys = range(len(simulation.experiment.workload.tensors))
            self.parameters = [simulation.fabric.value(self.spec.id, key) for key in keys]

    def _compute(self, step: int) -> tuple[float, list[Vector]]:
        model = self.simulation.model
        if model is None:
            return float("nan"), []
        shapes = self.simulation.experiment.workload.tensors
        for key, tensor in enumerate(shapes):
            model.set(key, self.parameters[key].reshape(tensor.shape))
        loss = model.step(step, self.rank, len(self.simulation.experiment.cluster.workers))
        return loss, [as_vector(model.get(model.gradients, key)) for key in range(len(shapes))]

    def _update(self, gradients: list[Vector]) -> None:
        for key, optimizer in enumerate(self.optimizers):
            optimizer.update(self.parameters[key], gradients[key])

    def _pushed(self, gradients: list[Vector]) -> list[Vector] | None:
        """What this worker contributes, by key; None without numerics."""
        simulation = self.simulation
        if simulation.model is None:
            return None
        values = gradients if simulation.policy.exchange == "gradients" else self.parameters
        scale = simulation.scale(self.spec)
        return values if scale == 1.0 else [value * np.float32(scale) for value in values]
