"""Emulated links in network namespaces: treatment of packets, runs over them, and cleanup."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import networkx as nx
import pytest
import yaml

from geomx import _core
from geomx.cli import main as cli
from geomx.config.compose import compose
from geomx.errors import ConfigError, GeomxError
from geomx.live import emulation
from geomx.live.launcher import run_experiment
from geomx.live.namespaces import Ways, address, sites
from geomx.live.spec import Spec
from geomx.network.files import read_network
from geomx.network.hosts import LAN
from geomx.network.topology import with_standbys
from geomx.runner import execute

T = TypeVar("T")

needs_namespaces = pytest.mark.skipif(
    bool(_core.why_no_namespaces()), reason="needs root and network namespaces"
)
END_S = 10.0  # time limit for the end of all processes after the launcher's
NETWORK = """
name: slow
central: {name: hub, global_servers: 1, uplink_mbps: 40, downlink_mbps: 40}
parties:
  east: {workers: 1, uplink_mbps: 20, downlink_mbps: 20}
  west: {workers: 1, uplink_mbps: 20, downlink_mbps: 20}
delay_ms: 5
lan: {mbps: 10000, delay_ms: 0.05}
"""


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Return the overrides of a small live experiment in namespaces."""
    path = tmp_path / "slow.yaml"
    path.write_text(NETWORK)
    options = ["mode=live", "emulate=netns", "iterations=2", "numerics=false"]
    return [*options, f"network={path}", f"hydra.run.dir={tmp_path / 'run'}"]


# ---- one link ----

RATE = 1e6  # bytes/s, headers included
HERE, THERE = 0x0A000001, 0x0A000002


class Pair:
    """Two namespaces with an emulated link, and sockets in them."""

    def __init__(self, schedule: _core.BandwidthSchedule | float = RATE, **edge: Any) -> None:
        options = {"delay_ns": 0, "jitter_ns": 0, "loss": 0.0, "queue_bytes": 50_000, **edge}
        self.router = _core.Router(1)
        self.spaces = [self.router.add_site([number], {}) for number in (HERE, THERE)]
        there, back = (self.router.add_edge(schedule, **options) for _ in range(2))
        self.router.add_route(HERE, THERE, [there])
        self.router.add_route(THERE, HERE, [back])
        self.router.start()

    def inside(self, index: int, action: Callable[[], T]) -> T:
        """Call `action` in a namespace."""
        with emulation.inside(f"/proc/self/fd/{self.spaces[index]}"):
            return action()

    def connection(self) -> tuple[socket.socket, socket.socket]:
        """Return both ends of a new connection, the client's first."""
        server = self.inside(1, lambda: socket.create_server(("10.0.0.2", 0)))
        client = self.inside(0, lambda: socket.create_connection(server.getsockname(), 10))
        accepted, _ = server.accept()
        server.close()
        for end in (client, accepted):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.settimeout(10)
        return client, accepted


@pytest.fixture
def pair() -> Iterator[Callable[..., Pair]]:
    """Create pairs, and stop their routers after the test."""
    made: list[Pair] = []

    def make(*arguments: Any, **edge: Any) -> Pair:
        made.append(Pair(*arguments, **edge))
        return made[-1]

    yield make
    for each in made:
        each.router.stop()


def goodput(sender: socket.socket, receiver: socket.socket, seconds: float) -> float:
    """Return the received payload bytes/s, after one second of slow start."""

    def send() -> None:
        try:
            while True:
                sender.sendall(bytes(65536))
        except OSError:
            return

    threading.Thread(target=send, daemon=True).start()
    began, received = time.monotonic() + 1.0, 0
    while (now := time.monotonic()) < began + seconds:
        size = len(receiver.recv(4096))
        received += size if now >= began else 0
    receiver.close()
    return received / (now - began)


@pytest.mark.slow
@needs_namespaces
def test_a_connection_has_the_bandwidth_of_the_link(pair: Callable[..., Pair]) -> None:
    rate = goodput(*pair(delay_ns=5_000_000).connection(), 2.0)
    assert rate / RATE == pytest.approx(1448 / 1500, rel=0.05)


