"""Calls a tracker in a thread of its own, so that one whose server does not answer ends no run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from geomx.limits import rules
from geomx.plugin.tracking import Tracker

POLL_S = 0.1
"""Interval at which the calling thread can be interrupted while a tracker works."""


class Call:
    """One call of a tracker.

    Args:
        function: Receives the tracker.

    Attributes:
        ended: Set when it has returned.
        failure: What was wrong; None if nothing was.
    """

    def __init__(self, function: Callable[[Tracker], None]) -> None:
        self._function = function
        self.ended = threading.Event()
        self.failure: str | None = None

    def make(self, tracker: Tracker) -> None:
        """Make the call; no exception leaves this."""
        try:
            self._function(tracker)
        except BaseException as error:
            self.failure = f"{type(error).__name__}: {error}".strip(": ")
        self.ended.set()


class Apart:
    """A tracker with its thread.

    Args:
        label: Its plugin, as named in warnings.
        tracker: The tracker.
    """

    def __init__(self, label: str, tracker: Tracker) -> None:
        self.label = label
        self._tracker = tracker
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        threading.Thread(target=self._work, name="geomx-tracker", daemon=True).start()

    def tell(self, function: Callable[[Tracker], None]) -> str | None:
        """Call a function with the tracker; return what was wrong, and None if nothing was."""
        call = Call(function)
        self._calls.put(call)
        deadline_s = time.monotonic() + rules.HOOK_LIMIT_S
        while not call.ended.wait(POLL_S):
            if time.monotonic() > deadline_s:
                return f"did not return for {rules.HOOK_LIMIT_S:g} s"
        return call.failure

    def close(self) -> None:
        """End the thread after the call that it is making."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call.make(self._tracker)
