"""Costs of the runtime's endpoints on this machine, measured on the runtime itself.

A small cluster (two workers, their server, a global server) runs in this process, with one thread
per node and emulated links as in any live run on one machine. Tensors of many sizes are
synchronised one by one, and the processor time of each node's thread is measured, which does not
depend on other load on the machine. The numbers of messages and bytes that each node sends,
receives and adds are known, and the costs follow from them (`geomx.calibrate.fit`).

In this protocol a node sends as much as it receives, so the costs of sending and of receiving
cannot be separated: each is charged half the cost of a message. For the same reason, the cost of
adding per message is part of it. The optimizer and the codecs of accelerators are measured
separately.
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
"""Size of all tensors of one size together; large enough that each is out of the cache again when
its turn comes, as in the round of a model."""

MOST_TENSORS = 24

MESSAGE, BYTE = "message", "byte"
"""Cost of a message that is sent or received, the same for both."""

VERB = "verb"
"""Cost of a worker thread's calls from its program, apart from messages; not part of the result."""

HEADER_BYTES = 80
WORKERS = 2
UNCOUNTED = 2  # initial rounds, in which buffers grow
TIMEOUT_S = 30.0
SETTLE_S = 0.003  # for work that a round leaves behind
FRAME_BYTES = RuntimeOptions().frame_bytes

Advance = Callable[[], None]


def measure(repeats: int, advance: Advance) -> list[Sample]:
    """Measure the synchronisation of tensors of several sizes.

    Args:
        repeats: Measurements per size, after two unmeasured rounds.
        advance: Called after each size.

    Returns:
        One sample per size and role.
    """
    samples: list[Sample] = []
    with _running() as cluster:
        for elements in ELEMENTS:
            samples += cluster.measure(elements, repeats)
            advance()
    return samples


def measure_update(optimizer: Mapping[str, object], repeats: int) -> list[Sample]:
    """Measure the optimizer's step for the same sizes.

    Args:
        optimizer: Name and parameters, as in `geomx.workload.Workload.optimizer`.
        repeats: Steps per size, after an unmeasured pass over all tensors.

    Returns:
        One sample per size.
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
    """Return the number of tensors of `elements` values that take turns."""
    return min(MOST_TENSORS, max(1, COLD_BYTES // (4 * elements)))


def timings(actions: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Measure this thread's processor time for each of `actions` in turn.

    Args:
        actions: Called once each without being measured, then in turn.
        repeats: Number of measurements in total.

    Returns:
        Seconds per measurement, above zero.
    """
    for action in actions:
        action()
    took = []
    for _, action in zip(range(repeats), itertools.cycle(actions), strict=False):
        before = time.thread_time()
        action()
        took.append(max(time.thread_time() - before, 1e-9))
    return took


class _Cluster:
    """Live nodes in this process, with access to the processor time of each node's thread."""

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
        """Synchronise tensors one by one; return the processor time of each role's thread."""
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
        """Stop all nodes."""
        for loop in self._loops:
            loop.close()


def _counts(role: str, size: int) -> dict[str, float]:
    """Return the amounts of work of a node in a round of one tensor of `size` bytes."""
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
    """Return the thread ids of this process."""
    return set(map(int, os.listdir("/proc/self/task")))


def _thread_seconds(thread: int) -> float:
    """Return a thread's processor time, from the clock of pthread_getcpuclockid (Linux)."""
    return time.clock_gettime((~thread << 3) | 6)