@needs_namespaces
def test_a_round_trip_takes_the_delay_of_both_ways(pair: Callable[..., Pair]) -> None:
    link = pair(delay_ns=20_000_000)
    client, accepted = link.connection()
    took = []
    for _ in range(10):
        began = time.perf_counter()
        client.sendall(b"x")
        accepted.sendall(accepted.recv(1))
        client.recv(1)
        took.append(time.perf_counter() - began)
    assert 0.040 <= min(took) < 0.060
    link.router.set(0, 60_000_000, None)  # takes effect at once
    began = time.perf_counter()
    client.sendall(b"x")
    accepted.recv(1)
    assert 0.060 <= time.perf_counter() - began < 0.090


@pytest.mark.slow
@needs_namespaces
def test_datagrams_are_lost_with_the_links_probability(pair: Callable[..., Pair]) -> None:
    link = pair(loss=0.2)
    ends = [link.inside(i, lambda: socket.socket(type=socket.SOCK_DGRAM)) for i in (0, 1)]
    ends[1].bind(("10.0.0.2", 0))
    ends[1].settimeout(0.2)
    arrived = 0
    for _ in range(10):  # at most what a socket buffer holds
        for _ in range(100):
            ends[0].sendto(b"x", ends[1].getsockname())
        with contextlib.suppress(TimeoutError):
            while True:
                arrived += len(ends[1].recv(16))
    link.router.stop()
    counts = link.router.counts()
    assert arrived == counts["delivered"]
    assert arrived + counts["lost"] == 1000
    assert 120 < counts["lost"] < 280


@pytest.mark.slow
@needs_namespaces
def test_a_link_follows_its_schedule_from_the_start_of_the_run(pair: Callable[..., Pair]) -> None:
    schedule = _core.BandwidthSchedule(RATE)
    schedule.add_outage(0.0, 1.0)
    link = pair(schedule)
    client, accepted = link.connection()  # the link is up before the run starts
    began = time.monotonic()
    link.router.set_origin(began)
    time.sleep(0.05)
    client.sendall(b"x")
    accepted.recv(1)
    assert 1.0 <= time.monotonic() - began < 3.0


@pytest.mark.slow
@needs_namespaces
def test_packets_to_unknown_addresses_are_dropped(pair: Callable[..., Pair]) -> None:
    link = pair()
    caller = link.inside(0, socket.socket)
    caller.settimeout(0.3)
    with pytest.raises(TimeoutError):
        caller.connect(("10.0.0.3", 80))
    link.router.stop()
    assert link.router.counts()["strangers"] >= 1


# ---- from a network file to namespaces ----


def spec_of(network: dict[str, Any]) -> Spec:
    return Spec(read_network(network), ("fsa", {}), emulated=False)


def test_sites_are_namespaces_and_slow_lans_are_emulated() -> None:
    network = yaml.safe_load(NETWORK)
    cluster = read_network(network)
    assert [[node.name for node in site] for site in sites(cluster)] == [
        ["hub/scheduler", "hub/global_server0"],
        ["east/server", "east/worker0"],
        ["west/server", "west/worker0"],
    ]
    slow = read_network(network | {"lan": LAN | {"mbps": 100}})
    assert sites(slow) == [[node] for node in slow.nodes]
    assert len({address(node) for node in slow.nodes}) == len(slow.nodes)
    assert address(slow.nodes[0]) == "10.0.0.1"


def test_packets_take_the_paths_of_the_graph() -> None:
    spec = spec_of(yaml.safe_load(NETWORK))
    cluster, ways = spec.cluster, Ways(spec)
    server, hub = cluster.node("east/server"), cluster.node("hub/global_server0")
    assert ways.between[server, hub] == cluster.path(server, hub).edges
    assert ways.between[hub, server] == cluster.path(hub, server).edges
    assert (server, cluster.node("east/worker0")) not in ways.between  # same namespace
    assert (server, cluster.node("west/server")) not in ways.between  # do not communicate


