"""A live worker: the training loop of one worker process.

It does what the simulated worker does (`geomx.sim.worker`), in real time. A layer's forward pass
waits for the values of its tensors; backward visits the layers in reverse, and gradients leave as
they appear. Computing takes at least the workload's own layer times over this worker's speed: the
real computation runs underneath, and a gradient leaves when it exists and those times say that it
would. The values' arrival is measured, so this clock cannot drift from the real one. Without it
(``runtime.pace=false``) computing takes the time that it takes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx import _core
from geomx.errors import GeomxError
from geomx.events import Event, Events
from geomx.experiment import wiring
from geomx.experiment.native_parts import optimizers, training_optimizers
from geomx.live.exchange import exchange_of
from geomx.live.journal import Notes, Span
from geomx.live.member import Member
from geomx.live.stepping import Stepping
from geomx.plugin.parts import as_vector, optimizer_text
from geomx.workload import Model


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass on the clock.

    Attributes:
        spans: What it consisted of, waits included.
        released_s: By layer, when its gradients leave.
        end_s: End of the backward pass.
        compute_s: Forward and backward together, without waits.
    """

    spans: list[Span]
    released_s: list[float]
    end_s: float
    compute_s: float


def nominal_pass(
    start_s: float,
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    ready_s: Sequence[float],
    last: Sequence[dict[str, int]],
) -> Pass:
    """The pass of a machine on which every layer takes its nominal time.

    Args:
        start_s: When the first layer can start.
        forward_s: Duration by layer.
        backward_s: Duration by layer.
        ready_s: When the values of each layer's tensors were in.
        last: By layer, key and round of the last of them, for the timeline.
    """
    spans: list[Span] = []
    clock = began = start_s
    for duration_s, ready, value in zip(forward_s, ready_s, last, strict=True):
        if ready > clock:
            if clock > began:
                spans.append(("forward", "compute", began, clock - began, {}))
            spans.append(("wait", "wait", clock, ready - clock, value))
            clock = began = ready
        clock += duration_s
    spans.append(("forward", "compute", began, clock - began, {}))
    began = clock
    released = [0.0] * len(backward_s)
    for layer in reversed(range(len(backward_s))):
        clock += backward_s[layer]
        released[layer] = clock
    spans.append(("backward", "compute", began, clock - began, {}))
    return Pass(spans, released, clock, math.fsum((*forward_s, *backward_s)))


def measured_pass(
    start_s: float, ready_s: Sequence[float], end_s: float, last: Sequence[dict[str, int]]
) -> Pass:
    """A pass that ended at `end_s`, of which only the wait for the last value is known apart."""
    began = max(start_s, *ready_s)
    spans: list[Span] = []
    if began > start_s:
        spans.append(("wait", "wait", start_s, began - start_s, last[ready_s.index(began)]))
    spans.append(("compute", "compute", began, end_s - began, {}))
    return Pass(spans, [0.0] * len(ready_s), end_s, end_s - began)


