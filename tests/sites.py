"""Emulated machines for tests: network namespaces with their own addresses on 50 Mbit/s links.

A bridge in another namespace connects them, where a test can capture all packets.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from geomx._core import enter_namespace, why_no_namespaces

NAMES = ("core", "hub", "east", "west")
RATE = "50mbit"
ETH_P_ALL = 3


def why_not() -> str:
    """Return why namespaces cannot be created here; empty if they can."""
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    return f"needs {', '.join(missing)}" if missing else why_no_namespaces()


class Sites:
    """The namespaces, created within its context."""

    def __init__(self) -> None:
        self._stem = f"gx{os.getpid()}"
        self.middle = f"{self._stem}mid"
        self.address = {name: f"10.77.0.{number}" for number, name in enumerate(NAMES, 1)}

    def name(self, site: str) -> str:
        """Return the name of a site's namespace."""
        return f"{self._stem}{site}"

    def __enter__(self) -> Sites:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        for namespace in (self.middle, *map(self.name, NAMES)):
            for pid in self._pids(namespace):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)

    def processes(self) -> list[int]:
        """Return the ids of all processes at the sites."""
        return [pid for name in NAMES for pid in self._pids(self.name(name))]

    @contextlib.contextmanager
    def listening(self) -> Iterator[list[bytes]]:
        """Capture all packets during the context."""
        packets: list[bytes] = []
        tap: list[socket.socket] = []
        ready = threading.Event()

        def listen() -> None:
            with open(f"/run/netns/{self.middle}", "rb") as there:
                enter_namespace(there.fileno())
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as ear:
                ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
                ear.settimeout(0.1)
                tap.append(ear)
                ready.set()
                while not done.is_set():
                    with contextlib.suppress(TimeoutError):
                        packets.append(ear.recv(1 << 17))

        done = threading.Event()
        thread = threading.Thread(target=listen)
        thread.start()
        assert ready.wait(30)
        try:
            yield packets
        finally:
            time.sleep(0.2)
            done.set()
            thread.join()

    def _make(self) -> None:
        middle = self.middle
        _run("ip", "netns", "add", middle)
        inside = ("ip", "-n", middle, "link")
        _run(*inside, "add", "bridge", "type", "bridge")
        _run(*inside, "set", "bridge", "up")
        _run(*inside, "set", "lo", "up")
        _run("ip", "-n", middle, "addr", "add", "10.77.0.254/24", "dev", "bridge")
        for site, address in self.address.items():
            namespace = self.name(site)
            _run("ip", "netns", "add", namespace)
            peer = ("peer", "name", "wan", "netns", namespace)
            _run(*inside, "add", f"to-{site}", "type", "veth", *peer)
            _run(*inside, "set", f"to-{site}", "master", "bridge", "up")
            _run("ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", "wan")
            for device in ("lo", "wan"):
                _run("ip", "-n", namespace, "link", "set", device, "up")
            for where, device in ((namespace, "wan"), (middle, f"to-{site}")):
                shape = ("tbf", "rate", RATE, "burst", "64k", "latency", "100ms")
                _run("tc", "-n", where, "qdisc", "add", "dev", device, "root", *shape)

    def _pids(self, namespace: str) -> list[int]:
        done = subprocess.run(
            ["ip", "netns", "pids", namespace], check=False, capture_output=True, text=True
        )
        return [int(pid) for pid in done.stdout.split()]


class SshServers:
    """An sshd at every site, and a key that all of them accept."""

    def __init__(self, sites: Sites, folder: Path) -> None:
        self._sites = sites
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        self.client = (
            f"ssh -T -F none -i {folder}/key -o BatchMode=yes -o StrictHostKeyChecking=no "
            "-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR root@{address} {command}"
        )

    def __enter__(self) -> SshServers:
        os.makedirs("/run/sshd", exist_ok=True)
        for key in ("key", "host"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self._folder}/{key}")
        settings = self._folder / "sshd_config"
        settings.write_text(
            f"HostKey {self._folder}/host\nAuthorizedKeysFile {self._folder}/key.pub\n"
            "StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\n"
            "MaxStartups 100\n"
        )
        for name in NAMES:
            words = ["ip", "netns", "exec", self._sites.name(name)]
            command = [*words, "/usr/sbin/sshd", "-D", "-f", str(settings)]
            self._running.append(subprocess.Popen(command))
        for address in self._sites.address.values():
            self._await(address)
        return self

    def __exit__(self, *raised: object) -> None:
        for process in self._running:
            process.terminate()
            process.wait()

    @property
    def pids(self) -> set[int]:
        """Return the process ids of the servers."""
        return {process.pid for process in self._running}

    def _await(self, address: str) -> None:
        deadline = time.monotonic() + 60
        probe = f"import socket; socket.create_connection(('{address}', 22), 5).close()"
        words = ["ip", "netns", "exec", self._sites.middle, "python", "-c", probe]
        while subprocess.run(words, check=False, capture_output=True).returncode:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def _run(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
