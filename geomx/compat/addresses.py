"""The address that this process listens on, and its log.

On one machine everything is on the loopback address, as are the schedulers. Otherwise the address
is DMLC_NODE_HOST, or that of DMLC_INTERFACE, or that by which the scheduler was reached.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from geomx._core import send_notices
from geomx.compat.roles import Address, Role, flag
from geomx.compat.variables import KNOWN
from geomx.errors import ConfigError
from geomx.live.journal import Notes
from geomx.live.member import Member
from geomx.live.relay import is_shown

FOLDER = "GEOMX_COMPAT"
"""Environment variable with the folder of ``geomx compat``, for its processes."""

REMARKS = "remarks.txt"
"""File of remarks for the user, in that folder."""


def about(role: Role, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the description with which a process registers.

    Args:
        role: Role of the process.
        environ: Its environment variables.
    """
    return {
        "kind": role.kind,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "master": role.master,
        "party": role.party,
        "environ": {name: environ[name] for name in KNOWN if name in environ},
    }


def listen_at(address: Address, environ: Mapping[str, str]) -> Address:
    """Return the address that a scheduler's hub listens on.

    Args:
        address: The scheduler's address.
        environ: Its environment variables.
    """
    return ("0.0.0.0", address[1]) if flag(environ, "DMLC_USE_KUBERNETES") else address


def own_host(here: str, environ: Mapping[str, str]) -> str:
    """Return the address for the job's connections to this process.

    Args:
        here: Address by which this process reaches its scheduler.
        environ: Its environment variables.

    Raises:
        ConfigError: The interface does not exist here.
    """
    if environ.get("DMLC_NODE_HOST"):
        return environ["DMLC_NODE_HOST"]
    name = environ.get("DMLC_INTERFACE", "")
    if here.startswith("127.") or not name:
        return here
    for _, interface in socket.if_nameindex():
        if interface.startswith(name):
            return _address_of(interface)
    known = ", ".join(interface for _, interface in socket.if_nameindex())
    raise ConfigError("DMLC_INTERFACE", name, f"must be one of {known}")


def resolved(host: str) -> str:
    """Return the IPv4 address of `host`.

    Raises:
        ConfigError: It has none.
    """
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise ConfigError("DMLC_PS_ROOT_URI", host, f"cannot be resolved: {error}") from error


def outward() -> str:
    """Return the address by which this machine reaches others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            any_socket.connect(("198.51.100.1", 9))  # a documentation address: nothing is sent
        except OSError:
            return "127.0.0.1"
        return str(any_socket.getsockname()[0])


def _address_of(interface: str) -> str:
    """Return the IPv4 address of a network interface (Linux)."""
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack("256s", interface.encode()[:15])
        try:
            answer = fcntl.ioctl(any_socket.fileno(), 0x8915, asked)  # SIOCGIFADDR
        except OSError as error:
            raise ConfigError("DMLC_INTERFACE", interface, f"has no address: {error}") from error
    return socket.inet_ntoa(answer[20:24])


class ProcessLog:
    """The files of a process in the folder of ``geomx compat``: its log, and its exit status.

    A worker's output is copied to the log, even if the launch script redirects or discards it.

    Args:
        kind: Role of the process.
        environ: Its environment variables; without `FOLDER` nothing is written.

    Attributes:
        name: Name of the process.
        stem: Path of its files without suffix; None: it has none.
        ended: Whether its exit status was recorded.
    """

    def __init__(self, kind: str, environ: Mapping[str, str]) -> None:
        self.ended = False
        folder = environ.get(FOLDER)
        self._verbose = environ.get("PS_VERBOSE", "0") not in ("", "0")
        self._notes: Notes | None = None
        self.stem: Path | None = None
        self._folder: Path | None = None
        self._nodes: dict[str, Any] = {}
        self.name = kind
        if folder:
            self._folder = Path(folder)
            self.stem = self._folder / f"{kind}-{os.getpid()}"
            self._notes = Notes(self.stem)
            log = self.stem.with_name(self.stem.name + ".log").open("w", encoding="utf-8")
            send_notices(log.fileno())
            sys.stdout = _Both(sys.stdout, log)
            sys.stderr = _Errors(sys.stderr, log)

    def call(self, name: str) -> None:
        """Set the name of this process, and rename its files."""
        self.name = name
        if self.stem is not None:
            stem = self.stem.with_name(name.replace("/", "-"))
            for suffix in (".log", ".jsonl"):
                os.replace(
                    self.stem.with_name(self.stem.name + suffix),
                    stem.with_name(stem.name + suffix),
                )
            self.stem = stem
        if self._verbose:
            print(f"geomx: process {os.getpid()} is {name}", file=sys.stderr, flush=True)

    def remark(self, notes: list[str]) -> None:
        """Show remarks to the user; called once per job."""
        if self._folder is not None:
            text = "".join(f"{note}\n" for note in notes)
            (self._folder / REMARKS).write_text(text, encoding="utf-8")
            return
        for note in notes:
            print(f"geomx: {note}", file=sys.stderr, flush=True)

    def started(self, monotonic_s: float) -> None:
        """Record the start of the job."""
        if self._notes is not None:
            self._notes.started(monotonic_s)

    def measured(self, members: Sequence[Member]) -> None:
        """Keep the counters of this process's nodes for `end`."""
        self._nodes = {member.node.name: member.loop.stats() for member in members}

    def end(self, status: int) -> None:
        """Record the exit status; a second call has no effect."""
        self.ended = True
        if self._notes is not None:
            at_s = time.monotonic()  # of one machine's processes: the first failure is the cause
            self._notes.end(status=status, name=self.name, nodes=self._nodes, at_s=at_s)


class _Both:
    """A stream that is also written to a file, line by line."""

    def __init__(self, stream: IO[str], log: IO[str]) -> None:
        self._stream = stream
        self._log = log

    def write(self, text: str) -> int:
        """Write to both; return the number of characters."""
        self._log.write(text)
        self._log.flush()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Errors(_Both):
    """Standard error. Lines of geomx's log go to the file only: the command shows them from there.

    It chooses among the waits of all processes (`geomx.live.relay`), and scripts may discard them.
    """

    _is_log = False

    def write(self, text: str) -> int:
        """Write to both, or to the file; return the number of characters."""
        if text != "\n":  # which `print` writes by itself
            self._is_log = is_shown(text)
        if not self._is_log:
            return super().write(text)
        self._log.write(text)
        self._log.flush()
        return len(text)
