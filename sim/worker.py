"""A simulated worker: a SimPy process that computes layer by layer and talks through the fabric.

Forward visits the layers in order, each waiting for its parameters; backward visits them in
reverse, and a layer's gradients are pushed the moment they exist. That is all it takes for
communication and computation to overlap exactly as far as the plugins let them.

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
from geomx.plugin import as_vector, optimizer_text

if TYPE_CHECKING:
    from geomx.sim.simulation import Simulation

NS = 1_000_000_000
REPLY = -1
"""Among the keys that are missing: the coordinator's answer."""
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
        workload = simulation.experiment.workload
        self.forward_ns = [round(layer.forward_s / spec.speed * NS) for layer in workload.layers]
        self.backward_ns = [round(layer.backward_s / spec.speed * NS) for layer in workload.layers]
        self.keys_of: list[list[int]] = [[] for _ in workload.layers]
        for key, tensor in enumerate(workload.tensors):
            self.keys_of[tensor.layer].append(key)
        self.missing: set[int] = set()
        self.arrival: simpy.Event | None = None
        self.parameters: list[Vector] = []
        self.optimizers: list[_core.Optimizer] = []
        self.sync = simulation.policy.worker(
            simulation.experiment.cluster, spec, simulation.experiment.iterations
        )
        local = simulation.policy.local_optimizer(workload.optimizer)
        if local is not None and simulation.model is not None:
            self.optimizers = [
                _core.Optimizer(optimizer_text(local), key) for key in range(len(workload.tensors))
            ]

    # ---- values ----

    def on_value(self, key: int, round_number: int) -> None:
        """The fabric has a new value of `key` for this worker."""
        self.missing.discard(key)
        if self.simulation.model is not None:
            self.parameters[key] = self.simulation.fabric.value(self.spec.id, key)
        if self.simulation.events.observed:
            self._publish("value", key, round_number)
        if self.arrival is not None:
            self.arrival.succeed()
            self.arrival = None

    def on_reply(self, values: list[float]) -> None:
        """The coordinator has answered."""
        self.sync.reply(values)
        self.missing.discard(REPLY)
        if self.arrival is not None:
            self.arrival.succeed()
            self.arrival = None

    def _report(self, step_s: float) -> None:
        assert self.sync.coordinator is not None
        simulation = self.simulation
        host = simulation.coordinators[self.sync.coordinator].host
        self.missing.add(REPLY)
        simulation.fabric.report(
            self.spec.id,
            host.id,
            self.sync.coordinator,
            self.sync.report(step_s),
            simulation.env.now,
        )

    def _wait_for(self, keys: list[int]) -> Generator[simpy.Event, Any, None]:
        while not self.missing.isdisjoint(keys):
            self.arrival = self.simulation.env.event()
            yield self.arrival

    def _push(self, key: int, value: Vector | None, loss: float, last: bool) -> None:
        simulation = self.simulation
        self.missing.add(key)
        if value is not None:
            value = as_vector(value)
            if simulation.scale(self.spec) != 1.0:
                value = value * np.float32(simulation.scale(self.spec))
        simulation.fabric.push(self.spec.id, key, value, loss, last, simulation.env.now)

    # ---- the training loop ----

    def run(self) -> Generator[simpy.Event, Any, None]:
        """The process."""
        simulation = self.simulation
        env, experiment, policy = simulation.env, simulation.experiment, simulation.policy
        layers = range(len(self.forward_ns))
        compute_s = (sum(self.forward_ns) + sum(self.backward_ns)) / NS
        yield from self._start()
        ended: float | None = None
        step = -1
        last = False
        while not last:
            step += 1
            last = self.sync.finished(step)
            start = env.now
            yield from self._forward()
            if ended is not None:
                simulation.evaluate(self, step - 1, ended, final=False)
            loss, gradients = self._compute(step)
            sync = last or self.sync.after_step(step)
            early = sync and policy.exchange == "gradients"
            began_backward = env.now
            pending_ns = 0
            for layer in reversed(layers):
                pending_ns += self.backward_ns[layer]
                if early and self.keys_of[layer]:
                    yield env.timeout(pending_ns)
                    pending_ns = 0
                    for key in reversed(self.keys_of[layer]):
                        self._push(key, gradients[key] if gradients else None, loss, last)
            if pending_ns:
                yield env.timeout(pending_ns)
            simulation.span(self.spec, "backward", "compute", began_backward, env.now)
            self._update(gradients)
            if sync and policy.exchange == "parameters":
                for key in reversed(range(len(experiment.workload.tensors))):
                    self._push(key, self.parameters[key] if gradients else None, loss, last)
            waited_from = env.now
            if sync and self.sync.coordinator is not None:
                self._report(compute_s)
                yield from self._wait_for([REPLY])
            yield from self._wait_for(self.keys_of[0] if not last else list(self.missing))
            if env.now > waited_from:
                simulation.span(self.spec, "wait", "wait", waited_from, env.now)
            ended = env.now / NS
            simulation.iteration(self, step, start / NS, compute_s, ended, loss)
        if ended is not None:
            simulation.evaluate(self, step, ended, final=True)

    def _start(self) -> Generator[simpy.Event, Any, None]:
        simulation = self.simulation
        workload = simulation.experiment.workload
        for key, (tensor, shards) in enumerate(
            zip(workload.tensors, simulation.shards, strict=True)
        ):
            simulation.fabric.declare(self.spec.id, key, tensor.elements, shards)
        keys = list(range(len(workload.tensors)))
        self.missing.update(keys)
        self.parameters = [np.empty(0, np.float32)] * len(keys)
        if self.rank == 0:
            optimizer = simulation.policy.global_optimizer(
                workload.optimizer, len(simulation.experiment.cluster.workers)
            )
            if optimizer is not None:
                text = "optimizer\n" + optimizer_text(optimizer)
                simulation.fabric.command(self.spec.id, text, simulation.env.now)
            for key in keys:
                initial = simulation.initial[key] if simulation.model is not None else None
                simulation.fabric.init(self.spec.id, key, initial, simulation.env.now)
        for key in keys:
            simulation.fabric.request(self.spec.id, key, simulation.env.now)
        yield from self._wait_for(keys)

    def _forward(self) -> Generator[simpy.Event, Any, None]:
        env, simulation = self.simulation.env, self.simulation
        began, pending_ns = env.now, 0
        for layer, keys in enumerate(self.keys_of):
            if not self.missing.isdisjoint(keys):
                if pending_ns:
                    yield env.timeout(pending_ns)
                    pending_ns = 0
                if not self.missing.isdisjoint(keys):
                    simulation.span(self.spec, "forward", "compute", began, env.now)
                    waited_from = env.now
                    yield from self._wait_for(keys)
                    simulation.span(self.spec, "wait", "wait", waited_from, env.now)
                    began = env.now
            pending_ns += self.forward_ns[layer]
        if pending_ns:
            yield env.timeout(pending_ns)
        simulation.span(self.spec, "forward", "compute", began, env.now)

    # ---- numbers ----

    def _compute(self, step: int) -> tuple[float, list[Vector] | None]:
        model = self.simulation.model
        if model is None:
            return float("nan"), None
        shapes = self.simulation.experiment.workload.tensors
        for key, tensor in enumerate(shapes):
            model.set(key, self.parameters[key].reshape(tensor.shape))
        loss = model.step(step, self.rank, len(self.simulation.experiment.cluster.workers))
        return loss, [as_vector(model.get(model.gradients, key)) for key in range(len(shapes))]

    def _update(self, gradients: list[Vector] | None) -> None:
        if gradients is None:
            return
        for key, optimizer in enumerate(self.optimizers):
            optimizer.update(self.parameters[key], gradients[key])

    def _publish(self, kind: str, key: int, number: int) -> None:
        simulation = self.simulation
        event = Event(simulation.env.now / NS, self.spec.name, kind, key, number)
        simulation.events.publish([event])
