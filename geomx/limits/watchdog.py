"""Runs plugins' code in a separate thread, which the calling thread monitors.

`attended` executes an experiment in another thread, while its caller checks it several times per
second. A call that takes too long (limits: `geomx.limits.rules`) is interrupted by an exception in
the work's thread. A call that does not return even then, because it sleeps or catches all
exceptions, is abandoned: the caller continues with an error that names the call. Ctrl-C and SIGTERM
reach the caller at once, even if the work hangs.

This needs no signal handler, alarm or limit of the process, so a script or notebook may call
`geomx.run` from any thread without side effects on its process. The caller's own code never runs in
the work's thread, so a late exception cannot affect it.
"""

from __future__ import annotations

import contextvars
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from types import FrameType, SimpleNamespace
from typing import Any, TypeVar

from geomx.errors import PluginError

T = TypeVar("T")

LOOK_S = 0.25  # interval between checks; shorter if a limit is
YIELD_S = 1.0  # time after an interruption after which a call is abandoned
_POLL_S = 0.05


class Look:
    """A time limit on an activity of plugins, checked several times per second.

    Args:
        limit_s: The limit in seconds.

    Attributes:
        alone: Whether earlier rules are suspended while this one applies.
        error: Base class of the exception raised in the thread; `Exception` if a caller within the
            work converts it to an error that names the plugin.
    """

    alone = False
    error: type[BaseException] = BaseException

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._held: Any = None
        self._since = time.monotonic()

    def busy(self, thread: int, frame: FrameType | None) -> Any:
        """Return the plugin's current activity as an object of constant identity; None if none."""
        raise NotImplementedError

    def sentence(self, lasted_s: float) -> tuple[str, str]:
        """Return the activity that took too long, and why that is an error, as a sentence."""
        raise NotImplementedError

    def overdue(self, thread: int, frame: FrameType | None) -> tuple[str, str] | None:
        """Return `sentence` if one activity has lasted longer than the limit; otherwise None."""
        now, held = time.monotonic(), self.busy(thread, frame)
        if held is None or (held is not self._held and held != self._held):
            self._held, self._since = held, now
            return None
        lasted_s = now - self._since
        return self.sentence(lasted_s) if lasted_s >= self.limit_s else None


class _Interruption(BaseException):
    """The exception raised in a call that takes too long; each has its own subclass."""

    said = ""  # the complete sentence


class _Thread(threading.Thread):
    """A thread that executes works sequentially.

    A new thread per work would leak memory, because MXNet keeps its allocations for a thread, 17 MB
    for the example CNN, until the process ends.
    """

    def __init__(self) -> None:
        super().__init__(name="geomx-run", daemon=True)
        self._works: SimpleQueue[_Work] = SimpleQueue()
        self.start()

    def do(self, work: _Work) -> None:
        """Execute `work` next."""
        self._works.put(work)

    def run(self) -> None:
        """See `threading.Thread.run`."""
        with suppress(_Interruption, KeyboardInterrupt):  # may be raised after the end of the work
            while self._works.get().do():
                pass


