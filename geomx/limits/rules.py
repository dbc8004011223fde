"""Limits on the time and memory of plugins' code.

A codec that sleeps or loops silences its node. In a live run, other nodes would declare the node
lost after ``runtime.failure_timeout_s``, without a reason. A call of a plugin may therefore take at
most that time, in both modes, and the error names the call. Live nodes check this by `overdue`;
elsewhere, the thread that waits for an experiment does (`geomx.limits.watchdog`, with the rules
`Calls` and `Hook`). Hooks, for which no other node waits, may take `HOOK_LIMIT_S` (`hook_limited`).

The kernel kills a process that uses all memory, also without a reason. Within `memory_limited`,
allocations fail a little earlier: in a plugin's call, this raises a MemoryError, which is
attributed to the plugin.

Limits and alarms of the process are set only in geomx's own processes (`own_process`): the command
line, nodes, and workers of studies, but not in a script or notebook that calls `geomx.run`.
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
"""Time limit of a hook in seconds; less than the time for which live nodes wait at the start."""

MEMORY_SHARE = 0.9  # of the free memory; the rest is for other processes
SEARCH_EVERY = 10  # simulations in a program's process; a search takes about a tenth of a second

_hooked: set[int] = set()  # threads in a hook, which has its own limit


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
    """Finds the plugin of a frame; implemented by `geomx.plugin.selection.Selection`."""

    def owner(self, frame: FrameType) -> object | None:
        """Return the plugin whose code runs in `frame`; None if it belongs to no plugin."""

    def named(self, frame: FrameType) -> str:
        """Return a description of the call with its plugin, for errors."""


class Calls(Look):
    """The rule for a call of a plugin.

    Args:
        limit_s: Time limit in seconds.
        plugins: The selected plugins.

    Attributes:
        told_s: The limit that errors name, if it differs from `limit_s`.
    """

    def __init__(self, limit_s: float, plugins: Owners) -> None:
        super().__init__(limit_s)
        self.told_s = limit_s
        self._plugins = plugins
        self._what: str | FrameType = ""

    def busy(self, thread: int, frame: FrameType | None) -> Any:
        """Return the running call on the data path, or the outermost frame of a plugin's code.

        Frames of generators are skipped, because they are the same in every call.
        """
        for what, _, caller, number in _core.python_calls():
            if caller == thread:
                self._what, self.error = what, Exception  # the core adds the plugin's label
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
    """The rule for a call of a hook, or for another call outside the data path."""

    alone = True
    error = TimeoutError  # converted to an error that names the hook

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

    Applies to attended work (`geomx.limits.watchdog`), and to the main thread of geomx's own
    processes; without effect elsewhere.
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
def _alarm(handle: Callable[[int, FrameType | None], None], every_s: float) -> Iterator[None]:
    main = threading.current_thread() is threading.main_thread()
    if not is_own_process() or not main or signal.getitimer(signal.ITIMER_REAL)[0] > 0:
        yield
        return
    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, every_s, every_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def uncollected() -> Iterator[None]:
    """Spare a simulation the search for reference cycles, which takes time.

    If this process is geomx's own, there is no search. Otherwise only what is created meanwhile is
    searched, and not the objects of all libraries that are loaded. A simulation is a cycle itself:
    build it in the block, at whose end it is freed, unless it is referred to.
    """
    disabling = is_own_process() and gc.isenabled()
    freezing = not disabling and gc.isenabled() and not Program.has_frozen()
    if disabling:
        gc.disable()
    if freezing:
        gc.freeze()
    try:
        yield
    finally:
        if disabling:
            gc.enable()
        if freezing:
            gc.collect()  # of what was created in the block alone
            gc.unfreeze()
            Program.catch_up()


class Program:
    """What is known of the program that has imported geomx.

    Attributes:
        froze: Whether it had frozen objects (`gc.freeze`) in an earlier simulation.
        owed: Number of simulations since all objects were searched for reference cycles.
    """

    froze = False
    owed = 0

    @classmethod
    def has_frozen(cls) -> bool:
        """Return whether it has frozen objects; once it has, they are not counted again.

        Counting visits each of them: for a million, that takes as long as a small simulation.
        """
        cls.froze = cls.froze or gc.get_freeze_count() > 0
        return cls.froze

    @classmethod
    def catch_up(cls) -> None:
        """Search all objects after every tenth simulation.

        `gc.freeze` resets the counters by which Python decides when to do so. A program that
        simulates again and again would otherwise keep all cycles that it has made.
        """
        cls.owed = (cls.owed + 1) % SEARCH_EVERY
        if cls.owed == 0:
            gc.collect()


@contextmanager
def memory_limited() -> Iterator[None]:
    """Limit this process, if it is geomx's own, to `MEMORY_SHARE` of the free memory.

    Its children inherit the limit.
    """
    if not is_own_process():
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = _held_bytes() + int(MEMORY_SHARE * free_bytes())
    limits = [limit for limit in (most, *before) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _held_bytes() -> int:
    """Return the bytes that already count towards the limit."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[5]
    return int(pages) * resource.getpagesize()


def free_bytes() -> int:
    """Return the free bytes of the machine, or of this process' container if that has fewer."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    group = Path("/sys/fs/cgroup")
    try:
        most = int((group / "memory.max").read_text(encoding="ascii"))
        held = int((group / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return free  # no such group, or one without a limit
    return min(free, max(0, most - held))
