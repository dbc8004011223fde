"""Plugins' Python parts may take their time and memory, but not for ever and not all of it.

A codec that sleeps or loops keeps its node silent, and in a live run a node that is silent for
``runtime.failure_timeout_s`` is lost to the others without a word about why. So one call of a
plugin's may take that long, in both modes, and whoever watches says which call it was: in a live
node the watchman (`overdue`), in the simulator an alarm (`calls_limited`). A hook, which nobody
waits for, may take `HOOK_LIMIT_S` (`hook_limited`).

Who takes memory until there is none is ended by the kernel, without a word either. Within
`memory_limited` the process gets a refusal a little earlier: in a plugin's call that is a
MemoryError, which errors put down to the plugin.
"""

from __future__ import annotations

import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from geomx import _core

HOOK_LIMIT_S = 30.0
"""Seconds that one hook may take; less than live nodes wait for each other to come up."""

MEMORY_SHARE = 0.9  # of what is free: the rest is for everybody else


def overdue(after_s: float, limit_s: float) -> str | None:
    """A sentence about a plugin's call that has been under way for `after_s`, if there is one."""
    for what, took_s in _core.python_calls():
        if took_s >= after_s:
            return f"{what} did not return for {took_s:.1f} s; {_remedy(limit_s)}"
    return None


def _remedy(limit_s: float) -> str:
    return f"runtime.failure_timeout_s={limit_s:g} is the most that one call may take"


@contextmanager
def calls_limited(limit_s: float) -> Iterator[None]:
    """Have calls of plugins' Python parts that take longer than this raise `TimeoutError` inside.

    Only the main thread can be interrupted; in others nothing is limited.
    """

    def look(number: int, frame: FrameType | None) -> None:
        for _, took_s in _core.python_calls():
            if took_s >= limit_s:
                raise TimeoutError(f"did not return for {took_s:.1f} s; {_remedy(limit_s)}")

    with _alarm(look, limit_s / 4):
        yield


@contextmanager
def hook_limited() -> Iterator[None]:
    """Have a hook that takes longer than `HOOK_LIMIT_S` raise `TimeoutError` inside.

    Only in the main thread, and where nobody has set an alarm.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"did not return for {HOOK_LIMIT_S:g} s, the most that a hook may take")

    with _alarm(end, HOOK_LIMIT_S):
        yield


@contextmanager
def _alarm(ring: Callable[[int, FrameType | None], None], every_s: float) -> Iterator[None]:
    taken = threading.current_thread() is not threading.main_thread()
    if taken or signal.getitimer(signal.ITIMER_REAL)[0] > 0:
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
def memory_limited() -> Iterator[None]:
    """Have this process refused memory beyond `MEMORY_SHARE` of what is free now."""
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
