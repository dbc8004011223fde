"""What only training scripts ask of the membership of their process.

In a simulation the same calls reach the simulator (`geomx.virtual.member`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from geomx import _core
from geomx.live.script_record import ScriptRecord

FOREVER_S = 1e8
"""Seconds of waits that end only with their event or the loss of a node."""

Evaluated = Callable[[float, int, float | None, float | None], None]
"""Records seconds since the start, number of the step, accuracy and loss."""

State = tuple[int, int, int, int, bytes]
"""Key, shard, number of the part, parts, and bytes of a part of an optimizer's state."""


class ScriptCalls:
    """The calls of a script that concern no tensor.

    Attributes:
        loop: The driver of the member's node.
        steps: Local steps that were begun, where the script's store or optimizer tells.
        made: Local steps that were made, where an optimizer or a hook counts them; None: none does.
        virtual: Whether the run is simulated.
        grouped: Whether the worker is a group of processes, of which this one talks for all.
        on_evaluated: Records the script's own evaluations; None: there is no record.
        record: Notes the script's steps; None: nothing is noted.
        thread: The thread that trains: the last one to declare or push a tensor; None: none has.
    """

    virtual = False
    grouped = False
    loop: _core.Loop
    steps: int
    made: int | None = None
    on_evaluated: Evaluated | None
    record: ScriptRecord | None = None
    thread: int | None = None

    def now(self) -> float:
        """Return the seconds since the start of the run."""
        raise NotImplementedError

    def declare(
        self,
        key: int,
        shape: Sequence[int],
        shards: Sequence[tuple[int, int, int, int]],
        name: int | str,
    ) -> None:
        """Declare a tensor that the script calls `name`, and its shards."""
        self.thread = threading.get_ident()
        self.loop.declare(key, math.prod(shape), list(shards), f"key {name!r}")
        if self.record is not None:
            self.record.declares((key, str(name), shape, shards))

    def set_optimizer(self, text: str, first: bool, unless_given: bool) -> None:
        """Have all global servers run an optimizer, as the first worker, or wait until they do.

        Args:
            text: The optimizer, as of `geomx.plugin.parts.optimizer_text`.
            first: Whether this is the first worker.
            unless_given: Whether it has no effect after another one.
        """
        if self.record is not None:
            self.record.sets_optimizer()
        if first:
            self.loop.run_optimizer(text, unless_given)
        else:
            self.loop.expect_optimizer()

    def plans(self, steps: int) -> None:
        """Note the number of local steps, or that from which they are planned, if by speed."""

    def begins(self) -> None:
        """Note that a local step begins."""
        self.steps += 1
        if self.record is not None:
            self.record.begins()

    def pushed(self) -> None:
        """Note that tensors have been pushed."""
        self.thread = threading.get_ident()
        if self.record is not None:
            self.record.look()

    def computed(self) -> None:
        """Note that the computing of the current local step is done."""
        if self.record is not None:
            self.record.computed()

    def goes_on(self, steps: int) -> None:
        """Note that the first local step is that after `steps` of a process or run before."""
        if self.record is not None:
            self.record.goes_on(steps)

    def leave(self) -> None:
        """Leave the run, after the last step."""
        if self.record is not None:
            self.record.ends()
        self.loop.leave()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    # ---- of a worker that is a group of processes, of which this one talks for all ----

    def uncounted(self) -> AbstractContextManager[None]:
        """Return a context in which the group really communicates, which takes no virtual time."""
        return nullcontext()

    def reduces(self, size_bytes: int, processes: int) -> None:
        """Note that the group begins to add what is pushed next: `size_bytes` of each process."""

    def shares(self, size_bytes: int, processes: int) -> None:
        """Note that this process gives `size_bytes` to the others, and wait as long as it takes."""

    def evaluated(self, step: int, accuracy: float | None, loss: float | None) -> None:
        """Record an evaluation of the model after local step `step`."""
        if self.on_evaluated is not None:
            self.on_evaluated(self.now(), step, accuracy, loss)

    def ask_states(self) -> None:
        """Ask all global servers for the state of their optimizers."""
        _core.ask_states(self.loop)

    def wait_state(self) -> State:
        """Wait for the next part of a state."""
        part = _core.wait_state(self.loop, FOREVER_S)
        assert part is not None
        return part

    def load_state(self, key: int, shard: int, saved: bytes) -> None:
        """Let the optimizer of a shard continue from a state, before later pushes."""
        _core.load_state(self.loop, key, shard, saved)
