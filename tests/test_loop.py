"""The Python interface of the live driver, with clusters of loops in this process, over loopback.

The driver itself is tested in C++ (runtime_cpp/tests/loop_test.cc). These tests cover its Python
interface, and runs whose ports are attacked. Times are bounded from below only.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from geomx import _core
from geomx.live.exit_status import FAILED

TOKEN = "a token"
PATIENCE_S = 30.0
NAMES = ["scheduler", "global", "east", "west", "east0", "east1", "west0", "west1"]
ROLES = ["scheduler", "global_server", "server", "server"] + ["worker"] * 4
PARENT = {2: 1, 3: 1, 4: 2, 5: 2, 6: 3, 7: 3}
SCHEDULER, GLOBAL, EAST = 0, 1, 2
WORKERS = range(4, 8)


def node_config(node: int, silence_s: float = 5.0) -> _core.NodeConfig:
    config = _core.NodeConfig(node, NAMES[node], ROLES[node])
    children = sorted(child for child, parent in PARENT.items() if parent == node)
    peers = set(children)
    if node == SCHEDULER:
        peers = set(range(1, len(NAMES)))
        config.experiment = "the experiment"
        config.set_tree([(parent, child) for child, parent in PARENT.items()])
    else:
        config.scheduler = SCHEDULER
        peers.add(SCHEDULER)
        if node in PARENT:
            config.parents = [PARENT[node]]
            peers.add(PARENT[node])
    for peer in sorted(peers):
        config.add_peer(peer, NAMES[peer], ROLES[peer])
    config.children = children
    config.quorum = {1: 4, 2: 2, 3: 2}.get(node, 0)
    config.stands_for = {2: 2, 3: 2} if node == GLOBAL else {}
    config.set_heartbeat(0.1, silence_s)
    config.open = True
    return config


class LoopCluster:
    """Two parties of two workers; every node is a loop in this process."""

    def __init__(
        self,
        shapes: dict[int, _core.Shape] | None = None,
        silence_s: float = 5.0,
        late_s: float = 0.0,
    ) -> None:
        self.shapes = shapes or {}
        self.silence_s = silence_s
        self.late_s = late_s  # the last worker, between joining and running
        self.loops = [_core.Loop("127.0.0.1", 0, TOKEN) for _ in NAMES]
        self.loops[SCHEDULER].run(self.config(SCHEDULER), {}, self.shapes.get(SCHEDULER))
        with ThreadPoolExecutor(len(NAMES)) as pool:
            list(pool.map(self._start, range(1, len(NAMES))))
        self.loops[SCHEDULER].wait_started(PATIENCE_S)

    def _start(self, node: int) -> None:
        loop = self.loops[node]
        scheduler = self.loops[SCHEDULER].address
        experiment, roster = loop.join(scheduler, NAMES[node], node, PATIENCE_S)
        assert experiment == "the experiment"
        assert roster[NAMES[node]] == loop.address
        if node == max(WORKERS):
            time.sleep(self.late_s)
        loop.run(self.config(node), roster, self.shapes.get(node))
        assert loop.wait_started(PATIENCE_S) <= time.monotonic()

    def config(self, node: int) -> _core.NodeConfig:
        return node_config(node, self.silence_s)

    @property
    def workers(self) -> list[_core.Loop]:
        return [self.loops[node] for node in WORKERS]

    def declare(self, key: int, elements: int) -> None:
        for worker in self.workers:
            worker.declare(key, elements, [(0, elements, 0, 0)])

    def push_all(self, key: int, arrays: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Push every worker's contribution to one round; return the value that all receive."""
        rounds = [worker.push(key, a) for worker, a in zip(self.workers, arrays, strict=True)]
        values = []
        for worker, turn in zip(self.workers, rounds, strict=True):
            assert worker.wait(key, turn, PATIENCE_S) >= 0.0
            out = np.empty_like(arrays[0])
            worker.value(key, out)
            values.append(out)
        assert all(np.array_equal(values[0], value) for value in values[1:])
        return values[0]

    def stop(self) -> None:
        for worker in self.workers:
            worker.leave()
        for loop in self.loops:
            assert loop.wait_stopped(PATIENCE_S)
        self.close()
        assert [loop.failure() for loop in self.loops] == [None] * len(NAMES)

    def close(self) -> None:
        for loop in self.loops:
            loop.close()


@pytest.fixture
def cluster() -> Iterator[LoopCluster]:
    cluster = LoopCluster()
    yield cluster
    cluster.close()


