"""Plugins' Python parts may take their time, but not for ever.

A codec that sleeps or loops keeps its node silent, and in a live run a node that is silent for
``runtime.failure_timeout_s`` is lost to the others without a word about why. So one call of a
plugin's may take that long, in both modes, and whoever watches says which call it was: in a live
node the watchman (`overdue`), in the simulator an alarm (`calls_limited`).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from geomx import _core


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
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def look(number: int, frame: FrameType | None) -> None:
        for _, took_s in _core.python_calls():
            if took_s >= limit_s:
                raise TimeoutError(f"did not return for {took_s:.1f} s; {_remedy(limit_s)}")

    before = signal.signal(signal.SIGALRM, look)
    every_s = limit_s / 4
    signal.setitimer(signal.ITIMER_REAL, every_s, every_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
