"""A live worker: drives the training loop (`geomx.training`) in real time.

Its passes over the layers follow the rules of the simulated worker (`_core.PassClock`), with
measured arrival times of values. Computing takes at least the workload's layer times divided by the
worker's speed: a gradient is sent when it exists and is due by these times. Because arrival times
are measured, the pass clock cannot drift from the real one. With ``runtime.pace=false``, computing
is not slowed down.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx import _core
from geomx.errors import GeomxError
from geomx.events import Event, Events
from geomx.experiment import wiring
from geomx.experiment.native_parts import optimizers, training_optimizers
from geomx.experiment.rounds import close_early
from geomx.live.checkpoint import starting
from geomx.live.disturbances import WorkerEvents
from geomx.live.exchange import received
from geomx.live.exchanges import exchange_of
from geomx.live.journal import Notes, Span
from geomx.live.member import Member
from geomx.live.step_notes import Past, StepNotes
from geomx.plugin.parts import as_vector, optimizer_text
from geomx.plugin.workloads import model_of
from geomx.training.flights import Answer, Flights
from geomx.training.pace import NS, Pace
from geomx.training.passes import Backward, Forward, evaluates, passes
from geomx.training.step_times import StepTimes
from geomx.training.steps import Steps, computing_s


class LiveWorker:
    """The worker of this process.

    Args:
        member: The membership of its node: joined, not yet wired.
        notes: Receives the measurements.

    Raises:
        ConfigError: The workload cannot be built on this machine.
    """

    def __init__(self, member: Member, notes: Notes) -> None:
        spec = member.spec
        if spec.workload is None:
            raise GeomxError("the run is of a script: give it after --")
        self._member = member
        member.on_wait = notes.waits
        self._notes = notes
        self._rank = spec.cluster.workers.index(member.node)
        self._workload = workload = member.registry.workload(*spec.workload)
        self._model = model_of(workload, spec.seed) if spec.numerics else None
        self._exchange = exchange_of(member.loop, self._model.parameters if self._model else ())
        self._keys = range(len(workload.tensors))
        times_s = spec.times_s if spec.runtime.pace else [(0.0, 0.0)] * len(workload.layers)
        self._pace = Pace.of(times_s, member.node.speed)
        layer_of_key = [tensor.layer for tensor in workload.tensors]
        self._clock = _core.PassClock(layer_of_key, self._pace.native)
        self._happens = WorkerEvents(self._clock, spec.event_schedule, member)
        self._times = StepTimes.of(spec.cluster, spec.seed, member.node)
        self._steps = Steps(member.policy, spec.cluster, member.node, spec.iterations)
        self._steps.train([tensor.elements for tensor in workload.tensors])
        self._early = close_early(spec.cluster, member.selection, spec.faults)
        member.on_leave = self._steps.leave
        self._parameters: Sequence[Any] = (
            [np.zeros(tensor.shape, np.float32) for tensor in workload.tensors]
            if self._model is None
            else self._model.parameters
        )
        self._gradients = self._parameters if self._model is None else self._model.gradients
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
        self._rounds = [0 for _ in self._keys]  # latest round of each key
        self._pulled = False  # whether the values of these rounds were requested
        self._needed: Sequence[int] = self._keys  # keys with values that the current step needs
        self._start_ns = 0  # of the current step
        self._computed_ns = 0  # end of the forward pass; without pacing, of all computing
        self._announced = [-1 for _ in self._keys]  # latest rounds that observers were told of
        self._compute_s = self._loss = math.nan
        self._spans: list[Span] = []
        self._snapshots: list[tuple[int, float, list[Any]]] = []
        self._progress = StepNotes(member.loop, None)
        self._warm_up()

    @property
    def recordable(self) -> bool:
        """Whether a journal can record this worker: its tensors are not on a device."""
        return self._workload.device == "cpu"

    @property
    def batch_size(self) -> int:
        """Samples of a local step."""
        return self._workload.batch_size

    # ---- the training loop ----

    def run(self) -> None:
        """Train; return when the last values have arrived.

        Raises:
            NodeLost: A node was lost.
        """
        self._start_ns = self._begin()
        for order in passes(self._steps):
            if self._progress.repeats(order, self._steps.step):
                continue
            if isinstance(order, Forward):
                self._forward(order)
            else:
                self._backward(order)
        self._exchange.settle(self._parameters)

    def _forward(self, order: Forward) -> None:
        member = self._member
        now_ns = _ns(member.now())
        if member.spec.runtime.pace:
            time.sleep(max(0, self._start_ns - now_ns) / NS)
        else:
            self._start_ns = max(self._start_ns, now_ns)
        self._pull()
        flights = self._steps.flights
        if flights is not None:
            self._needed = [*self._needed, *order.needs]
            self._apply(flights, flights.take_early())
        self._loss = self._step(self._steps.step)
        self._clock.stretch(self._times.at(self._steps.step))
        self._happens.tell(self._start_ns)
        slow = self._clock.times(self._start_ns)
        self._clock.forward(self._start_ns, list(order.needs))
        self._computed_ns = self._waited()
        self._announce()
        if flights is not None:
            self._catch_up(self._needed)
        if self._progress.due(max(self._rounds)):
            state = [optimizer.save() for optimizer in self._optimizers]
            self._progress.note(self._steps.step, max(self._rounds), state)
        paced = member.spec.runtime.pace
        order.compute_s = self._compute_s = self._pace.seconds * slow if paced else self._measured()
        for key, optimizer in enumerate(self._optimizers):
            self._update(key, optimizer)

    def _backward(self, order: Backward) -> None:
        reports = order.report is not None
        pushes = self._clock.backward(
            order.push, order.last, reports, self._computed_ns, order.part
        )
        self._member.loop.set_made(self._steps.made)
        self._push(order, pushes)
        reply_ns = -1
        if order.report is not None:
            self._exchange.flush()
            order.answer = self._member.consult(order.report, self._clock.now_ns / NS)
            reply_ns = _ns(self._member.now())
        end_ns = self._waited(reply_ns)
        if order.part is None:
            self._catch_up(self._keys)
        else:
            self._needed = order.part[1]
        self._progress.finished(self._compute_s, order.answer)
        self._note(end_ns)
        self._start_ns = end_ns

    def _catch_up(self, keys: Sequence[int]) -> None:
        """Note the rounds of `keys` that have closed without this worker's party."""
        if self._early:
            reached, before = self._member.loop.reached, self._member.spec.rounds_before
            self._steps.reach([(key, before + reached(key)) for key in keys])

    def _note(self, end_ns: int) -> None:
        """Note the step, and keep a copy of the model if it is to be evaluated."""
        step, end_s = self._steps.step, end_ns / NS
        loss = None if math.isnan(self._loss) else self._loss
        spans = [*self._spans, *self._take_spans()]
        start_s, self._spans = self._start_ns / NS, []
        self._notes.iteration(step, start_s, self._compute_s, end_s, loss=loss, spans=spans)
        self._publish("iteration", -1, step, end_s)
        if not self._steps.last:
            self._happens.begin(step + 1, end_ns)
        if self._due():
            self._pull()
            kept = [self._exchange.copy(array) for array in self._parameters]
            self._snapshots.append((step, end_s, kept))
            if self._member.journal is not None and self._model is not None:
                values = [self._model.get(kept, key) for key in self._keys]
                self._progress.keep(step, end_s, values)

    def evaluate(self) -> dict[str, NDArray[np.float32]]:
        """Evaluate the models that were kept during training, after it has ended.

        Returns:
            The final parameters by name; empty if this worker evaluates none.
        """
        parameters: dict[str, NDArray[np.float32]] = {}
        if self._model is None:
            return parameters
        kept = self._progress.kept()
        for step, end_s, arrays in self._snapshots:
            kept.append((step, end_s, [self._model.get(arrays, key) for key in self._keys]))
        for step, end_s, values in kept:
            accuracy, loss = self._model.evaluate(values)
            self._notes.evaluation(end_s, step, accuracy, loss)
            names = (tensor.name for tensor in self._workload.tensors)
            parameters = dict(zip(names, values, strict=True))
        return parameters

    # ---- parts of the loop ----

    def _warm_up(self) -> None:
        """Compute a step and discard it, so that the framework is initialised before training."""
        if self._model is not None:
            self._step(0)
            for key in self._keys:
                self._model.get(self._model.gradients, key)

    def _begin(self) -> int:
        """Declare all tensors, and begin or resume training; return the time in ns."""
        member, workload = self._member, self._workload
        shards = wiring.shards(member.spec.cluster, member.selection, workload.tensors)
        for key, tensor in enumerate(workload.tensors):
            member.loop.declare(key, tensor.elements, shards[key], f"key {tensor.name!r}")
            self._exchange.declare(key, tensor.shape)
        if member.spec.rounds_before and not member.late:
            self._steps.resume(member.spec.rounds_before)
        path = None if member.journal is None else Path(member.journal.path)
        first, synced = self._steps.step + 1, member.spec.faults.log_sync
        self._progress = StepNotes(member.loop, path, synced, first)
        past = self._progress.past()
        return self._initialise(shards) if past is None else self._resume(past)

    def _resume(self, past: Past) -> int:
        """Continue from the state of this worker's killed process; return the time in ns."""
        for key, tensor in enumerate(self._workload.tensors):
            self._exchange.restore(key, past.round)
            if self._model is not None:
                self._model.set(key, past.values[key].reshape(tensor.shape))
        for key, (optimizer, state) in enumerate(zip(self._optimizers, past.state, strict=True)):
            optimizer.load(state, self._workload.tensors[key].elements)
        self._rounds, self._pulled = [past.round for _ in self._keys], True
        self._waited()
        return _ns(self._member.now())

    def _initialise(self, shards: Sequence[Sequence[Any]]) -> int:
        """Distribute the first worker's parameters to all; return their arrival time in ns."""
        member, loop = self._member, self._member.loop
        start = starting(member.spec) if self._rank == 0 else None
        told = "" if self._global_optimizer is None else optimizer_text(self._global_optimizer)
        if self._rank == 0:  # if restarted, this has an effect only if its predecessor gave none
            if told:
                loop.run_optimizer(told, member.late)
            for key in self._keys:
                value = self._parameters[key]
                if self._model is not None:
                    value = self._model.get(self._model.parameters, key)
                loop.init(key, as_vector(value) if start is None else start.values[key])
        for key in self._keys:
            loop.request(key)
        if member.late:
            self._go_on()
        began_ns = self._waited()
        if start is not None and not any(self._rounds):  # no process has trained
            cuts = {k: [each[1] for each in shards[k]] for k in self._keys}
            start.load_states(member, told, cuts)
        return began_ns

    def _go_on(self) -> None:
        """Replace a worker that was lost, at the current step of the others."""
        for key in self._keys:
            self._exchange.wait(key)
        self._rounds = [self._exchange.go_on(key) for key in self._keys]
        self._steps.resume(self._member.spec.rounds_before + max(self._rounds))

    def _waited(self, reply_ns: int = -1) -> int:
        """Wait for the values that the current pass needs.

        Args:
            reply_ns: Arrival time of a coordinator's answer; -1: there was none.

        Returns:
            The time at which the wait ended, in ns.
        """
        keys = self._clock.awaited()
        arrivals = [(_ns(self._exchange.wait(key)), key, self._rounds[key]) for key in keys]
        return self._clock.arrived(arrivals, reply_ns)

    def _pull(self) -> None:
        """Request new values into the parameters, if there are any, in forward order."""
        if self._model is not None and not self._pulled:
            for key in self._keys:
                self._exchange.pull(key, [self._parameters[key]], priority=-key)
        self._pulled = True
        if self._steps.flights is not None:
            self._apply(self._steps.flights, self._steps.flights.take_due())

    def _apply(self, flights: Flights, answers: Sequence[Answer]) -> None:
        """Wait for answers, and apply them."""
        if self._model is None:
            return
        for answer in answers:
            key, elements = answer.key, self._workload.tensors[answer.key].elements
            if answer.age is None:
                self._exchange.pull(key, [self._parameters[key]], priority=-key)
                continue
            value = received(self._exchange, self._member.loop, key, elements)
            local = self._model.get(self._model.parameters, key)
            merged = flights.merge(answer, as_vector(local), value)
            self._model.set(key, merged.reshape(local.shape))

    def _announce(self) -> None:
        """Publish new values, all of which have arrived, to observers."""
        for key in self._needed if self._events.observed else ():
            if self._announced[key] < self._rounds[key]:
                self._announced[key] = self._rounds[key]
                self._publish("value", key, self._rounds[key], self._exchange.wait(key))

    def _step(self, step: int) -> float:
        if self._model is None:
            return math.nan
        return self._model.step(step, self._rank, len(self._member.spec.cluster.workers))

    def _measured(self) -> float:
        """Wait until the step is computed; return the seconds it took, without waits for values."""
        self._exchange.settle(self._gradients)
        began_s, ended_s = self._computed_ns / NS, self._member.now()
        compute_s = computing_s(self._start_ns / NS, began_s, ended_s)
        computing: Span = ("compute", "compute", ended_s - compute_s, compute_s, {})
        self._spans += [*self._take_spans(), computing]
        self._computed_ns = _ns(ended_s)
        return compute_s

    def _update(self, key: int, optimizer: _core.Optimizer) -> None:
        """Apply this worker's own optimizer to a tensor."""
        if self._model is None:
            return
        weight = as_vector(self._model.get(self._model.parameters, key))
        gradient = self._model.get(self._model.gradients, key)
        optimizer.update(weight, as_vector(gradient))
        self._model.set(key, weight.reshape(gradient.shape))

    def _take_spans(self) -> list[Span]:
        return [
            (name, "wait" if name == "wait" else "compute", start / NS, (end - start) / NS, about)
            for name, about, start, end in self._clock.take_spans()
        ]

    def _push(self, order: Backward, pushes: Sequence[tuple[int, int]]) -> None:
        """Push keys, each at its time in ns."""
        scale, paced = self._steps.scale, self._member.spec.runtime.pace
        arrays = self._gradients if order.push == "gradients" else self._parameters
        for key, at_ns in pushes:
            array = arrays[key]
            if scale != 1.0 and self._model is not None:
                array = array * scale
            due_s = at_ns / NS if paced else 0.0
            self._exchange.push(
                key, array, priority=-key, loss=self._loss, last=order.last, not_before_s=due_s
            )
            self._rounds[key] += 1
        if pushes and order.part is None:
            self._pulled = False

    def _due(self) -> bool:
        """Return whether this worker evaluates the model after the current step.

        The first worker does. If parties do not wait for each other, it may finish long before the
        others, and with ``faults.on_loss=continue`` it may be lost; in both cases all workers
        evaluate the last step, and the latest evaluation counts.
        """
        last, spec = self._steps.last, self._member.spec
        if self._model is None or not evaluates(self._steps, spec.evaluate_every):
            return False
        alone = not self._member.policy.together or spec.faults.continues or self._early
        return self._rank == 0 or (last and alone)

    def _publish(self, kind: str, key: int, number: int, time_s: float) -> None:
        if self._events.observed:
            self._events.publish([Event(time_s, self._member.node.name, kind, key, number)])


def _ns(seconds: float) -> int:
    return round(seconds * NS)
