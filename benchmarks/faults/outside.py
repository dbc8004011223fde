"""A live run that is disturbed from outside, by what also happens to real processes and networks.

Processes are killed and stopped by signals, connections are destroyed in the kernel (``ss -K``),
and the packets of a party are dropped at the device that is its way to the WAN. geomx's own
scenarios are not involved.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from geomx.errors import GeomxError
from geomx.live.files import Reader, stem
from geomx.results.results import Results

FAST = {"uplink_mbps": 400, "downlink_mbps": 400}
NETWORK: dict[str, Any] = {
    "central": {"name": "hub", **FAST},
    "parties": {
        "east": {"workers": 2, **FAST},
        "west": {"workers": 2, **FAST},
        "south": {"workers": 1, **FAST},
    },
    "delay_ms": 5,
}
WORDS = ["workload=tiny", "workload.forward_ms=10", "workload.backward_ms=20"]
"""Steps of 42 ms: 30 ms of computation, a round trip of 10 ms, and small gradients."""

LONGEST_S = 900.0


def words(folder: Path, *more: str) -> list[str]:
    """Return the overrides of a run in `folder`, beside which its network is written."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    network = folder.parent / "network.yaml"
    network.write_text(yaml.safe_dump(NETWORK), encoding="utf-8")
    return [f"network={network}", *WORDS, f"hydra.run.dir={folder}", *more]


