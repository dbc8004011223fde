"""What a live training script notes for its launcher: its tensors, its local steps, its traffic."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx import _core
from geomx.live.journal import Declared, Notes
from geomx.training.pace import NS


class ScriptRecord:
    """The record of one worker, from the start of the run on.

    The loop records where steps begin and end (``runtime_cpp/core/local_steps.h``). A step computes
    as long as no thread of its process waits for the run; waits of MXNet's engine are not seen.

    Args:
        notes: Receives it.
        loop: The driver of the worker's node.
        model: Whether to note the tensors, and their values at the end: one worker does.
        begins_step: Called with the number of a step that has begun, and nanoseconds of the run.
    """

    def __init__(
        self, notes: Notes, loop: _core.Loop, model: bool, begins_step: Callable[[int, int], None]
    ) -> None:
        self._notes, self._loop, self._begins_step = notes, loop, begins_step
        self._pid = os.getpid()
        self._earlier = 0  # steps of a lost process
        self._made = 0  # steps, those included
        self._model = model
        self._tensors: list[Declared] = []
        loop.record_steps()

    def declares(self, tensor: Declared) -> None:
        """Note a tensor, before anything else that is noted speaks of it."""
        if self._model:
            self._tensors.append(tensor)
            self._notes.tensors([tensor])
        else:
            self._notes.holds(tensor[1])

    def sets_optimizer(self) -> None:
        """Note that the script sets an optimizer for the global servers."""
        self._notes.sets_optimizer()

    def goes_on(self, steps: int) -> None:
        """Count steps from `steps` on, as those before were made elsewhere."""
        self._earlier = max(self._earlier, steps)

    def begins(self) -> None:
        """Note that a step begins, as the script tells."""
        self._loop.begin_step()
        self.look()

    def computed(self) -> None:
        """Note that the computing of the present step is done."""
        self._loop.step_computed()

    def look(self) -> None:
        """Note the steps that have ended; the next one has begun."""
        if (ended_ns := self._take()) is not None:
            self._begins_step(self._made, ended_ns)

    def _take(self) -> int | None:
        """Note the steps that have ended; return when the last of them did, if any."""
        ended_ns = None
        for number, *times_ns in self._loop.take_steps():
            times_s = [time_ns / NS for time_ns in times_ns]
            self._notes.iteration(self._earlier + number, *times_s, loss=None, spans=[])
            self._made = self._earlier + number + 1
            ended_ns = times_ns[-1]
        return ended_ns

    def ends(self) -> None:
        """Note the last step, and the values of all tensors: the script is done with its store."""
        if os.getpid() != self._pid:  # it was forked from the worker's
            return
        self._loop.last_step()
        self._take()
        self._notes.left(self._made)
        values: dict[str, NDArray[np.float32]] = {}
        for key, name, shape, _ in self._tensors:
            with contextlib.suppress(ValueError, RuntimeError):  # no value has arrived
                self._loop.value(key, flat := np.empty(math.prod(shape), np.float32))
                values[name] = flat.reshape(shape)
        if values:
            self._notes.parameters(values)

    def close(self, status: str, reason: str = "") -> None:
        """Note the traffic of the node, whose loop is closed, and what has failed, if known."""
        if os.getpid() != self._pid:
            return
        facts: dict[str, Any] = {"spans": self._loop.spans(), "python": _core.python_costs()}
        facts["residuals"] = self._loop.residual_norms()
        if reason:
            facts["reason"] = reason
        self._notes.end(status=status, **self._loop.stats(), **facts)
