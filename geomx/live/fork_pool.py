"""Runs one after the other share the process that forks their nodes (`geomx.live.forks`).

Otherwise each run starts its own, whose imports take half a second of processor time.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from geomx.live.lifetime import Tied


def circumstances() -> dict[str, Any]:
    """Return what a process inherits from this one when it starts, and its forks from it."""
    return {
        **os.environ,
        "working directory": os.getcwd(),
        "processors": os.sched_getaffinity(0),
        "limits": [
            resource.getrlimit(value)
            for name, value in sorted(vars(resource).items())
            if name.startswith("RLIMIT_")
        ],
    }


@dataclass
class Program:
    """A process that forks nodes, and this process' end of the socket to it.

    Attributes:
        circumstances: Those of this process when it was started.
    """

    process: Tied
    socket: socket.socket
    circumstances: dict[str, Any]

    def end(self) -> None:
        """Kill the process and its forks."""
        self.socket.close()
        self.process.signal_all(signal.SIGKILL)
        self.process.wait()


@dataclass
class Pool:
    """Where one idle program waits for the next run, within `kept`.

    Attributes:
        users: Number of `kept` blocks that have not ended.
        thread: Starts programs meanwhile: the kernel ends them with the thread that started them.
        program: The program that waits, if one does.
        apart_from: Environment variables that may differ between the runs.
    """

    users: int = 0
    thread: ThreadPoolExecutor | None = None
    program: Program | None = None
    apart_from: frozenset[str] = frozenset()
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> Program | None:
        """Return the program that waits, if a new one would be the same."""
        with self.lock:
            program, self.program = self.program, None
        if program is None:
            return None
        now, then = circumstances(), program.circumstances
        same = all(now.get(name) == then.get(name) for name in {*now, *then} - self.apart_from)
        if same and program.process.poll() is None:
            return program
        program.end()
        return None

    def start(self, begin: Callable[[], Program]) -> Program:
        """Start a program by `begin`."""
        thread = self.thread
        return begin() if thread is None else thread.submit(begin).result()

    def put(self, program: Program) -> None:
        """Let a program that has no forks wait, if one is wanted; otherwise end it."""
        with self.lock:
            if self.users and self.program is None:
                self.program = program
                return
        program.end()

    def leave(self) -> None:
        """Count one user less; after the last one, end what waits."""
        with self.lock:
            self.users -= 1
            if self.users:
                return
            program, self.program = self.program, None
            thread, self.thread = self.thread, None
            self.apart_from = frozenset()
        if program is not None:
            program.end()
        if thread is not None:
            thread.shutdown()

    def forget(self) -> None:
        """Begin anew in a fork of this process, which has neither the thread nor the program."""
        self.__init__()  # type: ignore[misc]


POOL = Pool()
os.register_at_fork(after_in_child=POOL.forget)


@contextmanager
def kept(apart_from: Collection[str] = ()) -> Iterator[None]:
    """Let live runs within the block, one after the other, use one process that forks their nodes.

    A run starts its own where another is using it, or where this process' environment, working
    directory, processors or limits have changed. Changes of modules that geomx ships count from the
    next block on.

    Args:
        apart_from: Environment variables that may change without effect on nodes.
    """
    with POOL.lock:
        POOL.users += 1
        POOL.apart_from |= frozenset(apart_from)
        POOL.thread = POOL.thread or ThreadPoolExecutor(1, "starts-fork-servers")
    try:
        yield
    finally:
        POOL.leave()
