"""The steps after which a script must exchange parameters, as the job's sync algorithm decides.

    for step in (rhythm := store.rhythm(steps)):
        ...                             # a local step, by this worker's own optimizer
        if rhythm.due():
            ...                         # push parameters * rhythm.scale, and pull them
            rhythm.exchanged()

Such a script works with every sync algorithm under which workers run their own optimizer, and
exchange all parameters at once. With all of them works

    for step in (rhythm := store.rhythm(steps)):
        ...                             # a local step
        rhythm.exchange(values)         # the parameters by key, which it changes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from geomx.errors import GeomxError
from geomx.experiment.rounds import close_early
from geomx.live.exchange import Exchange, received
from geomx.live.member import Member
from geomx.plugin.parts import as_vector
from geomx.training.flights import Answer, Flights
from geomx.training.steps import Steps, checked_count, computing_s

Key = int | str


class Entry(Protocol):
    """A key of a store."""

    @property
    def key(self) -> int:
        """Its number on the wire."""
        ...

    @property
    def name(self) -> Key:
        """The key as the script knows it."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of its tensor."""
        ...

    @property
    def elements(self) -> int:
        """Number of elements of its tensor."""
        ...


class Store(Protocol):
    """The methods of a store that `SyncSteps` uses."""

    member: Member
    exchange: Exchange

    @property
    def keys(self) -> tuple[Key, ...]:
        """The initialised keys, in order."""
        ...

    @property
    def leaving(self) -> bool:
        """Whether this worker must leave the job: its next step is the last."""
        ...

    def entry(self, key: Key) -> Entry:
        """Look a key up."""
        ...

    def check_shape(self, key: Key, shape: Sequence[int]) -> None:
        """Check the shape of an array for a key."""
        ...

    def send(self, entry: Any, value: Any, priority: int) -> None:
        """Contribute to a key."""
        ...

    def fetch(self, entry: Any, out: Sequence[Any], priority: int) -> None:
        """Fill arrays with the value of a key."""
        ...

    def take_arrivals(self) -> float:
        """Return the latest arrival of a pulled value since the last call, in s since the start."""
        ...


