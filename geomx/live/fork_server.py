"""The program that forks the nodes of a live run: ``python -m geomx.live.fork_server``.

It imports the modules of a node once, and then forks a process for each request, which takes a
tenth of the processor time of starting one. It executes no code of the run, and has no threads
except those of NumPy's linear algebra, which ends them before a fork. A forked node has its own
process group, environment, log and command line, like a separately started one. When the launcher
ends, this process ends, and when this process ends, its nodes are killed.

Requests and replies are JSON, one per message of the socket that the launcher passes
(`geomx.live.forks` is the other end).

The request ``{"arguments": [...], "environment": {...}, "namespace": path}`` (the path of a network
namespace, or null) is sent with descriptors for the output and the log, and optionally for the
input. Requests are answered in order by ``{"pid": number}`` (null if no process could be created;
the log contains the reason). When a node ends, ``{"ended": pid, "status": status}`` is sent.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.metadata
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from geomx._core import enter_namespace
from geomx.imports import without_collections

with without_collections():
    from geomx.live.descriptors import readable
    from geomx.live.exit_status import FAILED
    from geomx.live.forks import MESSAGE_BYTES, command
    from geomx.live.lifetime import tie_to_parent
    from geomx.live.node import main as run_node
    from geomx.plugin.registry import ENTRY_POINTS, Registry


class Server:
    """Forks nodes until the launcher closes its end of `requests`."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._pid = os.getpid()
        self._awake, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Answer requests."""
        signal.signal(signal.SIGCHLD, lambda *_: None)  # enables the wake-up descriptor
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        gc.freeze()  # keeps pages shared with the nodes, as collections do not write to them
        requests = self._requests.fileno()
        while True:
            ready = readable([requests, self._awake])
            if self._awake in ready:
                os.read(self._awake, MESSAGE_BYTES)
                self._report()
            if requests in ready and not self._answer():
                return

    def _answer(self) -> bool:
        """Fork the process of one request; return False if there are no more."""
        text, streams, _, _ = socket.recv_fds(self._requests, MESSAGE_BYTES, 3)
        if not text:
            return False
        pid: int | None = None
        for number in (1, 2):  # this process' own words belong to the run that it serves now
            os.dup2(streams[1], number)
        try:
            pid = os.fork()
        except OSError as error:
            os.write(streams[1], f"cannot start a process: {error.strerror}\n".encode())
        if pid == 0:
            self._become(json.loads(text), streams)
        for stream in streams:
            os.close(stream)
        if pid is not None:
            with contextlib.suppress(OSError):  # the child does the same; one of the two is first
                os.setpgid(pid, pid)
        self._tell(pid=pid)
        return True

    def _report(self) -> None:
        """Report the nodes that have ended."""
        with contextlib.suppress(ChildProcessError):  # there are no children
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self._tell(ended=pid, status=os.waitstatus_to_exitcode(status))

    def _tell(self, **facts: Any) -> None:
        self._requests.send(json.dumps(facts).encode())

    # ---- in the new process ----

    def _become(self, request: dict[str, Any], streams: Sequence[int]) -> NoReturn:
        """Run a node, and end the process with its exit status."""
        status = FAILED
        try:
            self._leave_server()
            for number, stream in zip((1, 2, 0), streams, strict=False):
                os.dup2(stream, number)
                os.close(stream)
            os.environ.update(request["environment"])
            arguments = [*request["arguments"], "--parent", str(self._pid)]
            show(command(arguments))
            if request["namespace"]:
                with open(request["namespace"], "rb") as namespace:
                    enter_namespace(namespace.fileno())
            np.random.seed()  # otherwise all nodes would draw the same numbers
            status = run_node(arguments)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else FAILED
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(status)

    def _leave_server(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)
        self._requests.close()
        os.close(self._awake)
        os.close(self._wake)


def show(words: Sequence[str]) -> None:
    """Set the command line of this process, as shown by ``ps``, truncated to the available room.

    The kernel reads it from the memory of this process' own arguments, which are padded for this.
    """
    fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
    start, end = map(int, fields.rpartition(")")[2].split()[45:47])
    room = end - start
    if start and room > 0:
        text = b"\0".join(map(os.fsencode, words))[: room - 1]
        ctypes.memmove(start, text.ljust(room, b"\0"), room)


def import_own_plugins() -> None:
    """Import the built-in plugins; nodes import the others, whose imports may have side effects."""
    registry = Registry()
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if point.module.partition(".")[0] == "geomx":
            registry.load(point.value)  # nodes repeat, and report, a failure


def main(arguments: Sequence[str]) -> None:
    """Serve the launcher.

    Args:
        arguments: The launcher's process id, the descriptor of a socket to it, and padding for the
            command lines of nodes.
    """
    tie_to_parent(int(arguments[0]))
    with without_collections():
        import_own_plugins()
    Server(socket.socket(fileno=int(arguments[1]))).serve()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the launcher has ended
        main(sys.argv[1:])