def test_sums_and_statistics_are_exact(cluster: LoopCluster, seed: int) -> None:
    random = np.random.default_rng(seed)
    cluster.declare(0, 3)
    cluster.declare(1, 100_000)
    for _ in range(3):
        for key, elements in ((0, 3), (1, 100_000)):
            parts = [random.integers(-99, 99, elements).astype(np.float32) for _ in WORKERS]
            assert np.array_equal(cluster.push_all(key, parts), sum(parts))
    held = cluster.loops[GLOBAL].global_value(1, 0)
    assert np.array_equal(held, sum(parts))
    assert cluster.loops[GLOBAL].global_value(2, 0) is None
    cluster.stop()
    (up,) = [link for link in cluster.workers[0].stats()["links"] if link["peer"] == NAMES[EAST]]
    assert up["push"][0] == 3 * 4 * 100_003 + up["push"][1] * _core.HEADER_BYTES
    spans = cluster.loops[EAST].spans()
    assert {"send", "aggregate"} <= {category for _, category, _, _, _ in spans}
    assert all(start >= 0 and duration >= 0 for _, _, start, duration, _ in spans)


def test_optimizer_on_the_global_server_and_barrier(cluster: LoopCluster) -> None:
    cluster.declare(0, 2)
    master = cluster.workers[0]
    master.init(0, np.array([1.0, -1.0], np.float32))
    master.run_optimizer("sgd\nlearning_rate 0.1\n")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda worker: worker.barrier(PATIENCE_S), cluster.workers))
    for worker in cluster.workers:
        worker.request(0)
        worker.wait(0, 0, PATIENCE_S)
    value = cluster.push_all(0, [np.array([1.0, 2.0], np.float32)] * 4)
    np.testing.assert_allclose(value, [1.0 - 0.4, -1.0 - 0.8], rtol=1e-6)
    with pytest.raises(TimeoutError, match="barrier"):
        master.barrier(0.05)
    with pytest.raises(TimeoutError, match="round 9"):
        master.wait(0, 9, 0.05)
    cluster.stop()


def test_pushed_arrays_are_referenced_until_they_are_sent(cluster: LoopCluster) -> None:
    cluster.declare(0, 1000)
    array = np.ones(1000, np.float32)
    before = sys.getrefcount(array)
    for _ in range(3):
        cluster.push_all(0, [array] * 4)
    cluster.stop()
    del cluster.loops[:]
    gc.collect()
    _core.Loop(token=TOKEN).close()  # any call from Python releases references of the threads
    assert sys.getrefcount(array) == before


def test_arrays_of_wrong_type_or_size_are_refused(cluster: LoopCluster) -> None:
    cluster.declare(0, 4)
    worker = cluster.workers[0]
    with pytest.raises(TypeError):
        worker.push(0, np.ones(4))
    with pytest.raises(TypeError):
        worker.value(0, np.ones(8, np.float32)[::2])
    with pytest.raises(ValueError, match="4 elements, not 5"):
        worker.push(0, np.ones(5, np.float32))
    with pytest.raises(ValueError, match="never declared"):
        worker.push(7, np.ones(5, np.float32))


@pytest.mark.parametrize("victim", [EAST, GLOBAL, SCHEDULER, WORKERS[0]])
def test_a_lost_node_is_named_by_all_others(cluster: LoopCluster, victim: int) -> None:
    with ThreadPoolExecutor(len(NAMES)) as pool:
        others = [loop for node, loop in enumerate(cluster.loops) if node != victim]
        waiting = [pool.submit(loop.wait_stopped, PATIENCE_S) for loop in others]
        cluster.loops[victim].close()
        for wait in waiting:
            with pytest.raises(RuntimeError, match=f"node {NAMES[victim]} was lost"):
                wait.result()
    assert {loop.failure()[0] for loop in others} == {NAMES[victim]}


@pytest.mark.parametrize("short", [[WORKERS[3]], WORKERS[2:]], ids=["a worker", "a party"])
def test_waiting_for_a_worker_that_left_is_an_error(cluster: LoopCluster, short: list[int]) -> None:
    """Some workers push one round fewer than others, as with uneven data, and leave."""
    cluster.declare(0, 4)
    ones = np.ones(4, np.float32)
    cluster.push_all(0, [ones] * 4)
    for node in short:
        cluster.loops[node].leave()
    last = {node: cluster.loops[node].push(0, ones) for node in WORKERS if node not in short}
    gone = NAMES[short[0]] if len(short) == 1 else "west"
    for node, turn in last.items():
        words = f"node {gone} was lost: it left after round 1 of key 0 while .* waits for round 2"
        with pytest.raises(RuntimeError, match=words):
            cluster.loops[node].wait(0, turn, PATIENCE_S)


