"""Kill a replica of a torchft job, and measure how long the others pause and until it is back.

    pip install torch==2.13.0 torchft==0.2.0     # in an environment of its own
    python benchmarks/faults/others.py --times 6

Three replicas on one machine sum 2,500,000 float32 (10 MB) in every step, over gloo and loopback,
with 40 ms of sleep per step. The lighthouse's heartbeat timeout is 2 s. One replica is killed
(SIGKILL), and a new process takes its place five seconds later, or when the others go on.
One row per time, in seconds:

figure      from                                  to
pause_s     the longest time between two steps that a remaining replica commits, after the kill
back_s      the start of the new process          its first committed step
ready_s     the end of its imports                its first committed step
wait_s      the longest time between two steps of a remaining replica, after the new process began
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from itertools import pairwise
from typing import Any

ELEMENTS = 2_500_000
REPLICAS = 3
STEPS_BEFORE = 10
REPLACED_AFTER_S = 5.0
GOING_ON_S = 0.5  # between two steps of a replica that does not wait
PATIENCE_S = 90.0


def train(number: int, lighthouse: str) -> None:
    """Be a replica: print a line after the imports, and one per committed step, until killed."""
    torch, torchft = import_module("torch"), import_module("torchft")
    distributed = import_module("torch.distributed")
    print(f"{time.monotonic():.4f} 0", flush=True)
    state = {"weights": torch.zeros(ELEMENTS)}
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager: Any = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=5)),
        min_replica_size=2,
        load_state_dict=state.update,
        state_dict=lambda: dict(state),
        replica_id=f"replica{number}_",
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=lighthouse,
        timeout=timedelta(seconds=10),
        quorum_timeout=timedelta(seconds=30),
        use_async_quorum=False,
    )
    while True:
        manager.start_quorum()
        gradient = torch.ones(ELEMENTS)
        manager.allreduce(gradient).wait()
        if manager.should_commit():
            state["weights"] += gradient
            print(f"{time.monotonic():.4f} {manager.num_participants()}", flush=True)
        time.sleep(0.04)


@dataclass
class Replica:
    """A process, and the lines that it has printed: times, and the number of participants."""

    number: int
    lighthouse: str
    lines: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        words = [sys.executable, __file__, "--replica", str(self.number), self.lighthouse]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        """Read until the process ends."""
        assert self.process.stdout
        for line in self.process.stdout:
            when, participants = line.split()
            self.lines.append((float(when), int(participants)))

    def steps(self) -> list[float]:
        """Return when the steps were committed."""
        return [when for when, participants in self.lines if participants > 0]


def wait_for(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing has happened for {PATIENCE_S:.0f} s")
        time.sleep(0.05)


def measure() -> dict[str, float]:
    """Kill one of the replicas; return the figures."""
    coordination: Any = import_module("torchft.coordination")
    lighthouse = coordination.LighthouseServer(
        bind="127.0.0.1:0",
        min_replicas=2,
        join_timeout_ms=100,
        heartbeat_timeout_ms=2000,
        quorum_tick_ms=50,
    )
    replicas = [Replica(number, lighthouse.address()) for number in range(REPLICAS)]
    other, lost = replicas[0], replicas[-1]
    try:
        wait_for(lambda: sum(line[1] == REPLICAS for line in other.lines) >= STEPS_BEFORE)
        time.sleep(1 + random.random())
        killed = time.monotonic()
        lost.process.kill()
        time.sleep(REPLACED_AFTER_S)
        wait_for(lambda: time.monotonic() - other.steps()[-1] < GOING_ON_S)
        began = time.monotonic()
        new = Replica(lost.number, lighthouse.address())
        replicas.append(new)
        wait_for(lambda: len(new.steps()) >= STEPS_BEFORE)
        pauses = [(after - before, after) for before, after in pairwise(other.steps())]
        return {
            "pause_s": max(pause for pause, when in pauses if killed < when < began),
            "back_s": new.steps()[0] - began,
            "ready_s": new.steps()[0] - new.lines[0][0],
            "wait_s": max(pause for pause, when in pauses if when > began),
        }
    finally:
        for replica in replicas:
            replica.process.kill()
        lighthouse.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--times", type=int, default=6, help="how often")
    parser.add_argument("--replica", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.replica:
        train(int(arguments.replica[0]), arguments.replica[1])
    os.environ.setdefault("RUST_LOG", "error")
    for _ in range(arguments.times):
        figures = measure()
        print(*(f"{name}={value:.2f}" for name, value in figures.items()), flush=True)


if __name__ == "__main__":
    main()
