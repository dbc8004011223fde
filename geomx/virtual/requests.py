"""The requests of a worker's process to the simulator, and how long it has computed before each.

A process computes, makes a request, and computes on, or waits for a reply. A framework's engine may
execute pushes beside the script (MXNet's): each is a request at the time of its execution, made
before the next one of the script.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from geomx.errors import GeomxError
from geomx.virtual import wire
from geomx.virtual.stopwatch import Computed, Stopwatch

NS = 1_000_000_000
_OWN = str(Path(__file__).resolve().parent.parent)


class Executed(NamedTuple):
    """A push that a framework's engine has executed.

    Attributes:
        number: Its position among all operations, in the order in which the script made them.
        key: Number of the tensor.
        value: A float32 vector.
        loss: The worker's last training loss; NaN for none.
        last: Whether this is the last push of the key.
        used_ns: Processor time of the process when it was executed.
        passed_ns: The monotonic clock then.
    """

    number: int
    key: int
    value: NDArray[np.float32]
    loss: float
    last: bool
    used_ns: int
    passed_ns: int


class Engine(Protocol):
    """A framework's engine, which executes pushes beside the script."""

    def used_ns(self) -> int:
        """Return the processor time of the threads that compute, in nanoseconds."""
        ...

    def executed(self) -> list[Executed]:
        """Return the pushes since the last call, once no other one can be executed."""
        ...

    def close(self, why: str) -> None:
        """End all operations, which raise `why`."""
        ...


