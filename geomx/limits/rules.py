"""Plugins' code may take its time and memory, but not for ever and not all of it.

A codec that sleeps or loops keeps its node silent, and in a live run a node that is silent for
``runtime.failure_timeout_s`` is lost to the others without a word about why. So one call of a
plugin's may take that long, in both modes, and the watchdog names the call: in a live
node the watchman (`overdue`), elsewhere the thread that waits for an experiment
(`geomx.limits.watchdog`; the rules are `Calls` and `Hook`). A hook, which no other node waits for,
may take `HOOK_LIMIT_S` (`hook_limited`).

A process that takes memory until there is none is ended by the kernel, without a word either.
Within `memory_limited` it gets a refusal a little earlier: in a plugin's call that is a
MemoryError, which errors put down to the plugin.

Limits and alarms of the process are set only where the process is geomx's own (`own_process`): the
command line, a node, a worker of a study. In a script or notebook that calls `geomx.run` they are
not.
"""

from __future__ import annotations

import gc
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from geomx import _core
from geomx.limits.watchdog import Look, here, is_own_process, looking

HOOK_LIMIT_S = 30.0
"""Seconds that one hook may take; less than live nodes wait for each other to come up."""

MEMORY_SHARE = 0.9  # of the free memory; the rest is for other processes

_hooked: set[int] = set()  # threads that are in a hook, which has a limit of its own


def overdue(after_s: float, limit_s: float) -> str | None:
    """Return the error of a plugin's call that has lasted `after_s` seconds; None if none has."""
    for what, took_s, *_ in _core.python_calls():
        if took_s >= after_s:
            return f"{what} {_too_long(took_s, limit_s)}"
    return None


def _too_long(took_s: float, limit_s: float) -> str:
    remedy = f"runtime.failure_timeout_s={limit_s:g} is the limit of one call"
    return f"did not return for {took_s:.1f} s; {remedy}"


class Owners(Protocol):
    """Knows whose code runs in a frame: `geomx.plugin.selection.Selection`."""

    def owner(self, frame: FrameType) -> object | None:
        """Return the plugin whose code runs in `frame`; None if it belongs to no plugin."""

    def named(self, frame: FrameType) -> str:
        """Return a description of the call with its plugin, for errors."""


class Calls(Look):
    """One call of a plugin's.

    Args:
        limit_s: Seconds that it may take.
        plugins: Those that are selected.

    Attributes:
        told_s: The limit that sentences name, where it is not `limit_s`.
    """

    def __init__(self, limit_s: float, plugins: Owners) -> None:
        super().__init__(limit_s)
        self.told_s = limit_s
        self._plugins = plugins
        self._what: str | FrameType = ""

    def busy(self, thread: int, frame: FrameType | None) -> Any:
        """Return the running call on the data path, or the outermost frame of a plugin's code.

        A generator's frame is the same in every call, and passed over.
        """
        for what, _, caller, number in _core.python_calls():
            if caller == thread:
                self._what, self.error = what, Exception  # to which the core adds whose it is
                return number
        self.error = BaseException
        outermost = None
        if thread in _hooked:
            return None
        while frame is not None:
            if not frame.f_code.co_flags & CO_GENERATOR and self._plugins.owner(frame):
                self._what = outermost = frame
            frame = frame.f_back
        return outermost

    def sentence(self, lasted_s: float) -> tuple[str, str]:
        """See `Look.sentence`."""
        what = self._what if isinstance(self._what, str) else self._plugins.named(self._what)
        return what, _too_long(lasted_s, self.told_s)


class Hook(Look):
    """One call of a hook, or another call that nothing on the data path waits for."""

    alone = True
    error = TimeoutError  # which becomes an error that names the hook

    def __init__(self, what: str) -> None:
        super().__init__(HOOK_LIMIT_S)
        self._what = what

    def busy(self, thread: int, frame: FrameType | None) -> Any:
        """Return this rule itself, so that it applies as long as it is active."""
        return self

    def sentence(self, lasted_s: float) -> tuple[str, str]:
        """See `Look.sentence`."""
        return self._what, f"did not return for {self.limit_s:g} s, the limit of one hook"


@contextmanager
def hook_limited(what: str) -> Iterator[None]:
    """Make `what`, a hook, raise `TimeoutError` if it takes longer than `HOOK_LIMIT_S`.

    In attended work (`geomx.limits.watchdog`), and in the main thread of a process of geomx's own;
    elsewhere nothing is limited.
    """
    hook, thread = Hook(what), threading.get_ident()

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(hook.sentence(HOOK_LIMIT_S)[1])

    within = thread in _hooked
    _hooked.add(thread)
    try:
        with looking(hook) if here() is not None else _alarm(end, HOOK_LIMIT_S):
            yield
    finally:
        if not within:
            _hooked.discard(thread)


@contextmanager
def _alarm(ring: Callable[[int, FrameType | None], None], every_s: float) -> Iterator[None]:
    main = threading.current_thread() is threading.main_thread()
    if not is_own_process() or not main or signal.getitimer(signal.ITIMER_REAL)[0] > 0:
        yield
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, every_s, every_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the search for reference cycles, if this process is geomx's own.

    A simulation makes none on its way, and looking for them costs it time.
    """
    collecting = is_own_process() and gc.isenabled()
    if collecting:
        gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def memory_limited() -> Iterator[None]:
    """Limit this process, if it is geomx's own, to `MEMORY_SHARE` of the free memory.

    Its children inherit the limit.
    """
    if not is_own_process():
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = _held_bytes() + int(MEMORY_SHARE * _free_bytes())
    limits = [limit for limit in (most, *before) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _held_bytes() -> int:
    """What counts against the limit already."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[5]
    return int(pages) * resource.getpagesize()


def _free_bytes() -> int:
    """What the machine, and the container around us, has left."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    group = Path("/sys/fs/cgroup")
    try:
        most = int((group / "memory.max").read_text(encoding="ascii"))
        held = int((group / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return free  # no such group, or one without a limit
    return min(free, max(0, most - held))
