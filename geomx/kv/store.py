"""`KVStore`, one worker's view of the key-value store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from geomx.errors import GeomxError, NodeLost
from geomx.experiment.streaming import answered_whole
from geomx.frameworks import tensors
from geomx.kv.beginning import Beginning
from geomx.kv.compression import check_compression
from geomx.kv.departure import Departure
from geomx.kv.ending import failing, passing
from geomx.kv.keys import Entry, Keys
from geomx.kv.many import ManyKeys
from geomx.kv.rules import check_later, checked_optimizer, global_rule
from geomx.kv.values import Key, devices, pairs, to_float32
from geomx.live.exchange import ArrayExchange, Exchange
from geomx.live.member import Member, naming_the_lost
from geomx.live.script_calls import FOREVER_S
from geomx.live.sync_steps import SyncSteps

TYPES = ("dist_sync", "dist_device_sync", "dist_async")


class KVStore(ManyKeys):
    """One worker's view of the store. Made by `create`.

    Args:
        member: The worker's membership, started.
        type: The name it was created by.
        close: Called once, after the worker has left.
        exchange: How arrays move; numpy's by default.
        master: Whether this worker gives initial values and sets the optimizer; None: the first of
            all workers does.
    """

    def __init__(
        self,
        member: Member,
        type: str = TYPES[0],
        close: Callable[[], None] | None = None,
        exchange: Exchange | None = None,
        master: bool | None = None,
    ) -> None:
        self.member = member
        self.type = type
        self.exchange: Exchange = exchange or ArrayExchange(member.loop)
        self._close = close or member.loop.close
        self._master = self.global_rank == 0 if master is None else master
        self._keys = Keys(member.spec.cluster, member.selection, member.streams)
        self._beginning = Beginning(member, self._master, self._keys)
        self._lends = answered_whole(member.selection, member.spec.cluster, member.spec.faults)
        self._rhythm: SyncSteps | None = None
        self._pulled: set[int] = set()  # keys pulled since the last `take_arrivals`
        self._rounds = member.spec.rounds_before
        self._departure = Departure(member)
        self._tells_again = member.late  # what a predecessor may have said
        member.on_leave = self.leave
        self.closed = False

    def use(self, exchange: Exchange) -> None:
        """Move another framework's arrays from now on.

        Args:
            exchange: How arrays of that framework are pushed and pulled.

        Raises:
            GeomxError: There are keys already.
        """
        if len(self._keys):
            raise GeomxError("one key-value store holds the arrays of one framework")
        self.exchange = exchange

    # ---- position in the job ----

    @property
    def is_master_worker(self) -> bool:
        """Whether this is the worker that gives initial values and sets the optimizer."""
        return self._master

    @property
    def keys(self) -> tuple[Key, ...]:
        """The initialised keys, in order."""
        return tuple(self._keys)

    @property
    def rounds(self) -> int:
        """Rounds completed when keys were initialised: of a lost process, or a run before."""
        return self._rounds

    @property
    def step(self) -> int:
        """Number of the step of a rhythm or of pushes, from 0; the last one of an optimizer."""
        made = self.member.made
        steps = max(self.member.steps, self._departure.steps) if made is None else made
        return max(steps, 1) - 1

    # ---- values ----

    def init(self, key: Key | Sequence[Key], value: Any) -> None:
        """Initialise one key or several; blocks until the master's value has arrived.

        Every worker initialises the same keys with the same shapes in the same order. All workers
        get the value of the master worker.

        Args:
            key: An integer or a string, or a list of them.
            value: An array, or for a list of keys a list of arrays.

        Raises:
            GeomxError: A key is initialised twice, is no integer or string, or mixes with keys of
                the other type; or the value has no elements or does not fit float32.
            NodeLost: A node of the job died.
        """
        if self.is_master_worker and not len(self._keys):
            self._run_rule()
        arrays = [(each, to_float32(each, array)) for each, array in pairs(key, value)]
        entries = self._admit([(each, array.shape) for each, array in arrays])
        with naming_the_lost(self.member.loop):
            for entry, (_, array) in zip(entries, arrays, strict=True):
                if self.is_master_worker:
                    self.member.loop.init(entry.key, self._beginning.value(entry.key, array))
                self.member.loop.request(entry.key)
        for entry in entries:
            self.exchange.wait(entry.key)
            self._rounds = max(self._rounds, self._beginning.completed(self.exchange, entry.key))
            self.member.goes_on(self._rounds)

    def push(self, key: Key | Sequence[Key], value: Any, priority: int = 0) -> None:
        """Contribute to one key or several; returns at once.

        Args:
            key: A key, or a list of them.
            value: An array, or a list of arrays that are summed first; for a list of keys a list
                of such values. May be changed as soon as this returns.
            priority: Accepted for compatibility. The order of sending is decided on every hop: by
                default that of initialisation, unless an accelerator changes it.

        Raises:
            GeomxError: A key was never initialised, a shape differs, or float32 rounds an integer.
            NodeLost: A node of the job died.
            Left: The worker leaves the job, and all earlier steps are complete.
        """
        for each, given in self.pushing(pairs(key, value)):
            entry, terms = self.entry(each), devices(given)
            if tensors.on_device(terms):
                for term in terms:
                    self.check_shape(each, tuple(term.shape))
                self.send(entry, terms[0] if len(terms) == 1 else terms, priority)
                continue
            arrays = [to_float32(each, array) for array in terms]
            for array in arrays:
                self.check_shape(each, array.shape)
            total = arrays[0] if len(arrays) == 1 else np.sum(arrays, axis=0, dtype=np.float32)
            self.send(entry, total, priority)

    def pull(
        self,
        key: Key | Sequence[Key],
        out: Any = None,
        priority: int = 0,
        ignore_sparse: bool = True,
    ) -> Any:
        """Return the current value of one key or several.

        That is the value after this worker's last push of the key, available when all workers that
        it depends on have pushed; before any push, the initial value.

        Args:
            key: A key, or a list of them.
            out: Arrays to fill, in the form of `push`'s values; None for new float32 arrays.
            priority: See `push`.
            ignore_sparse: Accepted for compatibility; all keys are dense.

        Returns:
            `out`, or the new array or arrays.

        Raises:
            GeomxError: A key was never initialised, or a shape or type does not fit its value.
            NodeLost: A node of the job died, so that the value will never arrive.
        """
        if out is None:
            keys: list[Any] = list(key) if isinstance(key, list | tuple) else [key]
            fresh = [np.empty(self.entry(each).shape, np.float32) for each in keys]
            out = fresh if isinstance(key, list | tuple) else fresh[0]
        for each, given in self.pulling(pairs(key, out)):
            entry, targets = self.entry(each), devices(given)
            for target in targets:
                self.check_shape(each, target.shape)
            self.fill(entry, targets, priority)
        return out

    def pushpull(
        self, key: Key | Sequence[Key], value: Any, out: Any = None, priority: int = 0
    ) -> Any:
        """Call `push`, then `pull`.

        Args:
            key: A key, or a list of them.
            value: The contribution, as for `push`.
            out: Arrays to fill; None to fill `value` itself.
            priority: See `push`.

        Returns:
            The arrays that were filled.
        """
        with self.lending(key, value if out is None else None):
            self.push(key, value, priority)
        return self.pull(key, value if out is None else out, priority)

    # ---- the job ----

    def set_optimizer(self, optimizer: Any, **options: float) -> None:
        """Let the global servers update the weights with an optimizer instead of only summing.

        Effective from the next push on, with a new state. Every worker calls it, so that servers
        use no later push before they know the optimizer, which is the one of the master worker. It
        travels as a name and numbers, never as code.

        Args:
            optimizer: A name (``"sgd"``, ``"adam"``) with `options`, a dict with ``name`` and
                numbers, or an optimizer object of MXNet.
            options: Numbers, where `optimizer` is a name.

        Raises:
            ConfigError: The global servers lack that optimizer or option; the job's sync algorithm
                has workers update by themselves, or chooses another; or it would act too late.
        """
        if self._beginning.optimizer and self._departure.steps:
            check_later(self.member, optimizer)
        self.run_optimizer(checked_optimizer(self.member, optimizer, options))

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """Check that the job has the requested compression, which is set when it is launched.

        Args:
            compression_params: ``type``, the name of an accelerator or MXNet's or GeoMX's for one
                (``none``, ``2bit``, ``bsc``), and any of its options.

        Raises:
            ConfigError: It does not; the message has the overrides to launch it with.
        """
        check_compression(self.member, compression_params)

    def rhythm(self, steps: int) -> SyncSteps:
        """Plan when this worker exchanges parameters, for jobs whose workers update by themselves.

        Args:
            steps: Local steps to make, of all epochs; if they are planned by speed, those of the
                slowest worker, or of another one, as the algorithm's page says.

        Returns:
            The steps; ``due()`` says whether to exchange after one, ``scale`` is the factor on what
            is pushed, and ``exchanged()`` ends the exchange.

        Raises:
            ConfigError: `steps` is not a whole number, or less than 1.
            GeomxError: The last step of an earlier rhythm was made.
        """
        if self.last:
            raise GeomxError(
                "the last step of this store's rhythm was made, and no key is pushed after it: "
                "give rhythm the steps of all epochs together"
            )
        self._rhythm = SyncSteps(self, steps)
        if self._rounds:
            self._rhythm.resume(self._rounds)
        return self._rhythm

    def barrier(self) -> None:
        """Wait until every worker of the job has reached the barrier.

        Raises:
            NodeLost: A node of the job died.
        """
        self._keys.check_open()
        with naming_the_lost(self.member.loop):
            self.member.loop.barrier(FOREVER_S)

    @property
    def leaving(self) -> bool:
        """Whether this worker leaves the job at the end of the current step; see `leave`."""
        return self._departure.asked

    def leave(self) -> None:
        """Let this worker leave the job at the end of the current step, while others continue.

        The next step then ends the script with `geomx.errors.Left`; a `rhythm` ends after it.

        Raises:
            GeomxError: The others would not continue, or the worker is a group of processes.
        """
        self._departure.ask()

    def close(self) -> None:
        """Leave the job when all other workers are done too; called when the program ends.

        In a launched script that is left to its end while an exception passes, as in ``finally``.
        """
        if self.closed or (self.closes_at_end and passing()):
            return
        self.closed = True
        try:
            # If the program fails, others must notice it: that does not count as done.
            if not failing():
                for key in self._keys if self.leaving else ():  # all that was pushed is in
                    self.exchange.wait(self.entry(key).key)
                self.member.leave()
                self.member.wait_stopped(lambda: self.leaving)
        except (NodeLost, RuntimeError):
            pass  # the other nodes have ended already
        finally:
            self._keys.closed = True
            self._close()

    # ---- shared with MXNet's store ----

    def entry(self, key: Key) -> Entry:
        """Look a key up.

        Args:
            key: As it was initialised.

        Returns:
            Its number, shape and shards.

        Raises:
            GeomxError: It was never initialised.
        """
        return self._keys.entry(key)

    def run_optimizer(self, text: str) -> None:
        """Have all global servers run an optimizer, if this is the master worker.

        Args:
            text: The optimizer, as of `geomx.plugin.parts.optimizer_text`. The first one of a
                process that takes the place of a lost one counts only if that has given none.

        Raises:
            NodeLost: A node of the job died.
        """
        self._keys.check_open()
        with naming_the_lost(self.member.loop):
            self.member.set_optimizer(text, self.is_master_worker, self._tells_again)
        self._beginning.optimizer, self._tells_again = text, False

    def check_shape(self, key: Key, shape: Sequence[int]) -> None:
        """Check the shape of an array for a key.

        Args:
            key: As it was initialised.
            shape: Shape of the array.

        Raises:
            GeomxError: It differs from that of the key, or the key was never initialised.
        """
        self._keys.check_shape(key, shape)

    def send(self, entry: Entry, value: Any, priority: int) -> None:
        """Contribute to a key; in a rhythm's last step, for the last time.

        Args:
            entry: Entry of the key.
            value: An array, or what else the exchange accepts, of the key's shape.
            priority: See `push`.

        Raises:
            Left: The worker leaves the job, and this contribution would begin another step.
        """
        self.count(entry, value)
        self.exchange.push(entry.key, value, priority=priority, last=self.last)
        self.member.pushed()

    def fetch(self, entry: Entry, out: Sequence[Any], priority: int) -> None:
        """Fill arrays with the value of a key.

        Args:
            entry: Entry of the key.
            out: Arrays, or what else the exchange fills, of the key's shape.
            priority: See `push`.
        """
        self.exchange.pull(entry.key, out, priority=priority)
        self._pulled.add(entry.key)

    def _admit(self, keys: Sequence[tuple[Key, tuple[int, ...]]]) -> list[Entry]:
        """Declare new keys to the loop."""
        entries = self._keys.admit(keys)
        for entry in entries:
            self.member.declare(entry.key, entry.shape, entry.shards, entry.name)
            self.exchange.declare(entry.key, entry.shape)
        return entries

    def _run_rule(self) -> None:
        """Have global servers run the optimizer of the sync policy, if parameters are exchanged."""
        if (rule := global_rule(self.member)) is not None:
            self.run_optimizer(rule)