@pytest.mark.slow
def test_a_barrier_does_not_wait_for_a_worker_that_left(cluster: LoopCluster) -> None:
    cluster.workers[3].leave()
    words = "node west1 was lost: it left while east0 waits at barrier 1"
    with pytest.raises(RuntimeError, match=words):
        cluster.workers[0].barrier(PATIENCE_S)


def test_nan_and_infinite_arguments_are_refused() -> None:
    nan = float("nan")
    config = node_config(EAST)
    for attempt in (
        lambda: config.set_heartbeat(nan, 5.0),
        lambda: config.add_link(GLOBAL, "push", [], [], nan),
        lambda: _core.LinkModel([0], [0], loss=nan),
        lambda: _core.LinkModel([0], [0], efficiency=nan),
        lambda: _core.LinkModel([0], [0], window_limit=nan),
        lambda: _core.Costs().set("send", nan, 0.0),
        lambda: _core.Costs().set("send", 0.0, float("inf")),
        lambda: _core.BandwidthSchedule(1e6).add_failures(nan, 1.0, 1),
        lambda: _core.BandwidthSchedule(1e6).finish(nan, 1.0),
        lambda: _core.native_codec("fp16", {"anything": nan}),
    ):
        with pytest.raises(ValueError):
            attempt()
    up = _core.BandwidthSchedule(1e6)
    up.add_failures(1e9, 1e9, 7)  # practically never, but still valid
    assert up.next(0.0) is None or up.next(0.0) > 0.0


@pytest.mark.slow
def test_random_bytes_change_nothing(cluster: LoopCluster, seed: int) -> None:
    """10,000 random messages to a server's port, over TCP and UDP, during rounds."""
    random = np.random.default_rng(seed)
    host, port = cluster.loops[EAST].address.split(":")
    target = (host, int(port))
    strings = [random.bytes(int(n)) for n in random.integers(0, 300, 10_000)]
    for i in range(0, len(strings), 5):  # some begin like valid ones
        strings[i] = b"GMXT" + bytes(12) + b"GMX1\x03" + strings[i]

    def attack() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            for i, string in enumerate(strings):
                datagrams.sendto(string, target)
                if i % 4 == 0:
                    with socket.create_connection(target) as connection:
                        connection.sendall(string)

    cluster.declare(0, 50)
    attacker = threading.Thread(target=attack)
    attacker.start()
    rounds = 0
    while attacker.is_alive() or rounds < 10:
        rounds += 1
        parts = [random.integers(-9, 9, 50).astype(np.float32) for _ in WORKERS]
        assert np.array_equal(cluster.push_all(0, parts), sum(parts))
    attacker.join()
    cluster.stop()
    stats = cluster.loops[EAST].stats()
    assert stats["refused_callers"] > 0
    assert stats["datagrams_refused"] > 0
    assert stats["datagrams_received"] == 0
    assert stats["node"]["rounds"] == rounds


def test_an_emulated_link_has_its_bandwidth_and_delay() -> None:
    """1 MB from a worker to its server over 100 Mbit/s with 20 ms of delay."""
    shape = _core.Shape(1)
    edges = [shape.add_edge(12.5e6, 20_000_000) for _ in range(2)]
    link = _core.LinkModel([edges[0]], [edges[1]], efficiency=0.965, rtt_ns=40_000_000)
    shape.add_path(EAST, link)
    cluster = LoopCluster({WORKERS[0]: shape})
    try:
        cluster.declare(0, 250_000)
        begin = time.monotonic()
        cluster.push_all(0, [np.ones(250_000, np.float32)] * 4)
        assert time.monotonic() - begin >= 1e6 / (12.5e6 * 0.965) + 0.02
        cluster.stop()
        (link,) = [
            link for link in cluster.workers[0].stats()["links"] if link["peer"] == NAMES[EAST]
        ]
        assert link["busy_s"] >= 1e6 / (12.5e6 * 0.965)
    finally:
        cluster.close()