class SyncSteps:
    """The steps of one worker.

    Args:
        store: The worker's store.
        steps: Number of local steps; if they are planned by speed, that from which they are.

    Raises:
        ConfigError: `steps` is not a whole number, or less than 1.
    """

    def __init__(self, store: Store, steps: int) -> None:
        steps = checked_count("steps", steps)
        self._store = store
        member = store.member
        member.plans(steps)
        self._steps = Steps(member.policy, member.spec.cluster, member.node, steps)
        self._began_s = self._compute_s = 0.0
        spec = member.spec
        self._early = close_early(spec.cluster, member.selection, spec.faults)
        self._asked = self._told = False  # in the current step: `due`, `exchanged`
        self._trained: tuple[Key, ...] | None = None  # the store's keys, once they are noted
        self._values: Mapping[Key, Any] = {}  # of the last `exchange`
        self.scale = float(self._steps.scale)
        """The factor for pushed parameters that makes their sum a mean."""

    def resume(self, rounds: int) -> None:
        """Continue after `rounds` exchanges, in place of a lost worker."""
        self._take_note()
        self._steps.resume(rounds)

    @property
    def last(self) -> bool:
        """Whether the current step is the last, whose exchange is the last of all keys."""
        return self._steps.last

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers of the worker's steps, from 0.

        Steps that other parties have made while this one was late are left out, if parameters are
        exchanged all at once.

        Raises:
            GeomxError: The script did not call `due` in the last step, or did not call `exchanged`
                although an exchange was due.
        """
        self._take_note()
        while not self._steps.last:
            self._catch_up()
            self._asked = self._told = False
            if self._store.leaving:
                self._steps.leave()
            step = self._steps.begin()
            if self._steps.flights is not None:
                self._apply(self._steps.flights, self._steps.flights.take_early())
            self._store.member.begins()
            self._began_s = self._store.member.now()
            yield step
            self._check_exchanged()

    def due(self) -> bool:
        """Return whether to exchange now; call it in every step, after the update.

        Raises:
            GeomxError: The algorithm does not exchange all parameters at once: see `exchange`; or
                no step has begun.
        """
        if self._steps.flights is not None:
            name, _ = self._store.member.spec.sync
            raise GeomxError(
                f"sync={name} exchanges some parameters at a time, or applies answers later: call "
                "rhythm.exchange(values) in every step instead of rhythm.due()"
            )
        return self._computed()

    def exchange(self, values: Mapping[Key, Any]) -> None:
        """Push the parameters that are due, and apply the answers that are due.

        Call it in every step after the update, instead of `due` and `exchanged`.

        Args:
            values: This worker's parameters by key, all of them; arrays of numpy or MXNet, into
                which answers are written.

        Raises:
            GeomxError: No step has begun, a key is missing among `values`, a value has another
                shape than its key, or the algorithm adds up gradients of several workers.
            NodeLost: An answer will never arrive.
        """
        member = self._store.member
        if self._steps.exchange == "gradients" and len(member.spec.cluster.workers) > 1:
            raise GeomxError(
                f"sync={member.spec.sync[0]} adds up gradients, and rhythm.exchange(values) "
                "exchanges parameters: choose a sync algorithm for them, or push gradients "
                "(docs/moving.md)"
            )
        flights, due = self._steps.flights, self._computed()
        self._check_complete(values)
        self._values = values
        sent = None if flights is None else set(map(self._name, flights.sent))
        for name, array in values.items() if due else ():
            if sent is None or name in sent:
                entry = self._store.entry(name)
                self._store.send(entry, scaled(array, self.scale), -entry.key)
        if flights is not None:
            self._apply(flights, flights.take_due())
        elif due:
            for name, array in values.items():
                entry = self._store.entry(name)
                self._store.fetch(entry, [array], -entry.key)
        if due:
            self.exchanged()

    def _take_note(self) -> None:
        """Take note of the store's tensors, once."""
        if self._trained is None:
            self._trained = self._store.keys
            self._steps.train([self._store.entry(key).elements for key in self._trained])

    def _catch_up(self) -> None:
        """Note the rounds that have closed without this worker's party, after an exchange."""
        steps, loop = self._steps, self._store.member.loop
        if not self._early or steps.flights is not None or steps.step < 0:
            return
        if steps.synchronises():
            before = self._store.member.spec.rounds_before
            keys = [self._store.entry(name).key for name in self._trained or ()]
            for key in keys:
                self._store.exchange.wait(key)
            steps.reach([(key, before + loop.reached(key)) for key in keys])

    def _name(self, position: int) -> Key:
        """Return the key of a tensor, which `Flights` counts in the order of initialisation."""
        assert self._trained is not None
        return self._trained[position]

    def _check_complete(self, values: Mapping[Key, Any]) -> None:
        """Check that an exchange has the keys that were noted, and others only where they count.

        All values have the shapes of their keys.
        """
        noted = self._trained or ()
        for name in noted:
            if name not in values:
                raise GeomxError(
                    f"key {name!r} is not among the values: pass rhythm.exchange all parameters by "
                    "key, and initialise keys of anything else in the first step"
                )
        if self._steps.flights is not None and len(values) > len(noted):
            late = next(name for name in values if name not in noted)
            raise GeomxError(
                f"key {late!r} was not initialised before the first step, when the algorithm chose "
                "what to exchange: initialise all parameters before `for step in rhythm:`"
            )
        for name, array in values.items():
            self._store.check_shape(name, array.shape)

    def _apply(self, flights: Flights, answers: Iterable[Answer]) -> None:
        """Write answers into the parameters."""
        for answer in answers:
            name = self._name(answer.key)
            entry, array = self._store.entry(name), self._values[name]
            if answer.age is None:
                self._store.fetch(entry, [array], -entry.key)
                continue
            store = self._store
            value = received(store.exchange, store.member.loop, entry.key, entry.elements)
            local = array.asnumpy() if hasattr(array, "asnumpy") else np.asarray(array)
            merged = flights.merge(answer, as_vector(local), value)
            array[...] = merged.reshape(entry.shape)

    def _computed(self) -> bool:
        """Note that the step is computed; return whether it exchanges anything."""
        if self._steps.step < 0:
            raise GeomxError(
                "no step has begun: write `for step in rhythm:` around the local steps"
            )
        self._asked = True
        self._store.member.computed()
        arrived_s, now_s = self._store.take_arrivals(), self._store.member.now()
        self._compute_s = computing_s(self._began_s, arrived_s, now_s)
        return self._steps.synchronises()

    def exchanged(self) -> None:
        """Report to the coordinator, if there is one, and wait for its reply.

        Call it after all parameters of the step have been pushed and pulled.

        Raises:
            NodeLost: The reply will never arrive.
        """
        self._told = True
        report = self._steps.report(self._compute_s)
        if report is not None:
            self._store.exchange.flush()
            self._steps.reply(self._store.member.consult(report))

    def _check_exchanged(self) -> None:
        step, missing = self._steps.step, ""
        if self._steps.synchronises():
            if not self._asked:
                missing = "ask rhythm.due() in every step, or call rhythm.exchange(values)"
            elif self._steps.consults and not self._told:
                missing = "call rhythm.exchanged() when parameters have been pushed and pulled"
        if missing:
            raise GeomxError(f"step {step} must be exchanged: {missing}")


def scaled(array: Any, factor: float) -> Any:
    """Return a multiple of an array; of one in half precision, in float32, which is not rounded.

    Args:
        array: An array of NumPy, or a tensor of PyTorch or MXNet.
        factor: The factor.
    """
    if "float16" in str(array.dtype):  # bfloat16, too
        array = array.float() if hasattr(array, "float") else array.astype(np.float32)
    return array * np.float32(factor)
