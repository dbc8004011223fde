"""Tells the launcher of waits by which it finds what will never come.

These are orders and answers of coordinators, and initial values.
"""

from __future__ import annotations

import sys
import threading
import time

from geomx.live.journal import Notes
from geomx.live.member import Member

LOOK_S = 0.25
"""Seconds between two looks of a thread."""


BUSY_SHARE = 0.1
"""Share of one processor core below which a process computes nothing."""


class EngineWait:
    """Whether a script's training waits for MXNet's engine, and nothing computes meanwhile.

    The engine runs the operations that exchange tensors, and none that needs their values: a script
    that reads such a value waits in MXNet, which does not tell for what. If the process uses no
    processor time meanwhile, the engine itself waits for the exchange.
    """

    def __init__(self) -> None:
        self._seen = time.monotonic(), time.process_time()

    def look(self, thread: int | None) -> bool:
        """Return whether that is so now, and no more was computed since the last look.

        Args:
            thread: The thread that trains; None: the main thread.
        """
        before, self._seen = self._seen, (time.monotonic(), time.process_time())
        passed_s, used_s = (now - then for now, then in zip(self._seen, before, strict=True))
        return self._in_mxnet(thread) and used_s <= BUSY_SHARE * passed_s

    @staticmethod
    def _in_mxnet(thread: int | None) -> bool:
        """Whether a function of MXNet has called what the thread executes."""
        mxnet = sys.modules.get("mxnet")
        trains = threading.main_thread().ident if thread is None else thread
        frame = sys._current_frames().get(trains) if trains is not None else None
        if mxnet is None or frame is None or not mxnet.__file__:
            return False
        return frame.f_code.co_filename.startswith(mxnet.__file__.removesuffix("__init__.py"))


class LongWaits:
    """Notes that a node has waited for longer than ``runtime.failure_timeout_s``.

    A node with the coordinator of an overlay notes that everything waits for its order, a global
    server that it waits for an initial value, and every node that it is idle: orders are missing
    only where no worker computes and nothing is under way, because a coordinator may wait for
    reports that are still to come. Initial values may be under way likewise.

    Args:
        member: The node.
        notes: Receives the notes.
    """

    def __init__(self, member: Member, notes: Notes) -> None:
        self._member, self._notes = member, notes
        self._limit_s = member.spec.runtime.failure_timeout_s
        self._is_worker = member.node.role == "worker"
        self._engine = EngineWait()
        self._since_s = time.monotonic()
        self._order = self._initial = -1
        self._idle = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Note what has changed; called several times within the limit."""
        if (order := self._member.loop.order_due) != self._order:
            self._order = order
            cluster, selection = self._member.spec.cluster, self._member.selection
            whom = "" if order < 0 else f"an order of {selection.coordinator(cluster, order)}"
            self._notes.waits(whom)
        if (initial := self._member.loop.initial_due) != self._initial:
            self._initial = initial
            self._notes.lacks(initial)
        if (idle := self._is_idle()) != self._idle:
            self._idle = idle
            self._notes.idle(idle)

    def begin(self) -> None:
        """Look again and again, on a thread of this process, until `end`."""
        self._thread = threading.Thread(target=self._look_often, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End that thread, if this process has it."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _look_often(self) -> None:
        while not self._over.wait(min(LOOK_S, self._limit_s / 4)):
            self.look()

    def _is_idle(self) -> bool:
        """Whether the worker has waited, and all that the node sent has arrived, for the limit."""
        # Nothing here waits for the loop, which may itself wait for a plugin that does not return.
        loop, now_s = self._member.loop, time.monotonic()
        works = self._is_worker and not loop.waits and not self._engine.look(self._member.thread)
        if works or not loop.settled:
            self._since_s = now_s
        return now_s - self._since_s >= self._limit_s