def test_packets_reach_the_standby_that_takes_the_place_of_a_global_server() -> None:
    cluster = with_standbys(read_network(yaml.safe_load(NETWORK)), "west")
    between = Ways(Spec(cluster, ("fsa", {}), emulated=False)).between
    (standby,), server = cluster.standbys, cluster.node("east/server")
    hub = cluster.node("hub/global_server0")
    for pair in ((server, standby), (standby, server), (hub, standby), (standby, hub)):
        assert between[pair] == cluster.path(*pair).edges
    assert (standby, cluster.node("west/server")) not in between  # same namespace


def test_queues_are_two_round_trips_or_as_configured() -> None:
    graph = nx.DiGraph()
    for name, kind, party in (
        ("g", "global_server", "hub"), ("s", "scheduler", "hub"),
        ("p", "server", "east"), ("w", "worker", "east"),
    ):  # fmt: skip
        graph.add_node(name, kind=kind, party=party)
    for edge in (("g", "r"), ("s", "r"), ("p", "q"), ("w", "q")):
        graph.add_edge(*edge, bandwidth_mbps=10_000, delay_ms=0)
        graph.add_edge(*reversed(edge), bandwidth_mbps=10_000, delay_ms=0)
    graph.add_edge("r", "q", bandwidth_mbps=80, delay_ms=90)
    graph.add_edge("q", "r", bandwidth_mbps=8, delay_ms=70, queue_ms=500)
    queues = Ways(spec_of(nx.node_link_data(graph, edges="links"))).queues
    assert queues["r", "q"] == pytest.approx(10e6 * 2 * 0.160)
    assert queues["q", "r"] == pytest.approx(1e6 * 0.500)


# ---- refusals ----