@pytest.mark.slow
def test_an_emulated_link_follows_its_schedule() -> None:
    """10 MB over 100 Mbit/s with an outage longer than the time limit of silence."""
    silence_s, outage_s, size = 1.5, 2.5, 10_000_000
    schedule = _core.BandwidthSchedule(12.5e6)
    schedule.add_outage(0.6, 0.6 + outage_s)
    shape = _core.Shape(1)
    edges = [shape.add_edge(schedule, 1_000_000) for _ in range(2)]
    link = _core.LinkModel([edges[0]], [edges[1]], efficiency=0.965, rtt_ns=2_000_000)
    shape.add_path(EAST, link)
    cluster = LoopCluster({WORKERS[0]: shape}, silence_s)
    try:
        cluster.declare(0, size // 4)
        cluster.push_all(0, [np.ones(size // 4, np.float32)] * 4)
        cluster.stop()
        (link,) = [
            link for link in cluster.workers[0].stats()["links"] if link["peer"] == NAMES[EAST]
        ]
        assert link["busy_s"] == pytest.approx(outage_s + size / (12.5e6 * 0.965), rel=5e-3)
    finally:
        cluster.close()


@pytest.mark.slow
def test_a_push_is_not_sent_before_its_time(cluster: LoopCluster) -> None:
    cluster.declare(0, 1)
    one = np.ones(1, np.float32)
    for worker in cluster.workers:
        worker.push(0, one, not_before_s=0.4)
    assert cluster.workers[0].wait(0, 1, PATIENCE_S) >= 0.399


def test_joining_without_a_scheduler_is_an_error() -> None:
    loop = _core.Loop("127.0.0.1", 0, TOKEN)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        address = "{}:{}".format(*silent.getsockname())
        with pytest.raises(RuntimeError, match=rf"{address} in 0.[0-9] s .*refused"):
            loop.join(address, "east0", 4, 0.3)
    with pytest.raises(RuntimeError, match="host:port"):
        loop.join("nowhere", "east0", 4, 0.3)
    loop.close()
    with pytest.raises(RuntimeError, match="cannot listen"):
        _core.Loop("192.0.2.1", 0, TOKEN)


def test_ports_are_loopback_only_without_tls_or_insecure() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(RuntimeError, match=f"cannot listen on {host} without TLS.*insecure"):
            _core.Loop(host, 0, TOKEN)
    _core.Loop("0.0.0.0", 0, TOKEN, insecure=True).close()
    for insecure in (False, True):
        with pytest.raises(RuntimeError, match="without a token"):
            _core.Loop("127.0.0.1", 0, insecure=insecure)


@pytest.mark.slow
def test_a_manually_started_node_opens_no_insecure_port(tmp_path: Path) -> None:
    argv = [sys.executable, "-P", "-m", "geomx.live", "--scheduler", "127.0.0.1:9", "--name", "a"]
    argv += ["--notes", str(tmp_path / "a")]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GEOMX_")}
    for host, token, reason in [
        ("0.0.0.0", {"GEOMX_TOKEN": "t"}, "without TLS"),
        ("127.0.0.1", {}, "without a token"),
    ]:
        done = subprocess.run(
            [*argv, "--host", host],
            env={**plain, **token},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == FAILED, done.stderr
        assert reason in done.stderr and "Traceback" not in done.stderr


def test_nodes_that_have_not_joined_are_named() -> None:
    loop = _core.Loop("127.0.0.1", 0, TOKEN)
    loop.run(node_config(SCHEDULER), {}, None)
    late = r"global was lost: it did not join the run in 0.05 s; nor did east"
    with pytest.raises(RuntimeError, match=late):
        loop.wait_started(0.05)
    loop.close()


def test_waiting_for_a_late_node_is_no_silence() -> None:
    for silence_s in (1.0, 2.0, 4.0):  # a busy machine may stop all threads for longer
        cluster = LoopCluster(silence_s=silence_s, late_s=2.5 * silence_s)
        cluster.declare(0, 3)
        cluster.push_all(0, [np.ones(3, np.float32)] * 4)
        time.sleep(silence_s)  # until all have looked for silent connections
        states = [state for loop in cluster.loops for state in loop.stats()["states"]]
        cluster.stop()
        made = {state["connections"] for state in states}
        if made == {1}:
            return
    pytest.fail(f"connections were made again: {made}")


def test_a_signal_ends_a_wait(cluster: LoopCluster) -> None:
    # Background jobs of shells, such as those of some CI runners, start with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            cluster.loops[SCHEDULER].wait_stopped(PATIENCE_S)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


def test_who_takes_part_is_told_while_a_plugin_is_called() -> None:
    """In a process of its own: it would hang with all of its threads, and so would the test."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.busy"],
        cwd=Path(__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["gone east1", "partial east1", "ended"]


def test_statistics_outlive_the_loop() -> None:
    loop = _core.Loop(token=TOKEN)
    loop.close()
    loop.close()
    assert loop.stats()["links"] == []
    assert loop.spans() == []
    assert loop.failure() is None
    with pytest.raises(RuntimeError, match="closed"):
        loop.wait_stopped(1.0)
