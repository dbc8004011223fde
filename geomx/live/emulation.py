"""The network of a live run on one machine: loopback, or network namespaces.

With ``emulate=shaper`` and ``emulate=none``, all processes use the machine's loopback; with
``shaper``, each node emulates its own links (`geomx.experiment.links.shape`). ``emulate=netns``
gives each site a network namespace, and starts the process that forwards packets between them
(`geomx.live.namespaces`).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from geomx._core import why_no_namespaces
from geomx.cluster import Cluster, NodeSpec
from geomx.errors import ConfigError, GeomxError
from geomx.experiment.experiment import Experiment
from geomx.live import wan_events
from geomx.live.descriptors import readable
from geomx.live.files import Reader
from geomx.live.namespaces import address, sites

READY_TIMEOUT_S = 60.0
"""Time limit in seconds for the creation of the namespaces."""

GOODBYE_S = 2.0


def check(experiment: Experiment) -> None:
    """Check, before a run, that this machine supports the selected emulation.

    Args:
        experiment: The experiment.

    Raises:
        ConfigError: It does not; the message contains an alternative.
    """
    streams = experiment.tcp.streams
    if experiment.emulate != "shaper" and streams > 1:
        remedy = "must be 1: only emulate=shaper opens several connections per pair of nodes"
        raise ConfigError("tcp.streams", streams, remedy)
    if experiment.emulate == "shaper" and experiment.tcp.ack_share:
        remedy = "must be 0: no acknowledgements cross the network that emulate=shaper emulates"
        raise ConfigError("tcp.ack_share", experiment.tcp.ack_share, remedy)
    if experiment.emulate != "netns":
        return
    why = why_no_namespaces()
    if why:
        remedy = "needs root and a Linux kernel with network namespaces and TUN devices"
        raise ConfigError("emulate", "netns", f"{remedy} ({why}); emulate=shaper needs neither")
    if experiment.tcp.queueing != "fifo":
        remedy = (
            "must be fifo: routers between namespaces ignore priorities; emulate=shaper obeys them"
        )
        raise ConfigError("tcp.queueing", experiment.tcp.queueing, remedy)
    check_congestion(experiment.tcp.congestion)


def check_congestion(name: str) -> None:
    """Check that this kernel has a congestion control.

    Args:
        name: Its name.

    Raises:
        ConfigError: It does not; the message lists the available ones.
    """
    with socket.socket() as tried:
        try:
            tried.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
            remedy = (
                f"this kernel offers {', '.join(known)} ({error.strerror}); "
                "choose one of them, or emulate=shaper"
            )
            raise ConfigError("tcp.congestion", name, remedy) from error


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Move the calling thread, and processes started during the context, to a network namespace."""
    with open(namespace, "rb") as there, wan_events.inside(there.fileno()):
        yield


class Loopback:
    """All processes on 127.0.0.1. A context manager, like all emulated networks."""

    def __enter__(self) -> Loopback:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def host(self, node: NodeSpec) -> str:
        """Return the address on which a node listens."""
        return "127.0.0.1"

    def namespace(self, node: NodeSpec) -> str | None:
        """Return the path of the network namespace to which `node` belongs; None: this one."""
        return None

    def watch(self) -> None:
        """Check the emulated network; to be called periodically.

        Raises:
            GeomxError: It has failed.
        """


class Namespaces(Loopback):
    """Every site in a network namespace.

    Args:
        cluster: The nodes of the run.
        experiment: The file with the experiment's text.
        log: Log of the process that forwards packets; ends with its packet counts.
        notes: The scheduler's notes, without suffix, which contain the start time of the run.
    """

    def __init__(self, cluster: Cluster, experiment: Path, log: Path, notes: Path) -> None:
        self._cluster = cluster
        self._experiment = experiment
        self._log = log
        self._scheduler: Reader | None = Reader(notes)
        self._process: subprocess.Popen[bytes] | None = None
        self._paths: dict[int, str] = {}  # path of each node's namespace

    def __enter__(self) -> Namespaces:
        """Create the namespaces.

        Raises:
            GeomxError: They could not be created; the message contains the reason.
        """
        command = [
            sys.executable, "-P", "-m", "geomx.live.namespaces",
            "--experiment", str(self._experiment), "--parent", str(os.getpid()),
        ]  # fmt: skip
        pipe = subprocess.PIPE
        with self._log.open("wb") as log:
            process = self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=log, start_new_session=True
            )
        try:
            assert process.stdout is not None
            ready = readable([process.stdout.fileno()], READY_TIMEOUT_S)
            line = process.stdout.readline() if ready else b""
            if not line:
                raise GeomxError(f"the emulated network did not come up: {self._last_words()}")
            for number, site in zip(json.loads(line), sites(self._cluster), strict=True):
                self._paths |= {node.id: f"/proc/{process.pid}/fd/{number}" for node in site}
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        """Remove the namespaces; at once after an error."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.communicate(timeout=GOODBYE_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            process.wait()

    def host(self, node: NodeSpec) -> str:
        """See `Loopback.host`."""
        return address(node)

    def namespace(self, node: NodeSpec) -> str | None:
        """See `Loopback.namespace`."""
        return self._paths[node.id]

    def watch(self) -> None:
        """See `Loopback.watch`. Also passes the start of the run to bandwidth schedules."""
        if self._process is None or self._process.poll() is not None:
            raise GeomxError(f"the emulated network ended: {self._last_words()}")
        if self._scheduler is None:
            return
        for note in self._scheduler.new():
            if "started" in note:
                self._tell(note["started"])
                self._scheduler = None
                return

    def _tell(self, started_s: float) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{started_s!r}\n".encode())
            self._process.stdin.flush()

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else "it was killed"


def place(emulate: str, cluster: Cluster, **files: Any) -> Loopback:
    """Return the network of a run by its `emulate` option; `files` as for `Namespaces`."""
    return Namespaces(cluster, **files) if emulate == "netns" else Loopback()
