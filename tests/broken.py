"""Breaks the TCP connections of running processes, like a restarting router."""

from __future__ import annotations

import ctypes
import os
import random
import socket
import struct
import threading
from pathlib import Path

PIDFD_OPEN, PIDFD_GETFD = 434, 438
_libc = ctypes.CDLL(None, use_errno=True)


def processes(folder: Path) -> list[int]:
    """Return the process ids of the nodes of the live run in `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if any(word.startswith(f"{folder}/nodes/") for word in words):
            found.append(int(entry.name))
    return found


def connections(pid: int) -> list[socket.socket]:
    """Return duplicates of a process' connected TCP sockets.

    Raises:
        PermissionError: This process is not allowed to duplicate them.
    """
    found = []
    process = _libc.syscall(PIDFD_OPEN, pid, 0)
    if process < 0:
        return []
    try:
        for entry in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                if not str(entry.readlink()).startswith("socket:"):
                    continue
            except OSError:
                continue
            copy = _libc.syscall(PIDFD_GETFD, process, int(entry.name), 0)
            if copy < 0:
                if ctypes.get_errno() == 1:
                    raise PermissionError("pidfd_getfd")
                continue
            one = socket.socket(fileno=copy)
            if one.type == socket.SOCK_STREAM and one.family in (socket.AF_INET, socket.AF_INET6):
                try:
                    one.getpeername()
                except OSError:
                    one.close()
                    continue
                found.append(one)
            else:
                one.close()
    finally:
        os.close(process)
    return found


def reset(connection: socket.socket) -> None:
    """Reset a connection, which loses the data in flight."""
    none = struct.pack("H", socket.AF_UNSPEC) + bytes(14)
    address = ctypes.create_string_buffer(none)
    _libc.connect(connection.fileno(), address, len(none))


class Breaker(threading.Thread):
    """Resets random connections of a run's nodes within its context.

    Args:
        folder: Folder of the run.
        pause_s: Seconds between two resets.
        seed: Seed of the choice of connections.
    """

    def __init__(self, folder: Path, pause_s: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.pause_s = pause_s
        self.count = 0
        self.refused = False
        self._random = random.Random(seed)
        self._done = threading.Event()

    def __enter__(self) -> Breaker:
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        while not self._done.wait(self.pause_s):
            nodes = processes(self.folder)
            if not nodes:
                continue
            try:
                found = connections(self._random.choice(nodes))
            except PermissionError:
                self.refused = True
                return
            if found:
                reset(self._random.choice(found))
                self.count += 1
            for each in found:
                each.close()
