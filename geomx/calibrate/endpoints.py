"""What the runtime's endpoints take on this machine, measured on the runtime itself.

A small cluster (two workers, their server, a global server) runs in this process, a thread for
every node, with the links' emulation in between as in any live run on one machine. Tensors of many
sizes are synchronised one by one, and what counts is the processor time of each node's thread: it
says what work took, whoever else uses the machine meanwhile. How many messages and bytes each node
sent, received and added is known, so that the costs of each follow (`geomx.calibrate.fit`).

In this protocol a node sends as much as it receives, so sending and receiving are told apart by
nobody: each gets half of what a message takes. What adding takes per message is part of that, for
the same reason. The optimizer and the codecs of accelerators are
timed by themselves.
"""

from __future__ import annotations

import itertools
import math
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import numpy as np

from geomx import _core
from geomx.calibrate.fit import Sample
from geomx.live.member import Member
from geomx.live.spec import Spec
from geomx.network.files import read_network
from geomx.options.schema import RuntimeOptions
from geomx.plugin.parts import optimizer_text
from geomx.plugin.registration import DEFAULT_SYNC

ELEMENTS = (16, 1024, 16384, 65536, 262144, 1048576)
"""Sizes of tensors, in float32 values."""

COLD_BYTES = 48_000_000
"""Tensors of one size together: as in a model's round, each is cold when its turn comes again."""

MOST_TENSORS = 24

MESSAGE, BYTE = "message", "byte"
"""Of a message that is sent or received; both get the same."""

VERB = "verb"
"""What a worker's thread does for its program, beside messages; no cost of the simulator's."""

HEADER_BYTES = 80
WORKERS = 2
UNCOUNTED = 2  # rounds in which buffers grow
TIMEOUT_S = 30.0
SETTLE_S = 0.003  # until what a round left to do has been done
FRAME_BYTES = RuntimeOptions().frame_bytes

Advance = Callable[[], None]


def measure(repeats: int, advance: Advance) -> list[Sample]:
    """What synchronising tensors of several sizes takes.

    Args:
        repeats: Measurements of each size, after two rounds that do not count.
        advance: Called after each size.
    """
    samples: list[Sample] = []
    with _running() as cluster:
        for elements in ELEMENTS:
            samples += cluster.measure(elements, repeats)
            advance()
    return samples


def measure_update(optimizer: Mapping[str, object], repeats: int) -> list[Sample]:
    """What the optimizer's step takes, for the same sizes.

    Args:
        optimizer: Name and numbers, as `geomx.workload.Workload.optimizer`.
        repeats: Steps of each size, after a pass over all tensors that does not count.
    """
    samples = []
    for elements in ELEMENTS:
        steps = []
        for key in range(tensors_of(elements)):
            made = _core.Optimizer(optimizer_text(dict(optimizer)), key)
            weight, gradient = (np.full(elements, 0.5, np.float32) for _ in range(2))
            steps.append(partial(made.update, weight, gradient))
        took = timings(steps, repeats)
        counts = {"update_message_s": 1.0, "update_byte_s": 4.0 * elements}
        samples.append(Sample(counts, took))
    return samples


