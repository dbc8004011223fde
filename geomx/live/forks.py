"""Nodes on this machine as forks of one process that has imported their modules.

`ForkServer` is the launcher's interface to that process (`geomx.live.fork_server`). `Fork` is a
node, with the interface of a `geomx.live.lifetime.Tied` process.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO, Any

from geomx.errors import GeomxError
from geomx.live.descriptors import readable
from geomx.live.exit_status import FAILED, signal_name
from geomx.live.fork_pool import POOL, Program, circumstances
from geomx.live.lifetime import MARK, Family, Tied, new_mark

MESSAGE_BYTES = 1 << 20  # upper bound on a message of the socket
MORE_ROOM = 256  # padding in bytes, for commands of nodes longer than the first node's
START_S = 5.0  # time limit for the process id of a node, before it can be killed


def command(arguments: Sequence[str]) -> list[str]:
    """Return the command line of a separately started node, which ``ps`` shows for forks too."""
    return [sys.executable, "-P", "-m", "geomx.live", *arguments]


class ForkServer:
    """Starts nodes by forks. The server process starts with the first node; `end` kills all.

    Args:
        environment: Environment variables of all nodes, in addition to this process' own.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._program: Program | None = None
        self._socket: socket.socket | None = None  # the program's, until it or the run ends
        self._ended = False
        self._status: int | None = None  # of the program, if it has ended before this
        self._unnamed: deque[Fork] = deque()  # nodes without a known process id, in order
        self._forks: dict[int, Fork] = {}

    def start(
        self,
        arguments: Sequence[str],
        output: IO[bytes],
        log: IO[bytes],
        namespace: str | None = None,
        words: IO[bytes] | None = None,
    ) -> Fork:
        """Start a node; return without waiting for its process.

        Args:
            arguments: Arguments of ``python -m geomx.live``, without the launcher's process id.
            output: The node's standard output.
            log: The node's standard error, and until the next node starts the server's.
            namespace: Path of the node's network namespace; None: this process' own.
            words: The node's standard input; None: the server's.
        """
        if self._program is None:
            begin = partial(self._begin, arguments, log)
            self._program = POOL.take() or POOL.start(begin)
            self._socket = self._program.socket
        fork = Fork(self, arguments)
        self._unnamed.append(fork)
        request = {
            "arguments": list(arguments),
            "environment": {**self._environment, MARK: fork.mark},
            "namespace": namespace,
        }
        try:
            assert self._socket is not None
            streams = [stream.fileno() for stream in (output, log, words) if stream is not None]
            socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
        except (BrokenPipeError, ConnectionResetError, AssertionError):
            self._lost()
        return fork

    def hear(self, timeout_s: float) -> bool:
        """Receive one report, within `timeout_s`; return whether there was one."""
        if self._socket is None:
            return False
        if not readable([self._socket.fileno()], timeout_s):
            return False
        try:
            text = self._socket.recv(MESSAGE_BYTES)
        except ConnectionResetError:
            text = b""
        if text:
            self._take(json.loads(text))
        else:
            self._lost()
        return True

    def check(self) -> None:
        """Check that the server runs, after `hear`.

        Raises:
            GeomxError: It has ended, and with it all nodes.
        """
        if self._status is not None:
            how = f"ended with exit status {self._status}"
            if self._status < 0:
                how = f"was killed by {signal_name(self._status)}"
            raise GeomxError(f"the process that starts the nodes {how}, and its nodes with it")

    def end(self) -> None:
        """Kill the server, its nodes, and the processes that they started.

        Within `kept`, a server without nodes waits for the next run instead.
        """
        unused = self._socket is not None and not self._unnamed and not self._forks
        self._socket = None
        if self._program is None or self._ended:
            return
        self._ended = True
        if unused:
            POOL.put(self._program)
        else:
            self._program.end()

    def _begin(self, arguments: Sequence[str], log: IO[bytes]) -> Program:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        room = "." * (sum(len(os.fsencode(word)) + 1 for word in arguments) + MORE_ROOM)
        number = theirs.fileno()
        with theirs:
            process = Tied(
                [sys.executable, "-P", "-m", "geomx.live.fork_server", str(os.getpid()),
                 str(number), room],
                {}, stdout=log, stderr=log, pass_fds=[number],
            )  # fmt: skip
        return Program(process, ours, circumstances())

    def _take(self, report: dict[str, Any]) -> None:
        if "ended" in report:
            self._forks.pop(report["ended"]).returncode = report["status"]
            return
        fork = self._unnamed.popleft()
        if report["pid"] is None:
            fork.returncode = FAILED
        else:
            fork.pid = report["pid"]
            self._forks[fork.pid] = fork

    def _lost(self) -> None:
        """Handle the end of the server, and with it of all nodes."""
        self._socket = None
        if self._program is not None and not self._ended:
            self._status = self._program.process.wait()
        for fork in (*self._unnamed, *self._forks.values()):
            fork.returncode = -signal.SIGKILL
        self._unnamed.clear()
        self._forks.clear()


class Fork(Family):
    """A node's process.

    Attributes:
        returncode: The exit status as in `subprocess.Popen`; None while the node runs.
    """

    def __init__(self, server: ForkServer, arguments: Sequence[str]) -> None:
        self.mark = new_mark()
        self.pid = 0  # unknown
        self.returncode: int | None = None
        self._server = server
        self._arguments = arguments

    def poll(self) -> int | None:
        """Return the exit status; None while the node runs."""
        while self.returncode is None and self._server.hear(0):
            pass
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the node has ended; return the exit status.

        Raises:
            subprocess.TimeoutExpired: The node still runs after `timeout` seconds.
        """
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        while self.poll() is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(command(self._arguments), timeout or 0.0)
            self._server.hear(min(left_s, 1.0))
        assert self.returncode is not None
        return self.returncode

    def signal_all(self, number: int) -> None:
        """See `Family.signal_all`."""
        deadline = time.monotonic() + START_S
        while not self.pid and self.returncode is None and time.monotonic() < deadline:
            self._server.hear(deadline - time.monotonic())
        if self.pid:
            super().signal_all(number)
