"""The driver of a store in virtual time: every call is a request to the simulator.

`VirtualLoop` has the methods of `_core.Loop` that stores and exchanges use, with the same meaning.
A request states how long the process has computed since the previous one. The simulator reads all
requests up to one that has a reply, lets those times pass for this worker, carries the requests
out, and replies when the worker may go on. Meanwhile the process waits, and other workers compute.
"""

from __future__ import annotations

import math
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from geomx.errors import GeomxError
from geomx.virtual import wire
from geomx.virtual.stopwatch import Stopwatch

NS = 1_000_000_000
_OWN = str(Path(__file__).resolve().parent.parent)

State = tuple[int, int, int, int, bytes]
"""Key, shard, number of the part, parts, and bytes of a part of an optimizer's state."""


class VirtualLoop:
    """One worker's end of a simulation.

    Args:
        path: The simulator's socket.
        name: Name of the worker.

    Attributes:
        experiment: The experiment, as text (`geomx.live.spec`).
        late: Always False: see `_core.Loop.late`.

    Raises:
        GeomxError: The simulator does not expect this process.
    """

    def __init__(self, path: str, name: str) -> None:
        self.late = False
        self.experiment = ""
        self._name, self._pid = name, os.getpid()
        self._failure: tuple[str, str] | None = None
        self._one_at_a_time = threading.Lock()
        self._watch = Stopwatch()
        self._now_ns = 0
        self._posted = False  # something since `_now_ns`
        self._computed_ns = 0  # since then, up to the last request
        self._pushes: Counter[int] = Counter()
        self._values: dict[int, bytearray] = {}  # that have come with the end of a wait
        self._speed = 1.0
        self._measured = True
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise GeomxError(
                f"{name} cannot join the simulation ({error.strerror}): one process of its command "
                "has joined already, or the simulation is over"
            ) from error
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
        self._measured = self._ask("start")[0]["measured"]

    def now(self) -> float:
        """Return the virtual time, in seconds since the start of the run."""
        if self._measured:
            computed_ns = self._computed_ns + self._watch.read()
            return (self._now_ns + computed_ns / self._speed) / NS
        if self._posted:  # only the simulator knows which of it takes time
            self._ask("now")
        return self._now_ns / NS

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
        self._post("push", array, key=key, loss=known, last=last, absent=absent)
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
            f"{self._name}: tensors on a GPU cannot be simulated yet: keep them on the CPU, or use "
            "geomx launch"
        )

    def wait(self, key: int, round: int, timeout_s: float) -> float:
        """See `_core.Loop.wait`; there is no time limit."""
        del timeout_s
        replied, content = self._ask("wait", key=key, round=round, where=_call_site())
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

    def go_on(self, key: int) -> int:
        """See `_core.Loop.go_on`."""
        self._pushes[key] = int(self._ask("round", key=key)[0]["round"])
        return self._pushes[key]

    # ---- the job ----

    def barrier(self, timeout_s: float) -> None:
        """See `_core.Loop.barrier`; there is no time limit."""
        del timeout_s
        self._ask("barrier", where=_call_site())

    def command(self, text: str, unless_given: bool = False) -> None:
        """See `_core.Loop.command`."""
        self._post("command", text=text, unless_given=unless_given)

    def report(
        self, host: int, number: int, values: Sequence[float], not_before_s: float = 0.0
    ) -> None:
        """See `_core.Loop.report`; `not_before_s` is for paced live runs."""
        del not_before_s
        self._post("report", host=host, number=number, values=list(values))

    def wait_reply(self, number: int, timeout_s: float) -> list[float]:
        """See `_core.Loop.wait_reply`; there is no time limit."""
        del timeout_s
        replied, _ = self._ask("reply", number=number, where=_call_site())
        return [float(value) for value in replied["values"]]

    def ask_states(self) -> None:
        """See `_core.ask_states`."""
        self._post("ask_states")

    def wait_state(self) -> State:
        """See `_core.wait_state`; there is no time limit."""
        replied, content = self._ask("state", where=_call_site())
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
            self._ask("stopped", where=_call_site())
        return True

    def failure(self) -> tuple[str, str] | None:
        """See `_core.Loop.failure`."""
        return self._failure

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    # ---- requests ----

    def _post(self, op: str, content: Any = b"", **fields: Any) -> None:
        """Make a request that has no reply; it is carried out before the next that has one."""
        with self._one_at_a_time:
            self._send({"op": op, **fields}, content)
            self._posted = True
            self._watch.start()

    def _ask(self, op: str, **fields: Any) -> wire.Message:
        """Make a request, and return the reply."""
        with self._one_at_a_time:
            self._send({"op": op, "asks": True, **fields})
            replied = wire.receive(self._socket)
            if replied is None:
                self._lose()
            self._now_ns, self._computed_ns = replied[0].get("now_ns", 0), 0
            self._posted = False
            self._watch.start()
        if "error" in replied[0]:
            raise RuntimeError(replied[0]["error"])
        return replied

    def _send(self, fields: dict[str, Any], content: Any = b"") -> None:
        if os.getpid() != self._pid:
            raise GeomxError(
                f"{self._name}: process {os.getpid()} was forked from process {self._pid}, whose "
                "store it cannot use: in a simulation one process is one worker; create the store "
                "in the process that uses it"
            )
        computed_ns = self._watch.read()
        self._computed_ns += computed_ns
        fields |= {"computed_ns": computed_ns, "waited_ns": self._watch.waited_ns}
        if isinstance(content, np.ndarray):
            content = np.ascontiguousarray(content, np.float32).reshape(-1)
        try:
            wire.send(self._socket, fields, content)
        except OSError:
            self._lose()

    def _lose(self) -> NoReturn:
        self._failure = "simulator", "it has ended"
        raise RuntimeError("the simulator has ended")


def _call_site() -> str:
    """Return where the script called: file, line and function.

    That is the innermost frame outside of geomx, and outside of installed packages if there is one.
    """
    frame: FrameType | None = sys._getframe(1)
    found = None
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OWN):
            found = found or frame
            if "site-packages" not in name:
                found = frame
                break
        frame = frame.f_back
    if found is None:
        return ""
    code = found.f_code
    return f"{Path(code.co_filename).name}:{found.f_lineno} ({code.co_name})"
