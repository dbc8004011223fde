"""The driver of a store in virtual time: every call is a request to the simulator.

`VirtualLoop` has the methods of `_core.Loop` that stores and exchanges use, with the same meaning.
A request states how long the process has computed since the previous one. The simulator reads all
requests up to one that has a reply, lets those times pass for this worker, carries the requests
out, and replies when the worker may go on. Meanwhile the process waits, and other workers compute.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from geomx.errors import GeomxError
from geomx.virtual.requests import NS, Requests, call_site

State = tuple[int, int, int, int, bytes]
"""Key, shard, number of the part, parts, and bytes of a part of an optimizer's state."""


class VirtualLoop(Requests):
    """One worker's end of a simulation.

    Args:
        path: The simulator's socket.
        name: Name of the worker.

    Attributes:
        experiment: The experiment, as text (`geomx.live.spec`).
        late: Always False: see `_core.Loop.late`.
        events: See `Requests`.

    Raises:
        GeomxError: The simulator does not expect this process.
    """

    def __init__(self, path: str, name: str) -> None:
        super().__init__(path, name)
        self.late = False
        self.experiment = ""
        self._values: dict[int, bytearray] = {}  # that have come with the end of a wait
        self._reduce_ns = 0  # of the next push
        try:
            joined, _ = self._ask("join", name=name)
        except RuntimeError as error:
            raise GeomxError(str(error)) from error
        self.experiment = joined["experiment"]

    def start(self, speed: float) -> None:
        """Wait for the start of the run, its time 0.

        Args:
            speed: The worker's, by which measured computing is divided.
        """
        self._speed = speed
        replied, _ = self._ask("start")
        self._measured, self._own_clock = replied["measured"], replied["as_measured"]

    # ---- tensors ----

    def declare(
        self,
        key: int,
        shape: Sequence[int],
        shards: Sequence[tuple[int, int, int, int]],
        name: str,
    ) -> None:
        """Declare a tensor; see `geomx.live.member.Member.declare`."""
        self._post("declare", key=key, shape=list(shape), shards=list(shards), name=name)

    def init(self, key: int, array: NDArray[np.float32]) -> None:
        """See `_core.Loop.init`."""
        self._post("init", array, key=key)

    def request(self, key: int) -> None:
        """See `_core.Loop.request`."""
        self._post("request", key=key)

    def push(
        self,
        key: int,
        array: NDArray[np.float32],
        loss: float = math.nan,
        last: bool = False,
        not_before_s: float = 0.0,
        absent: bool = False,
    ) -> int:
        """See `_core.Loop.push`; copies the array. `not_before_s` is for paced live runs."""
        del not_before_s
        known = None if math.isnan(loss) else loss
        reduce_ns, self._reduce_ns = self._reduce_ns, 0
        asked = {"key": key, "loss": known, "last": last, "absent": absent, "reduce_ns": reduce_ns}
        self._post("push", array, **asked)
        self._pushes[key] += 1
        return self._pushes[key]

    def push_all(
        self, keys: Sequence[int], arrays: Sequence[NDArray[np.float32]], copy: bool, last: bool
    ) -> None:
        """See `_core.Loop.push_all`."""
        del copy
        for key, array in zip(keys, arrays, strict=True):
            self.push(key, array, last=last)

    def push_value(self, key: int, value: object, *options: object) -> int:
        """Refuse a tensor on a device.

        Raises:
            GeomxError: Always.
        """
        raise GeomxError(
            f"{self._name}: this tensor on a GPU cannot be simulated: train with "
            "geomx.torch.Optimizer, keep it on the CPU, or use geomx launch"
        )

    def wait(self, key: int, round: int, timeout_s: float) -> float:
        """See `_core.Loop.wait`; there is no time limit."""
        del timeout_s
        replied, content = self._ask("wait", key=key, round=round, where=call_site())
        self._values[key] = content
        return float(replied["arrived_s"])

    def wait_all(self, values: Sequence[tuple[int, int]], timeout_s: float) -> float:
        """See `_core.Loop.wait_all`."""
        return max(self.wait(key, round, timeout_s) for key, round in values)

    def values(self, keys: Sequence[int], arrays: Sequence[NDArray[np.float32]]) -> None:
        """See `_core.Loop.values`."""
        for key, array in zip(keys, arrays, strict=True):
            self.value(key, array)

    def value(self, key: int, out: NDArray[np.float32]) -> None:
        """See `_core.Loop.value`."""
        content = self._values.pop(key, None)
        if content is None:
            _, content = self._ask("value", key=key, elements=out.size)
        out.reshape(-1)[...] = np.frombuffer(content, np.float32)

    def absent(self, key: int) -> bool:
        """See `_core.Loop.absent`."""
        return bool(self._ask("absent", key=key)[0]["absent"])

    def reached(self, key: int) -> int:
        """See `_core.Loop.reached`."""
        return int(self._ask("reached", key=key)[0]["reached"])

    def go_on(self, key: int) -> int:
        """See `_core.Loop.go_on`."""
        self._pushes[key] = int(self._ask("round", key=key)[0]["round"])
        return self._pushes[key]

    # ---- the job ----

    def barrier(self, timeout_s: float) -> None:
        """See `_core.Loop.barrier`; there is no time limit."""
        del timeout_s
        self._ask("barrier", where=call_site())

    def run_optimizer(self, optimizer: str, unless_given: bool = False) -> None:
        """See `_core.Loop.run_optimizer`."""
        self._post("optimizer", optimizer=optimizer, unless_given=unless_given)

    def expect_optimizer(self) -> None:
        """See `_core.Loop.expect_optimizer`."""
        self._post("expect_optimizer")

    def report(
        self, host: int, number: int, values: Sequence[float], not_before_s: float = 0.0
    ) -> None:
        """See `_core.Loop.report`; `not_before_s` is for paced live runs."""
        del not_before_s
        self._post("report", host=host, number=number, values=list(values))

    def wait_reply(self, number: int, timeout_s: float) -> list[float]:
        """See `_core.Loop.wait_reply`; there is no time limit."""
        del timeout_s
        replied, _ = self._ask("reply", number=number, where=call_site())
        return [float(value) for value in replied["values"]]

    def ask_states(self) -> None:
        """See `_core.ask_states`."""
        self._post("ask_states")

    def wait_state(self) -> State:
        """See `_core.wait_state`; there is no time limit."""
        replied, content = self._ask("state", where=call_site())
        key, shard, part, parts = replied["part"]
        return key, shard, part, parts, bytes(content)

    def load_state(self, key: int, shard: int, saved: bytes) -> None:
        """See `_core.load_state`."""
        self._post("load_state", saved, key=key, shard=shard)

    # ---- what only virtual time has ----

    def plans(self, steps: int) -> None:
        """Tell how many local steps the script plans."""
        self._post("plans", steps=steps)

    def mark(self, what: str) -> None:
        """Tell that a local step ``begins``, or that its computing is done (``computed``)."""
        self._post("mark", what=what)

    def reduces(self, seconds: float) -> None:
        """Let the next push, and those after it, leave after a reduction that begins with it.

        The process computes on meanwhile; a reduction begins when the one before it is over.

        Args:
            seconds: How long it takes.

        Raises:
            GeomxError: A GPU computes what is pushed.
        """
        if self._engine is not None:
            raise GeomxError(
                f"{self._name}: groups of processes with tensors on GPUs cannot be simulated: keep "
                "them on the CPU, or use geomx launch"
            )
        self._reduce_ns = round(seconds * NS)

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._ask("sleep", seconds=seconds)

    def evaluated(self, step: int, accuracy: float | None, loss: float | None) -> None:
        """Record an evaluation that the script has made after a step."""
        self._post("evaluated", step=step, accuracy=accuracy, loss=loss)

    # ---- the end ----

    def leave(self) -> None:
        """See `_core.Loop.leave`. A process that was forked from the worker's cannot leave."""
        if os.getpid() == self._pid:
            self._ask("leave")

    def wait_stopped(self, timeout_s: float) -> bool:
        """See `_core.Loop.wait_stopped`; there is no time limit."""
        del timeout_s
        if os.getpid() == self._pid:
            self._ask("stopped", where=call_site())
        return True