def tensors_of(elements: int) -> int:
    """How many tensors of a size take turns."""
    return min(MOST_TENSORS, max(1, COLD_BYTES // (4 * elements)))


def timings(actions: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """This thread's processor time for `actions` in turn, once all were done without counting."""
    for action in actions:
        action()
    took = []
    for _, action in zip(range(repeats), itertools.cycle(actions), strict=False):
        before = time.thread_time()
        action()
        took.append(max(time.thread_time() - before, 1e-9))
    return took


class _Cluster:
    """Live nodes of this process, and the processor time of each one's thread."""

    def __init__(self, spec: Spec) -> None:
        self._threads: dict[str, int] = {}  # by role; the first worker's
        self._keys = 0
        token = secrets.token_hex(16)
        scheduler = Member.open_scheduler(spec, token)
        scheduler.wire()
        self._loops = [scheduler.loop]
        joining: list[Callable[[], Member]] = []
        for node in spec.cluster.nodes:
            if node.role == "scheduler":
                continue
            before = _threads()
            loop = _core.Loop(token=token)
            (thread,) = _threads() - before
            self._threads.setdefault(node.role, thread)
            self._loops.append(loop)

            def join(loop: _core.Loop = loop, name: str = node.name, id: int = node.id) -> Member:
                text, roster = loop.join(scheduler.loop.address, name, id, TIMEOUT_S)
                member = Member(loop, Spec.from_json(text), name, roster)
                member.wire()
                member.wait_started()
                return member

            joining.append(join)
        with ThreadPoolExecutor(len(joining)) as pool:
            members = list(pool.map(lambda join: join(), joining))
        self._workers = [member.loop for member in members if member.node.role == "worker"]

    def measure(self, elements: int, repeats: int) -> list[Sample]:
        """Synchronise tensors one after the other, and say what each role's thread took."""
        value = np.ones(elements, np.float32)
        keys = range(self._keys, self._keys + tensors_of(elements))
        self._keys = keys.stop
        for worker in self._workers:
            for key in keys:
                worker.declare(key, elements, [(0, elements, 0, -key)])
        for key in keys:
            self._workers[0].init(key, value)
            for worker in self._workers:
                worker.request(key)
            for worker in self._workers:
                worker.wait(key, 0, TIMEOUT_S)
        took: dict[str, list[float]] = {role: [] for role in self._threads}
        uncounted = UNCOUNTED * len(keys)
        for turn in range(uncounted + repeats):
            round_number, key = 1 + turn // len(keys), keys[turn % len(keys)]
            before = self._clock()
            for worker in self._workers:
                worker.push(key, value)
            for worker in self._workers:
                worker.wait(key, round_number, TIMEOUT_S)
            if turn >= uncounted:
                time.sleep(SETTLE_S)
                for role, now in self._clock().items():
                    took[role].append(now - before[role])
        return [Sample(_counts(role, 4 * elements), seconds) for role, seconds in took.items()]

    def _clock(self) -> dict[str, float]:
        return {role: _thread_seconds(thread) for role, thread in self._threads.items()}

    def close(self) -> None:
        """End all nodes."""
        for loop in self._loops:
            loop.close()


def _counts(role: str, size: int) -> dict[str, float]:
    """What a node does in a round of one tensor of `size` bytes."""
    messages = math.ceil(size / FRAME_BYTES)
    ways = {"worker": 1, "server": 1 + WORKERS, "global_server": 1}[role]
    added = {"worker": 0, "server": WORKERS, "global_server": 1}[role]
    return {
        MESSAGE: 2.0 * ways * messages,
        BYTE: 2.0 * ways * (size + messages * HEADER_BYTES),
        "aggregate_byte_s": float(added * size),
        VERB: float(role == "worker"),
    }


@contextmanager
def _running() -> Iterator[_Cluster]:
    access = {"uplink_mbps": 100_000, "downlink_mbps": 100_000}
    network = {
        "name": "calibration",
        "central": {"name": "hub", "global_servers": 1, **access},
        "parties": {"site": {"workers": WORKERS, **access}},
        "delay_ms": 0,
        "lan": {"mbps": 100_000, "delay_ms": 0},
    }
    runtime = RuntimeOptions(frame_bytes=FRAME_BYTES, threads=1)
    cluster = _Cluster(Spec(read_network(network), (DEFAULT_SYNC, {}), runtime=runtime))
    try:
        yield cluster
    finally:
        cluster.close()


def _threads() -> set[int]:
    """The threads of this process, by the system's numbers."""
    return set(map(int, os.listdir("/proc/self/task")))


def _thread_seconds(thread: int) -> float:
    """Processor time of a thread: the clock that pthread_getcpuclockid gives for it (Linux)."""
    return time.clock_gettime((~thread << 3) | 6)