class Requests:
    """The requests of one process. All functions may be called by any thread.

    Args:
        path: The simulator's socket.
        name: Name of the worker.

    Attributes:
        events: Number of requests that were made, and of replies.

    Raises:
        GeomxError: There is no simulator.
    """

    def __init__(self, path: str, name: str) -> None:
        self.events = 0
        self._name, self._pid = name, os.getpid()
        self._failure: tuple[str, str] | None = None
        self._one_at_a_time = threading.Lock()
        self._watch = Stopwatch()
        self._engine: Engine | None = None
        self._now_ns = 0
        self._posted = False  # something since `_now_ns`
        self._computed_ns = 0  # since then, up to the last request
        self._later = Computed()  # of it, what was measured but belongs to the next request
        self._pushes: Counter[int] = Counter()
        self._speed = 1.0
        self._measured = self._own_clock = True
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise GeomxError(
                f"{name} cannot join the simulation ({error.strerror}): one process of its command "
                "has joined already, or the simulation is over"
            ) from error

    def now(self) -> float:
        """Return the virtual time, in seconds since the start of the run."""
        if self._own_clock:
            computed_ns = self._computed_ns + self._watch.read().ns
            return (self._now_ns + computed_ns / self._speed) / NS
        # Only the simulator knows how long this has taken. Where computing is measured, there was
        # always some since the last reply.
        if self._measured or self._posted:
            self._ask("now")
        return self._now_ns / NS

    def failure(self) -> tuple[str, str] | None:
        """See `_core.Loop.failure`."""
        return self._failure

    def close(self, failed: str = "") -> None:
        """End the connection; tell the simulator by which exception the script ends, if any."""
        if self._engine is not None:
            self._engine.close("the key-value store was closed before the value came")
        if failed:
            with contextlib.suppress(OSError):  # the simulation is over
                wire.send(self._socket, {"op": "fails", "why": failed})
        self._socket.close()

    # ---- of an engine ----

    def run_beside(self, engine: Engine) -> None:
        """Take pushes from an engine, before each request, beside those that the script makes."""
        self._watch = Stopwatch(engine.used_ns)
        self._engine = engine

    def ignore(self, ns: int) -> None:
        """Do not report that time as waiting outside the store."""
        self._watch.ignored_ns += ns

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Do not count what the process computes meanwhile."""
        with self._one_at_a_time:
            computed = self._watch.read()
            self._computed_ns += computed.ns
            self._later += computed
        try:
            yield
        finally:
            with self._one_at_a_time:
                self._watch.start()

    def tell_executed(self) -> None:
        """Make the requests of an engine's pushes, without one of the script's."""
        with self._one_at_a_time:
            if self._engine is not None:
                self._tell(self._engine.executed())

    def await_value(
        self, key: int, round: int, where: str, events: int
    ) -> NDArray[np.float32] | None:
        """Wait for the value of a round, or of a later one.

        Args:
            key: Number of the tensor.
            round: Its round.
            where: Where the script asked for it.
            events: See the attribute: how many there were when nothing more could be computed.

        Returns:
            The value; None if there were others since, after which the script computes.
        """
        asked = {"key": key, "round": round, "where": where}
        with self._one_at_a_time:
            if self.events != events:
                return None
            _, content = self._exchange("wait", asked)
        return np.frombuffer(content, np.float32)

    # ---- of the script ----

    def _post(self, op: str, content: Any = b"", **fields: Any) -> None:
        """Make a request that has no reply; it is carried out before the next that has one."""
        with self._one_at_a_time:
            self._send({"op": op, **fields}, content)
            self._posted = True
            self._watch.start()

    def _ask(self, op: str, **fields: Any) -> wire.Message:
        """Make a request, and return the reply."""
        with self._one_at_a_time:
            return self._exchange(op, fields)

    def _exchange(self, op: str, fields: dict[str, Any]) -> wire.Message:
        """Make a request, and return the reply, as the one thread that may make requests."""
        self._send({"op": op, "asks": True, **fields})
        replied = wire.receive(self._socket)
        self.events += 1
        if replied is None:
            self._lose()
        self._now_ns, self._computed_ns = replied[0].get("now_ns", 0), 0
        self._posted = False
        self._watch.start()
        if "error" in replied[0]:
            raise RuntimeError(replied[0]["error"])
        return replied

    def _send(self, fields: dict[str, Any], content: Any = b"") -> None:
        """Make a request, after those of an engine."""
        if os.getpid() != self._pid:
            raise GeomxError(
                f"{self._name}: process {os.getpid()} was forked from process {self._pid}, whose "
                "store it cannot use: in a simulation one process is one worker; create the store "
                "in the process that uses it"
            )
        if self._engine is not None:
            self._tell(self._engine.executed())
        self.events += 1
        computed = self._watch.read()
        self._computed_ns += computed.ns
        computed, self._later = computed + self._later, Computed()
        self._write(fields, content, computed, self._watch.waited_ns)

    def _tell(self, executed: list[Executed]) -> None:
        """Tell of pushes that an engine has executed, each after the computing before it."""
        if not executed:
            return
        times = [self._watch.until(push.used_ns, push.passed_ns) for push in executed]
        later = self._watch.read()
        self._computed_ns += sum(each.ns for each in times) + later.ns
        times[0], self._later = times[0] + self._later, later
        waited_ns = self._watch.waited_ns
        if not self._measured:  # they all have the same virtual time
            executed.sort()
        for push, computed in zip(executed, times, strict=True):
            self._pushes[push.key] += 1
            known = None if math.isnan(push.loss) else push.loss
            asked = {"op": "push", "key": push.key, "loss": known, "last": push.last}
            self._write(asked | {"absent": False}, push.value, computed, waited_ns)
            waited_ns = 0
        self._watch.start()

    def _write(
        self, fields: dict[str, Any], content: Any, computed: Computed, waited_ns: int
    ) -> None:
        fields |= {"computed_ns": computed.ns, "processor_ns": computed.processor_ns}
        fields["waited_ns"] = waited_ns
        if isinstance(content, np.ndarray):
            content = np.ascontiguousarray(content, np.float32).reshape(-1)
        try:
            wire.send(self._socket, fields, content)
        except OSError:
            self._lose()

    def _lose(self) -> NoReturn:
        self._failure = "simulator", "it has ended"
        raise RuntimeError("the simulator has ended")


def call_site() -> str:
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