class LiveWorker:
    """The worker of this process.

    Args:
        member: Its membership; joined, not yet wired.
        notes: Where measurements go.

    Raises:
        ConfigError: The workload cannot be built here.
    """

    def __init__(self, member: Member, notes: Notes) -> None:
        spec = member.spec
        if spec.workload is None:
            raise GeomxError("the scheduler sent no workload")
        self._member = member
        member.on_wait = notes.waits
        self._notes = notes
        self._rank = spec.cluster.workers.index(member.node)
        self._workload = workload = member.registry.workload(*spec.workload)
        self._model: Model | None = workload.model(spec.seed) if spec.numerics else None
        self._exchange = exchange_of(member.loop, self._model.parameters if self._model else ())
        self._keys = range(len(workload.tensors))
        self._keys_of: list[list[int]] = [[] for _ in workload.layers]
        for key, tensor in enumerate(workload.tensors):
            self._keys_of[tensor.layer].append(key)
        speed = member.node.speed
        self._forward_s = [forward_s / speed for forward_s, _ in spec.times_s]
        self._backward_s = [backward_s / speed for _, backward_s in spec.times_s]
        self._stepping = Stepping(member, spec.iterations)
        self._parameters: Sequence[Any] = (
            [np.zeros(tensor.shape, np.float32) for tensor in workload.tensors]
            if self._model is None
            else self._model.parameters
        )
        self._global_optimizer, local = training_optimizers(
            spec.cluster, member.selection, workload.optimizer
        )
        self._optimizers: list[_core.Optimizer] = []
        if local is not None and self._model is not None:
            factories = optimizers(member.selection)
            self._optimizers = [
                _core.Optimizer(optimizer_text(local), key, factories) for key in self._keys
            ]
        self._events = Events()
        member.selection.events(self._events)
        self._round = 0  # of all keys, which are pushed together
        self._pending: list[int] = []  # keys whose new value has not been pulled yet
        self._arriving: list[int] = []  # pulled, but perhaps not there yet
        self._ready_s = [0.0] * len(workload.tensors)
        self._snapshots: list[tuple[int, float, list[Any]]] = []
        self._warm_up()

    # ---- the training loop ----

    def run(self) -> None:
        """Train; returns when the last values are in.

        Raises:
            NodeLost: Somebody was lost.
        """
        spec = self._member.spec
        gradients = self._parameters if self._model is None else self._model.gradients
        start_s = self._initialise()
        before: list[Span] = [("wait", "wait", 0.0, start_s, self._about(self._latest(self._keys)))]
        stepping = self._stepping
        while not stepping.last:
            stepping.begin()
            step, last = stepping.step, stepping.last
            if spec.runtime.pace:
                time.sleep(max(0.0, start_s - self._member.now()))
            else:
                start_s = max(start_s, self._member.now())
            self._pull()
            loss = self._step(step)
            done = self._time_pass(start_s, gradients)
            for key, optimizer in enumerate(self._optimizers):
                self._update(key, optimizer)
            if stepping.synchronises():
                self._push(gradients, done, loss, last)
                self._consult(done)
            first = self._pending if last else set(self._pending).intersection(self._keys_of[0])
            end_s = max([done.end_s, *(self._wait(key) for key in first)])
            if end_s > done.end_s:
                value = self._about(self._latest(first))
                done.spans.append(("wait", "wait", done.end_s, end_s - done.end_s, value))
            known = None if math.isnan(loss) else loss
            self._notes.iteration(
                step, start_s, done.compute_s, end_s, loss=known, spans=[*before, *done.spans]
            )
            before = []
            self._publish("iteration", -1, step, end_s)
            if self._due(step, last):
                self._pull()
                kept = [self._exchange.copy(array) for array in self._parameters]
                self._snapshots.append((step, end_s, kept))
            start_s = end_s
        self._exchange.settle(self._parameters)

    def evaluate(self) -> dict[str, NDArray[np.float32]]:
        """Evaluate what was kept on the way, off the clock.

        Returns:
            The final parameters by name; empty unless they are evaluated here.
        """
        parameters: dict[str, NDArray[np.float32]] = {}
        if self._model is None:
            return parameters
        for step, end_s, arrays in self._snapshots:
            values = [self._model.get(arrays, key) for key in self._keys]
            accuracy, loss = self._model.evaluate(values)
            self._notes.evaluation(end_s, step, accuracy, loss)
            names = (tensor.name for tensor in self._workload.tensors)
            parameters = dict(zip(names, values, strict=True))
        return parameters

    # ---- its parts ----

    def _warm_up(self) -> None:
        """Have the framework prepare what a first step needs before anybody waits for it."""
        if self._model is not None:
            self._step(0)
            for key in self._keys:
                self._model.get(self._model.gradients, key)

    def _initialise(self) -> float:
        """Everybody starts from the first worker's parameters; returns when they were in."""
        member, workload = self._member, self._workload
        spec, loop = member.spec, member.loop
        shards = wiring.shards(spec.cluster, member.selection, workload.tensors)
        for key, tensor in enumerate(workload.tensors):
            loop.declare(key, tensor.elements, shards[key], f"key {tensor.name!r}")
            self._exchange.declare(key, tensor.shape)
        if self._rank == 0:
            if self._global_optimizer is not None:
                loop.command("optimizer\n" + optimizer_text(self._global_optimizer))
            for key in self._keys:
                value = self._parameters[key]
                if self._model is not None:
                    value = self._model.get(self._model.parameters, key)
                loop.init(key, as_vector(value))
        for key in self._keys:
            loop.request(key)
        self._pending = list(self._keys)
        return max(self._wait(key) for key in self._keys)

    def _wait(self, key: int) -> float:
        """When the latest value of `key` was in; waits for it."""
        self._ready_s[key] = self._exchange.wait(key)
        return self._ready_s[key]

    def _pull(self) -> None:
        """Bring what was pushed into the parameters, in the order of the forward pass."""
        if self._model is not None:
            for key in self._pending:
                self._exchange.pull(key, [self._parameters[key]], priority=-key)
        self._arriving += self._pending
        self._pending = []

    def _step(self, step: int) -> float:
        if self._model is None:
            return math.nan
        workers = len(self._member.spec.cluster.workers)
        return self._model.step(step, self._rank, workers)

    def _time_pass(self, start_s: float, gradients: Sequence[Any]) -> Pass:
        """Put the pass that was computed on the clock."""
        for key in self._arriving:
            self._publish("value", key, self._round, self._wait(key))
        self._arriving = []
        ready_s = [max((self._ready_s[key] for key in keys), default=0.0) for keys in self._keys_of]
        last = [self._about(self._latest(keys)) if keys else {} for keys in self._keys_of]
        if self._member.spec.runtime.pace:
            return nominal_pass(start_s, self._forward_s, self._backward_s, ready_s, last)
        self._exchange.settle(gradients)
        return measured_pass(start_s, ready_s, self._member.now(), last)

    def _latest(self, keys: Iterable[int]) -> int:
        """Whose value came last."""
        return max(keys, key=self._ready_s.__getitem__)

    def _about(self, key: int) -> dict[str, int]:
        return {"key": key, "round": self._round}

    def _update(self, key: int, optimizer: _core.Optimizer) -> None:
        """A local step of this worker's own optimizer."""
        if self._model is None:
            return
        weight = self._model.get(self._model.parameters, key)
        gradient = self._model.get(self._model.gradients, key)
        optimizer.update(as_vector(weight), as_vector(gradient))
        self._model.set(key, weight)

    def _push(self, gradients: Sequence[Any], done: Pass, loss: float, last: bool) -> None:
        """Push what the sync policy exchanges, in the order in which it appears."""
        by_layer, scale = self._stepping.gradients, self._stepping.scale
        arrays = gradients if by_layer else self._parameters
        for layer in reversed(range(len(self._keys_of))):
            released_s = done.released_s[layer] if by_layer else done.end_s
            for key in reversed(self._keys_of[layer]):
                array = arrays[key]
                if scale != 1.0 and self._model is not None:
                    array = array * scale
                self._exchange.push(
                    key, array, priority=-key, loss=loss, last=last, not_before_s=released_s
                )
        self._round += 1
        self._pending = list(self._keys)

    def _consult(self, done: Pass) -> None:
        """Report to the sync policy's coordinator, if it has one, and hear its answer."""
        if not self._stepping.consults:
            return
        self._exchange.settle(self._parameters)  # what was pushed has been handed over
        self._stepping.consult(done.compute_s, done.end_s)

    def _due(self, step: int, last: bool) -> bool:
        """Whether the model after `step` is to be evaluated, here.

        That is the first worker's task. But where parties do not wait for each other it may be done
        long before the model is, so that everybody has a look at the end, and the last one counts.
        """
        if self._model is None:
            return False
        due = last or (step + 1) % self._member.spec.evaluate_every == 0
        return due and (self._rank == 0 or (last and not self._member.policy.together))

    def _publish(self, kind: str, key: int, number: int, time_s: float) -> None:
        if self._events.observed:
            self._events.publish([Event(time_s, self._member.node.name, kind, key, number)])