def refusal(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.run(words) == 2
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    return complaint


@pytest.mark.parametrize("mode", ["sim", "live"])
def test_an_unknown_emulation_is_refused(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    complaint = refusal([f"mode={mode}", "emulate=netsn"], capsys)
    assert "emulate=netsn" in complaint
    assert "netns" in complaint.replace("netsn", "")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["live", "both"])
def test_without_root_the_error_names_a_remedy(
    mode: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(emulation, "why_no_namespaces", lambda: "cannot make a network namespace")
    complaint = refusal([f"mode={mode}", "emulate=netns"], capsys)
    assert "root" in complaint
    assert "emulate=shaper" in complaint
    assert compose(["mode=sim", "emulate=netns"])[0].emulate == "netns"


def test_parallel_streams_need_the_shaper(capsys: pytest.CaptureFixture[str]) -> None:
    complaint = refusal(["mode=live", "emulate=none", "tcp.streams=2"], capsys)
    assert "tcp.streams=2" in complaint


def test_the_shaper_has_no_acknowledgements(capsys: pytest.CaptureFixture[str]) -> None:
    complaint = refusal(["mode=live", "tcp.ack_share=0.02"], capsys)
    assert "tcp.ack_share=0.02" in complaint
    assert "emulate=shaper" in complaint


@pytest.mark.slow
@needs_namespaces
def test_namespaces_do_not_support_priority_queueing(capsys: pytest.CaptureFixture[str]) -> None:
    complaint = refusal(["mode=live", "emulate=netns", "tcp.queueing=priority"], capsys)
    assert "tcp.queueing=priority" in complaint
    assert "emulate=shaper" in complaint


@needs_namespaces
def test_a_congestion_control_that_the_kernel_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tcp\.congestion=vegas2.*reno"):
        emulation.check_congestion("vegas2")


# ---- the TCP benchmark ----


@pytest.mark.slow
@needs_namespaces
def test_the_benchmark_compares_transfers_with_the_model() -> None:
    sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
    from tcp import connections

    sizes = {state: [20_000 + index for index in range(2)] for state in connections.STATES}
    rows = list(connections.rows_of(connections.Way(50.0, 4.0, "reno", sizes, [0.01, 0.02])))
    assert [(row["state"], row["bytes"]) for row in rows] == [
        ("new", 20_000), ("new", 20_001), ("kept", 20_001), ("idle", 20_000), ("idle", 20_001),
    ]  # fmt: skip
    least_s = 20_000 / (50 * 125_000)
    assert all(row["seconds"] > least_s for row in rows)  # lower bound on any machine
    assert all(math.isfinite(error) for row in rows for error in row["errors"].values())
    assert all(row["errors"]["size / bandwidth"] < 0 for row in rows)
    found = dict(connections.groups(rows))
    assert connections.figures(found["all"])["transfers"] == 5
    assert connections.table(rows).count("| reno, ") == 3 + 5


# ---- whole runs ----


def namespaces() -> dict[int, str]:
    """Return the network namespace of each process of the machine."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found[int(process.name)] = os.readlink(process / "ns/net")
        except OSError:
            continue
    return found


def inhabitants(directory: Path) -> dict[int, str]:
    """Return all processes in the namespaces of a run, whatever their command lines."""
    all_of_them = namespaces()
    made = {all_of_them[number] for number in processes(directory) if number in all_of_them}
    # The main thread may have entered one temporarily.
    made.discard(os.readlink("/proc/thread-self/ns/net"))
    return {number: name for number, name in all_of_them.items() if name in made}


def processes(directory: Path) -> dict[int, str]:
    """Return the command lines that contain a directory, by process."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(directory) in command and process.name != str(os.getpid()):
            found[int(process.name)] = command
    return found


def wait_for(condition: Callable[[], Any], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@needs_namespaces
def test_simulated_and_kernel_runs_have_equal_bytes_and_models(words: list[str]) -> None:
    experiment, directory = compose([*words, "mode=both", "numerics=true"])
    inside: dict[int, str] = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            inside.update(inhabitants(directory))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        execute(experiment, directory)
    finally:
        ended.set()
        watcher.join()
    comparison = json.loads((directory / "comparison.json").read_text())
    for figure in ("wan_push", "wan_pull", "lan"):
        assert comparison["bytes"][figure]["sim"] == comparison["bytes"][figure]["live"] > 0
    counts = json.loads((directory / "live/nodes/network.log").read_text())
    assert counts["delivered"] > 1000
    summary = json.loads((directory / "live/summary.json").read_text())
    assert summary["emulate"] == "netns"
    assert processes(directory) == {}
    assert len(set(inside.values())) == 3
    assert not inside.items() & namespaces().items()


@pytest.mark.slow
@needs_namespaces
@pytest.mark.parametrize("traffic", ["mbps: 10, for_s: 60", "bytes: 1e9"])
def test_traffic_of_others_takes_its_share(words: list[str], traffic: str) -> None:
    """Half of the uplink, in both modes: at this rate, and as one of two connections."""
    event = f"{{at_s: 0, traffic: [east, hub], {traffic}}}"
    options = ["mode=both", f"scenario=[{event}]", "workload=digits_cnn", "iterations=4"]
    experiment, directory = compose([*words, *options])
    execute(experiment, directory)
    took_s = json.loads((directory / "comparison.json").read_text())["seconds_per_iteration"]["p50"]
    assert took_s["live"] > 0.8 * took_s["sim"]  # alone, training would take half of that


@pytest.mark.slow
@needs_namespaces
def test_no_process_outlives_a_killed_launcher(words: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "geomx", *words, "iterations=100000"]
    launcher = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=tmp_path)
    try:
        notes = tmp_path / "run/nodes/east-worker0.jsonl"
        wait_for(lambda: notes.exists() and '"iteration"' in notes.read_text(), 60)
        inside = inhabitants(tmp_path / "run")
        assert len(set(inside.values())) == 3
        launcher.kill()
    finally:
        launcher.kill()
        launcher.wait()
    wait_for(lambda: not processes(tmp_path / "run"), END_S)
    wait_for(lambda: not inside.items() & namespaces().items(), END_S)


@pytest.mark.slow
@needs_namespaces
def test_the_end_of_the_emulated_network_ends_the_run(words: list[str]) -> None:
    experiment, directory = compose([*words, "iterations=100000"])

    def pull_the_plug() -> None:
        notes = directory / "nodes/east-worker0.jsonl"
        wait_for(lambda: notes.exists() and '"iteration"' in notes.read_text(), 60)
        for number, command in processes(directory).items():
            if "geomx.live.namespaces" in command:
                os.kill(number, signal.SIGKILL)

    threading.Thread(target=pull_the_plug, daemon=True).start()
    with pytest.raises(GeomxError, match="the emulated network ended: it was killed"):
        run_experiment(experiment, directory)
    assert processes(directory) == {}


@pytest.mark.slow
def test_emulation_can_be_disabled(words: list[str]) -> None:
    words = [word for word in words if not word.startswith("emulate")]
    experiment, directory = compose([*words, "emulate=none", "network.delay_ms=2000"])
    began = time.monotonic()
    results = execute(experiment, directory)
    assert results.summary["emulate"] == "none"
    assert results.summary["seconds"] < 2.0  # less than one emulated one-way delay
    assert time.monotonic() > began


SCRIPT = """
import socket, sys
import numpy as np
from geomx import kv
store = kv.create("dist_sync")
store.init(0, np.zeros(4, np.float32))
store.push(0, np.ones(4, np.float32))
out = np.zeros(4, np.float32)
store.pull(0, out=out)
print("sum", out[0], [name for _, name in socket.if_nameindex()])
"""


@pytest.mark.slow
@needs_namespaces
def test_a_training_script_runs_in_namespaces(words: list[str], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    geomx = [sys.executable, "-c", "import sys; from geomx.cli.main import main; sys.exit(main())"]
    command = [*geomx, "launch", *words, "--", sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "sum 2.0 ['lo', 'wan']" in done.stdout


URGENT = """
import sys, time
import numpy as np
from geomx import kv

store = kv.create()
store.init([0, 1], [np.zeros(1000, np.float32), np.zeros(1_100_000, np.float32)])
for _ in range(10):
    store.push(1, np.ones(1_100_000, np.float32))
    time.sleep(1.2)
    begin = time.monotonic()
    store.pushpull(0, np.ones(1000, np.float32))
    print("seconds", time.monotonic() - begin, flush=True)
    store.pull(1)
"""


@pytest.mark.slow(4)
@needs_namespaces
@pytest.mark.needs("p3")
def test_urgent_messages_find_short_queues_in_the_network(tmp_path: Path) -> None:
    """Under BBR, a queue of a round trip's bytes stands in the network in each direction.

    Where no message is more urgent than others, it stays. The two runs are made at once, so that
    the load of the machine is the same.
    """
    script, network = tmp_path / "train.py", tmp_path / "network.yaml"
    script.write_text(URGENT)
    site = "uplink_mbps: 20, downlink_mbps: 20"
    network.write_text(
        f"central: {{name: hub, {site}}}\nparties: {{east: {{workers: 1, {site}}}}}\n"
        "delay_ms: 100\nlan: {mbps: 10000, delay_ms: 0.05}\n"
    )
    geomx = [sys.executable, "-c", "import sys; from geomx.cli.main import main; sys.exit(main())"]

    def run(accel: str) -> tuple[list[float], float]:
        directory = tmp_path / (accel or "none")
        words = [f"network={network}", f"+accel=[{accel}]", "emulate=netns"]
        words += ["runtime.frame_bytes=16384", f"hydra.run.dir={directory}"]
        done = subprocess.run(
            [*geomx, "launch", *words, "--", sys.executable, str(script)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = [line.split() for line in done.stdout.splitlines() if "seconds" in line]
        counts = json.loads(next(directory.rglob("network.log")).read_text())
        return [float(line[-1]) for line in lines], counts["mean_wait_s"]

    with ThreadPoolExecutor() as pool:
        (urgent, short), (plain, long) = pool.map(run, ("p3", ""))
    assert len(urgent) == len(plain) == 10
    assert 0.2 < min(urgent) < min(plain) / 2
    assert short < 0.5 * long