class _Work:
    """Work in another thread, with its state for the caller."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.looks: list[Look] = []
        self.on_abandon: list[Callable[[str], None]] = []
        self._context, self._function = contextvars.copy_context(), work
        self._done = threading.Event()
        self._interrupted = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = _idle.pop() if _idle else _Thread()

    def do(self) -> bool:
        """Execute the work in this thread; return whether the thread can be used again."""
        _here.work = self
        try:
            self._value = self._context.run(self._function)
        except BaseException as error:
            self._error = error
        finally:
            _here.work = None
            self._done.set()
        return not self._interrupted

    @property
    def ended(self) -> bool:
        """Whether the work has returned or raised an exception."""
        return self._done.is_set()

    def result(self) -> Any:
        """Start the work, monitor it, and return its result."""
        self._thread.do(self)
        try:
            while not self._done.wait(self._pause_s()):
                for look in self._asked():
                    found = look.overdue(*self._seen())
                    if found is not None:
                        self._interrupt(look, *found)
        except KeyboardInterrupt:
            try:
                self._stop()
            except KeyboardInterrupt:  # the second: the process is to end at once
                _abandoned.append(self)
                raise
            raise
        if not self._interrupted:  # otherwise, the exception may still be pending in the thread
            _idle.append(self._thread)
        error = self._error
        if isinstance(error, _Interruption):
            raise PluginError(error.said) from error
        if error is not None:
            raise error
        return self._value

    def _pause_s(self) -> float:
        return min([LOOK_S, *(look.limit_s / 8 for look in self._asked())])

    def _asked(self) -> list[Look]:
        """Return the current rules, the latest first."""
        looks = self.looks[::-1]
        last = next((index for index, look in enumerate(looks) if look.alone), len(looks))
        return looks[: last + 1]

    def _seen(self) -> tuple[int, FrameType | None]:
        thread = self._thread.ident or 0
        return thread, sys._current_frames().get(thread)

    def _interrupt(self, look: Look, what: str, wrong: str) -> None:
        """Interrupt an activity that takes too long; the work's own code handles the exception.

        Raises:
            PluginError: The activity cannot be interrupted.
        """
        said = f"{what} {wrong}"
        text = wrong if look.error is not BaseException else said
        self._raise(_interruption(look.error, text, said))
        deadline = time.monotonic() + YIELD_S
        while not self._done.wait(_POLL_S):
            if look not in self.looks or look.overdue(*self._seen()) is None:
                return
            if time.monotonic() > deadline:
                self._abandon(said)
                raise PluginError(said)

    def _stop(self) -> None:
        """After Ctrl-C, let the work end its processes and write its results."""
        self._raise(KeyboardInterrupt)
        patient_until = time.monotonic() + YIELD_S
        while not self._done.wait(_POLL_S):
            if not any(look.busy(*self._seen()) is not None for look in self._asked()):
                patient_until = time.monotonic() + YIELD_S  # it is geomx's own code
            elif time.monotonic() > patient_until:
                self._abandon("interrupted")
                return

    def _raise(self, error: type[BaseException]) -> None:
        self._interrupted = True
        thread = ctypes.c_ulong(self._thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(error))

    def _abandon(self, reason: str) -> None:
        _abandoned.append(self)
        for call in self.on_abandon:
            call(reason)


def _interruption(base: type[BaseException], text: str, said: str) -> type[BaseException]:
    """A class, as only classes can be raised in another thread; errors show its name and text."""
    bases = (_Interruption,) if base is BaseException else (_Interruption, base)
    return type("TimeoutError", bases, {"said": said, "__str__": lambda error: text})


_here = threading.local()
_process = SimpleNamespace(own=False)
_abandoned: list[_Work] = []
_idle: list[_Thread] = []
os.register_at_fork(after_in_child=_idle.clear)  # the child has none of these threads


def attended(work: Callable[[], T]) -> T:
    """Execute `work` in a separate thread and monitor it; within other work, call it directly.

    Returns:
        The result of `work`.

    Raises:
        PluginError: A call of a plugin took too long; the message names it.
        KeyboardInterrupt: The caller, and therefore the work, was interrupted.
        BaseException: The exception of `work`.
    """
    if here() is not None:
        return work()
    value: T = _Work(work).result()
    return value


def here() -> _Work | None:
    """Return the work that this thread executes; None if there is none."""
    return getattr(_here, "work", None)


def interrupted() -> bool:
    """Return whether this thread's work was interrupted; True where that cannot be known."""
    work = here()
    return work is None or work._interrupted


def any_abandoned() -> bool:
    """Return whether an abandoned call is still running."""
    return any(not work.ended for work in _abandoned)


@contextmanager
def looking(look: Look) -> Iterator[None]:
    """Apply a rule to this thread's work during the context; without effect in other threads."""
    work = here()
    if work is None:
        yield
        return
    work.looks.append(look)
    try:
        yield
    finally:
        work.looks.remove(look)


@contextmanager
def if_abandoned(call: Callable[[str], None]) -> Iterator[None]:
    """Register `call`, which receives the reason if the work is abandoned during the context."""
    work = here()
    if work is not None:
        work.on_abandon.append(call)
    try:
        yield
    finally:
        if work is not None:
            work.on_abandon.remove(call)


# ---- geomx's own processes ----


@contextmanager
def own_process() -> Iterator[None]:
    """Declare this process as geomx's own, which may have limits and alarms in its main thread."""
    before, _process.own = _process.own, True
    try:
        yield
    finally:
        _process.own = before


def is_own_process() -> bool:
    """Return whether this process is geomx's own."""
    return bool(_process.own)