class Run:
    """A live run in a process of its own. Use as a context manager: nothing of it is left after.

    Args:
        folder: Folder of its files.
        given: Overrides, which also say where its nodes are (``emulate=netns``).
    """

    def __init__(self, folder: Path, given: Sequence[str]) -> None:
        self.folder = folder
        self.log = folder.parent / f"{folder.name}.log"
        self._given = list(given)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Run:
        command = [sys.executable, "-m", "geomx", *self._given]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill_all()

    # ---- what is going on ----

    def pids(self) -> dict[str, int]:
        """Return the present processes of the run's nodes, by the node's name."""
        found = {}
        folder = os.fsencode(self.folder / "nodes")
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                given = (entry / "cmdline").read_bytes().split(b"\0")
                if b"--name" in given and any(word.startswith(folder) for word in given):
                    found[given[given.index(b"--name") + 1].decode()] = int(entry.name)
        return found

    def everything(self) -> set[int]:
        """Return all processes that name the run's folder, and its launcher."""
        found = set()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.fsencode(self.folder) in (entry / "cmdline").read_bytes():
                    found.add(int(entry.name))
        return found - {os.getpid()}

    def steps(self, node: str) -> int:
        """Return how many steps a worker has made."""
        return sum("iteration" in note for note in Reader(stem(self.folder, node)).new())

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds.

        Raises:
            GeomxError: The run ended before, or it took too long.
        """
        deadline_s = time.monotonic() + LONGEST_S
        while not holds():
            if not self.running():
                raise GeomxError(f"{self.folder} ended before {what}: {self.last_words()}")
            if time.monotonic() > deadline_s:
                raise GeomxError(f"{self.folder}: no {what} within {LONGEST_S:g} s")
            time.sleep(0.02)

    def running(self) -> bool:
        """Return whether the run has not ended."""
        assert self._process is not None
        return self._process.poll() is None

    def trains(self, steps: int = 1, node: str = "east/worker0") -> None:
        """Wait until a worker has made some steps."""
        self.until(lambda: self.steps(node) >= steps, f"step {steps} of {node}")

    def last_words(self) -> str:
        """Return the last line that the run has printed."""
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "nothing"

    def now_s(self) -> float:
        """Return the seconds since the start of the run, as in its files."""
        notes = Reader(stem(self.folder, "hub/scheduler")).new()
        started = next(note["started"] for note in notes if "started" in note)
        return time.monotonic() - float(started)

    # ---- faults ----

    def signal(self, node: str, number: int = signal.SIGKILL) -> float:
        """Send a signal to a node's process; return the time of it, as `now_s`."""
        self.until(lambda: node in self.pids(), f"process of {node}")
        os.kill(self.pids()[node], number)
        return self.now_s()

    def pause(self, node: str, for_s: float) -> None:
        """Stop a node's process for some seconds."""
        self.until(lambda: node in self.pids(), f"process of {node}")
        pid = self.pids()[node]
        os.kill(pid, signal.SIGSTOP)
        time.sleep(for_s)
        with contextlib.suppress(ProcessLookupError):  # the launcher has ended it
            os.kill(pid, signal.SIGCONT)

    def inside(self, node: str, command: str) -> str:
        """Run a command in the network namespace of a node; return what it prints."""
        words = ["nsenter", "-t", str(self.pids()[node]), "-n", *command.split()]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    def cut(self, node: str) -> float:
        """Drop all packets between a node's site and the WAN; return the time, as `now_s`.

        They are redirected to a device without a receiver, so that no socket notices.
        """
        if "hole" not in self.inside(node, "ip link"):
            self.inside(node, "ip link add hole type veth peer name void")
            self.inside(node, "ip link set hole up")
            self.inside(node, "ip link set void up")
        self.inside(node, "tc qdisc replace dev wan clsact")
        for way in ("egress", "ingress"):
            all_packets = f"tc filter add dev wan {way} protocol ip u32 match u32 0 0"
            self.inside(node, f"{all_packets} action mirred egress redirect dev hole")
        return self.now_s()

    def heal(self, node: str) -> float:
        """Let packets pass again after `cut`; return the time, as `now_s`.

        The node must have a process, which may be another one than before.
        """
        self.until(lambda: node in self.pids(), f"process of {node}")
        self.inside(node, "tc qdisc del dev wan clsact")
        return self.now_s()

    def reset(self, draw: random.Random) -> str:
        """Destroy a random connection in the kernel; return its two addresses."""
        node = draw.choice(sorted(self.pids()))
        listed = self.inside(node, "ss -tnH state established").splitlines()
        if not listed:
            return ""
        here, there = draw.choice(listed).split()[2:4]
        self.inside(node, f"ss -K -tnH src {here} dst {there}")
        return f"{here} {there}"

    def kill_all(self) -> None:
        """Kill all processes of the run at once, the launcher included."""
        process = self._process
        assert process is not None
        if process.poll() is None:
            process.kill()
        process.wait()
        while left := self.everything():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    # ---- the end ----

    def results(self) -> Results:
        """Wait for the end of the run.

        Raises:
            GeomxError: It failed; the message contains what it has said.
        """
        assert self._process is not None
        try:
            status = self._process.wait(LONGEST_S)
        except subprocess.TimeoutExpired as error:
            raise GeomxError(f"{self.folder} did not end within {LONGEST_S:g} s") from error
        if status != 0:
            raise GeomxError(f"{self.folder} failed: {self.last_words()}")
        return Results.load(self.folder)


# ---- figures of results ----


def ends(results: Results) -> dict[str, list[float]]:
    """Return the times at which steps ended, by worker, in order."""
    found: dict[str, list[float]] = {}
    for row in results.iterations:
        found.setdefault(row["worker"], []).append(row["end_s"])
    return {worker: sorted(times) for worker, times in found.items()}


def longest_pause_s(results: Results, from_s: float, but: Sequence[str] = ()) -> float:
    """Return the longest time between the ends of a worker's steps, after `from_s`.

    Args:
        results: A run.
        from_s: Pauses that end later count.
        but: Workers, or parties, that do not count.
    """
    longest = 0.0
    for worker, times in ends(results).items():
        if worker in but or worker.split("/")[0] in but:
            continue
        for one, other in itertools.pairwise(times):
            if other > from_s:
                longest = max(longest, other - one)
    return longest


def back_s(results: Results, whose: str, from_s: float) -> float:
    """Return the seconds from `from_s` until a worker, or all of a party, has ended a step."""
    firsts = [
        min((at for at in times if at > from_s), default=float("inf"))
        for worker, times in ends(results).items()
        if whose in (worker, worker.split("/")[0], "all")
    ]
    return max(firsts) - from_s
