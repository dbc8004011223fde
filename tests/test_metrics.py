"""Nodes serve metrics that agree with the files of their run, and ``geomx top`` shows them."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from socket import socket
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from rich.console import Console

from geomx.cli.main import main
from geomx.cli.top import MISSED
from geomx.cluster import Cluster
from geomx.errors import ConfigError, GeomxError
from geomx.live.access import FILES, has_tls, paths
from geomx.live.metering import meter
from geomx.machines.certs import folder_of, make
from geomx.metrics.families import NodeMetrics
from geomx.metrics.server import Federation, Unserved, fetch, serve
from geomx.metrics.top import Reading, link_rows, node_rows, round_rows, shown, slowest
from geomx.options.schema import MetricsOptions
from geomx.results.mean_rounds import PARTS, Servers
from geomx.testing.worlds import cluster
from tests.ports import free_port


def stats(peer: str, size: int) -> dict[str, Any]:
    """Return what a node's loop returns that has pushed `size` bytes to a peer in two messages."""
    link = {"peer": peer, "push": (size, 2), "pull": (0, 0), "control_bytes": 7, "busy_s": 0.5}
    link |= {"push_values": (2, 0.25), "pull_values": (0, 0.0)}
    state = {"peer": peer, "connected": True, "connections": 2, "silent_s": 0.1, "queued_bytes": 9}
    state |= {"suspect": False, "suspicions": 1}
    counts = {"rounds": 3, "late_slices": 0, "missing_slices": 0, "non_finite_pushes": 1}
    counts |= {"partial_rounds": 1, "dropped_slices": 0}
    told = {"links": [link], "states": [state], "node": counts, "refused_callers": 4}
    return told | {"rounds": {}, "handled": {"update": 0.125}}


def rounds_of(
    phases: dict[str, float], children: dict[str, tuple[int, float]]
) -> dict[str, dict[str, Any]]:
    """Return what a server's loop returns of its rounds."""
    return {"phases": phases, "children": children}


@pytest.fixture
def job() -> Cluster:
    """Return a small cluster."""
    return cluster()


def metrics_of(job: Cluster, name: str, peer: str, size: int = 1000) -> NodeMetrics:
    """Return the metrics of a node that has sent something."""
    return NodeMetrics(job.node(name), job, lambda: stats(peer, size))


@pytest.mark.slow
def test_a_scheduler_serves_the_metrics_of_all_nodes_once_each(job: Cluster) -> None:
    worker, server = job.workers[0], job.party_of(job.workers[0]).server
    first = free_port(3)
    metrics = metrics_of(job, worker.name, server.name)
    metrics.steps.batch_size = 8
    metrics.steps.add(0.3, 0.1, 0.75)
    metrics.waits_for = server.name
    own = metrics_of(job, job.scheduler.name, server.name)
    addresses = {worker.name: f"127.0.0.1:{first + 1}", server.name: f"127.0.0.1:{first + 2}"}
    federation = Federation(own, lambda: addresses, None)
    servers = [
        serve("127.0.0.1", first + 1, metrics, None),
        serve("127.0.0.1", first, federation, None),
    ]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{first}/metrics") as answer:
            text = answer.read().decode()
        now = Reading.of(1.0, fetch(f"127.0.0.1:{first}"))
        with pytest.raises(ConfigError, match=r"cannot be opened .*choose another first port"):
            serve("127.0.0.1", first, own, None)
    finally:
        for each in servers:
            each.shutdown()
            each.server_close()
    # Prometheus refuses a page that has the type of a metric twice.
    types = Counter(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert {name for name, times in types.items() if times > 1} == set()
    assert now.get("geomx_up", node=worker.name) == 1
    assert now.get("geomx_up", node=server.name) == 0  # it serves nothing
    which = {"node": worker.name, "peer": server.name, "network": "lan"}
    assert now.get("geomx_sent_bytes_total", direction="push", **which) == 1000
    assert now.get("geomx_sent_messages_total", **which) == 2
    assert now.get("geomx_samples_total", node=worker.name) == 8
    assert now.get("geomx_loss", node=worker.name) == 0.75
    assert now.get("geomx_non_finite_pushes_total") == 2
    assert now.get("geomx_long_wait", node=worker.name, peers=server.name) == 1
    assert now.get("geomx_send_seconds_sum", direction="push", **which) == 0.25
    assert now.get("geomx_suspicions_total", **which) == 1
    assert now.get("geomx_handling_seconds_total", node=worker.name, work="update") == 0.125
    assert now.get("process_resident_memory_bytes", node=worker.name) > 1e6


class Other(Collector):
    """What another program serves."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("up", "Whether a target answers.", value=1.0)


def test_a_page_of_another_program_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of Prometheus itself, whose port is taken for the job's. No proxy is asked."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    port = free_port()
    served = serve("127.0.0.1", port, Other(), None)
    try:
        with pytest.raises(GeomxError, match=rf"no metrics of geomx at http://.*:{port}/metrics"):
            fetch(f"127.0.0.1:{port}")
    finally:
        served.shutdown()
        served.server_close()


def test_top_shows_rates_between_two_readings(job: Cluster) -> None:
    fast, slow = job.workers[:2]
    server = job.party_of(fast).server

    def reading(time_s: float, size: int, times: tuple[float, float]) -> Reading:
        families: list[Any] = []
        for worker, wait_s in zip((fast, slow), times, strict=True):
            metrics = metrics_of(job, worker.name, server.name, size)
            for _ in range(int(time_s)):
                metrics.steps.add(1.0 - wait_s, wait_s, 0.5)
            families += metrics.collect()
        return Reading.of(time_s, families)

    before, now = reading(2.0, 1000, (0.6, 0.1)), reading(6.0, 9000, (0.6, 0.1))
    rows = {row.name: row for row in node_rows(before, now)}
    assert rows[fast.name].steps == 6
    assert rows[fast.name].steps_per_s == pytest.approx(1.0)
    assert rows[fast.name].wait_share == pytest.approx(0.6)
    last = slowest(list(rows.values()))
    assert last is not None and last.name == slow.name
    link = link_rows(before, now)[0]
    assert link.bytes_per_s == pytest.approx(2000)
    bandwidth = job.path(fast, server).bandwidth_bps / 8
    assert link.share == pytest.approx(2000 / bandwidth)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(shown(before, now))
    text = console.export_text()
    assert re.search(rf"{slow.name} .*the others wait for it", text)
    assert re.search(rf"{fast.name} .* 1\.0 .* 60%", text)


@pytest.mark.slow
@pytest.mark.skipif(not has_tls(), reason="geomx was built without TLS")
def test_with_certificates_strangers_read_nothing(job: Cluster, tmp_path: Path) -> None:
    worker, server = job.workers[0], job.party_of(job.workers[0]).server
    make(tmp_path, job)
    files = {node: paths(folder_of(tmp_path, node.name)) for node in (worker, server)}
    port = free_port(1)
    served = serve("127.0.0.1", port, metrics_of(job, worker.name, server.name), files[worker])
    try:
        now = Reading.of(1.0, fetch(f"127.0.0.1:{port}", files[server]))
        assert now.get("geomx_shard_rounds_total", node=worker.name) == 3
        with pytest.raises(GeomxError, match=r"no metrics at http://.*nonnumeric port: 'abc'"):
            fetch("127.0.0.1:abc")
        with pytest.raises(GeomxError, match="no metrics at http://"):
            fetch(f"127.0.0.1:{port}")
        stranger = ssl.create_default_context(cafile=files[server][0])  # type: ignore[index]
        stranger.check_hostname = False
        with pytest.raises(OSError, match=r"certificate|reset|EOF"):
            urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", context=stranger).read()
    finally:
        served.shutdown()
        served.server_close()


@pytest.mark.slow
@pytest.mark.skipif(not has_tls(), reason="geomx was built without TLS")
@pytest.mark.parametrize("by_tls", [True, False])
def test_top_reads_what_this_machine_serves_with_and_without_tls(
    by_tls: bool,
    job: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    worker, scheduler = job.workers[0], job.scheduler
    make(tmp_path, job)
    folder = folder_of(tmp_path, scheduler.name)
    monkeypatch.setenv("GEOMX_TLS", str(folder))
    port = free_port(1)
    metrics = metrics_of(job, worker.name, scheduler.name)
    served = serve("127.0.0.1", port, metrics, paths(folder) if by_tls else None)
    try:
        for host in ("", "127.0.0.1:", "localhost:"):
            assert main(["top", f"{host}{port}", "--once", "--every", "0.01"]) == 0
            assert worker.name in capfd.readouterr().out
    finally:
        served.shutdown()
        served.server_close()
    assert main(["top", str(port), "--once"]) == 1
    said = capfd.readouterr().err
    assert said.startswith(f"no metrics at https://127.0.0.1:{port}/metrics: nothing listens there")
    assert "metrics.port" in said
    monkeypatch.setenv("GEOMX_TLS", str(tmp_path / "none"))
    assert main(["top", str(port), "--once"]) == 2
    assert "lacks authority.pem and node.pem and node.key" in capfd.readouterr().err


def test_top_asks_other_machines_by_tls_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def fetched(address: str, files: Any) -> None:
        asked.append(files)
        raise GeomxError("no metrics")

    for name in FILES.values():
        (tmp_path / name).write_text("")
    monkeypatch.setenv("GEOMX_TLS", str(tmp_path))
    monkeypatch.setattr("geomx.cli.top.fetch", fetched)
    assert main(["top", "192.0.2.1:9300", "--once"]) == 1
    assert asked == [paths(tmp_path)]


@pytest.mark.slow
def test_a_node_that_hangs_is_in_the_table(job: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    """The kernel takes calls for a stopped process, which answers none of them."""
    worker, scheduler = job.workers[0], job.scheduler
    own = metrics_of(job, scheduler.name, worker.name)
    port = free_port(1)
    with contextlib.ExitStack() as stack:
        silent = {f"w/[x]{number}": stack.enter_context(socket()) for number in range(20)}
        for each in silent.values():
            each.bind(("127.0.0.1", 0))
            each.listen()
        addresses = {name: f"127.0.0.1:{s.getsockname()[1]}" for name, s in silent.items()}
        served = serve("127.0.0.1", port, Federation(own, lambda: addresses, None), None)
        stack.callback(served.server_close)
        stack.callback(served.shutdown)
        assert main(["top", str(port), "--once", "--every", "0.01"]) == 0
    out = capfd.readouterr().out
    assert all(re.search(rf"{re.escape(name)} .*does not answer", out) for name in silent)


@pytest.mark.parametrize(
    ("ends", "status", "said"),
    [
        (Unserved("no metrics"), 0, "the job has ended: nothing serves metrics at 127.0.0.1:9300"),
        (GeomxError("timed out"), 1, "timed out"),
    ],
)
def test_top_goes_on_until_the_job_ends(
    ends: GeomxError,
    status: int,
    said: str,
    job: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A reading may fail in between."""
    families = [*metrics_of(job, job.workers[0].name, job.scheduler.name).collect()]
    answers = [families, families, *[ends] * MISSED, families, *[ends] * (MISSED + 1)]

    def fetched(address: str, files: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, GeomxError):
            raise answer
        return answer

    monkeypatch.setattr("geomx.cli.top.fetch", fetched)
    assert main(["top", "9300", "--every", "0.001"]) == status
    assert answers == []
    told = capfd.readouterr()
    assert said in (told.err if status else told.out)


@pytest.mark.parametrize("every", ["-1", "0", "nan", "inf"])
def test_top_refuses_odd_times(every: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "1", "--every", every]) == 2
    assert "must be a number of seconds above 0" in capfd.readouterr().err


MONITORING = Path(__file__).parent.parent / "examples" / "monitoring"


def test_rules_and_dashboard_ask_for_metrics_that_there_are(job: Cluster) -> None:
    worker, server = job.workers[0], job.party_of(job.workers[0]).server
    told = stats(worker.name, 1000) | {
        "rounds": rounds_of({"compute": 1.0}, {worker.name: (1, 0.5)})
    }
    families = NodeMetrics(server, job, lambda: told, lambda: {"push": 0.5}).collect()
    served = {sample.name for family in families for sample in family.samples}
    families = metrics_of(job, worker.name, job.scheduler.name).collect()
    served |= {sample.name for family in families for sample in family.samples} | {"geomx_up"}
    served |= {"geomx_loss", "geomx_long_wait"}  # which a worker without a step does not have
    rules = (MONITORING / "rules.yml").read_text()
    recorded = set(re.findall(r"record: (\S+)", rules))
    dashboard = (MONITORING / "dashboard.json").read_text()
    panels = json.loads(dashboard)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 10
    for text in (rules, dashboard, (MONITORING / "rules_test.yml").read_text()):
        asked = set(re.findall(r"\b(?:geomx|process)[_:][\w:]+\b", text))
        assert asked and asked <= served | recorded
    documented = (MONITORING.parent.parent / "docs" / "metrics.md").read_text()
    assert {name for name in served if name.startswith("geomx") and name not in documented} == set()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, of Prometheus")
def test_rules_of_prometheus_do_what_their_tests_say() -> None:
    tests = MONITORING / "rules_test.yml"
    done = subprocess.run(
        ["promtool", "test", "rules", tests], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout


def test_top_shows_that_workers_wait_while_no_step_ends(job: Cluster) -> None:
    worker = job.workers[0]
    told = stats(job.party_of(worker).server.name, 0)
    shares = []
    for waits in (False, True):
        metrics = NodeMetrics(worker, job, lambda: told, waits=lambda waits=waits: waits)
        metrics.steps.add(0.9, 0.1, 0.5)
        readings = [Reading.of(time_s, metrics.collect()) for time_s in (1.0, 2.0)]
        (row,) = node_rows(*readings)
        shares.append(row.wait_share)
    assert shares == [None, 1.0]


def test_top_says_which_links_are_broken_or_silent(job: Cluster) -> None:
    worker, server = job.workers[0], job.party_of(job.workers[0]).server
    remarks = {}
    for connected, connections, silent_s in ((1, 1, 0.2), (1, 1, 3.4), (0, 2, 0.0), (0, 0, 0.0)):
        told = stats(server.name, 0)
        told["states"][0] |= {
            "connected": bool(connected),
            "connections": connections,
            "silent_s": silent_s,
        }
        now = Reading.of(1.0, NodeMetrics(worker, job, lambda told=told: told).collect())
        rows = link_rows(now, now)
        remarks[connected, connections, silent_s] = [row.remark for row in rows]
    assert list(remarks.values()) == [[], ["silent for 3 s"], ["no connection"], []]


def test_top_divides_a_round_into_phases_and_names_the_last(job: Cluster) -> None:
    worker, other = job.workers[:2]
    server, central = job.party_of(worker).server, job.global_servers[0]

    def counts(rounds: int) -> dict[str, dict[str, Any]]:
        told = stats(central.name, 0)
        told["node"] |= {"rounds": rounds}
        told["links"][0] |= {"push_values": (rounds, 0.5 * rounds), "pull_values": (0, 0.0)}
        phases = {"compute": 2.0 * rounds, "gather": 1.0 * rounds, "answer": 4.0 * rounds}
        children = {worker.name: (rounds // 4, 0.0), other.name: (rounds - rounds // 4, 0.0)}
        told["rounds"] = rounds_of(phases, children)
        hub = stats(server.name, 0)
        hub["node"] |= {"rounds": rounds}
        hub["links"][0] |= {"pull_values": (rounds, 0.75 * rounds), "push_values": (0, 0.0)}
        phases = {"compute": 6.0 * rounds, "gather": 1.0 * rounds}
        hub["rounds"] = rounds_of(phases, {server.name: (rounds, 2.5 * rounds)})
        return {server.name: told, central.name: hub}

    def reading(rounds: int) -> Reading:
        families: list[Any] = []
        for name, told in counts(rounds).items():
            families += NodeMetrics(job.node(name), job, lambda told=told: told).collect()
        return Reading.of(float(rounds), families)

    at_the_end = Servers()
    for name, told in counts(8).items():
        at_the_end.add(name, told | {"residuals": {"push": 0.5, "pull": 0.0}})
    at_the_end.add(worker.name, stats(server.name, 0))  # it has no rounds
    found = at_the_end.summary()
    assert found["mean_round"][server.name] == {
        "shard_rounds": 8, "compute_s": 2.0, "gather_s": 1.0, "push_s": 0.5, "held_s": 2.5,
        "pull_s": 0.75, "rest_s": 0.25, "last": other.name, "last_share": 0.75,
    }  # fmt: skip
    assert [*found["mean_round"]] == [server.name, central.name] == [*found["residual_norms"]]
    assert found["residual_norms"][server.name] == {"push": 0.5}
    row, last = round_rows(reading(4), reading(12))
    assert (row.name, last.name) == (server.name, central.name)
    assert (row.mean.compute_s, row.mean.gather_s, row.mean.push_s) == (2.0, 1.0, 0.5)
    assert (row.mean.held_s, row.mean.pull_s, row.mean.rest_s) == (2.5, 0.75, 0.25)
    assert row.mean.whole_s == 7.0 == last.mean.whole_s
    assert (row.mean.last, row.mean.last_share) == (other.name, 0.75)
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(shown(reading(4), reading(12)))
    shown_row = rf"{server.name} .* 7 s .* 2 s .* 2\.50 s .*\b{other.name.rpartition('/')[2]} 75%"
    assert re.search(shown_row, console.export_text())


def test_rates_are_of_nodes_that_answered_at_both_readings(job: Cluster) -> None:
    """One that was silent at the first has counted for longer than the time in between."""
    worker, server = job.workers[0], job.party_of(job.workers[0]).server
    metrics = metrics_of(job, worker.name, server.name)
    metrics.steps.add(0.9, 0.1, 0.5)
    others = [*metrics_of(job, job.scheduler.name, server.name).collect()]
    whole, part = Reading.of(1.0, [*others, *metrics.collect()]), Reading.of(2.0, others)
    for before, now in ((part, whole), (whole, part)):
        (row,) = (row for row in node_rows(before, now) if row.name == worker.name)
        assert (row.steps, row.steps_per_s, row.wait_share) == (1, None, None)
        assert [link for link in link_rows(before, now) if link.source == worker.name] == []
        assert round_rows(before, now) == []


def test_names_of_nodes_are_no_markup(job: Cluster) -> None:
    names = {job.workers[0].name: "east/[bold]0", job.party_of(job.workers[0]).server.name: "[/]"}
    readings = []
    for time_s, size in ((1.0, 1000), (2.0, 9000)):
        reading = Reading.of(time_s, metrics_of(job, *names, size).collect())
        reading.values = {
            sample: {
                tuple((label, names.get(value, value)) for label, value in labels): number
                for labels, number in found.items()
            }
            for sample, found in reading.values.items()
        }
        readings.append(reading)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(shown(*readings))
    text = console.export_text()
    assert re.search(r"east/\[bold\]0 .*worker", text) and re.search(
        r"east/\[bold\]0 .*\[/\]", text
    )


def test_top_says_who_is_suspected_and_by_whom(job: Cluster) -> None:
    worker, server = job.workers[0], job.party_of(job.workers[0]).server
    told = stats(server.name, 0)
    told["states"][0] |= {"suspect": True}
    families = [*NodeMetrics(worker, job, lambda: told).collect()]
    families += metrics_of(job, server.name, worker.name).collect()
    now = Reading.of(1.0, families)
    rows = {row.name: row for row in node_rows(now, now)}
    assert rows[server.name].suspected_by == (worker.name,)
    assert rows[worker.name].suspected_by == ()


def test_norms_of_residuals_take_a_hundredth_of_the_time(
    job: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soon after a run's start they are 0; where they are cheap, every request has new ones."""
    now_s, asked = 0.0, 0

    def norms() -> dict[str, float]:
        nonlocal now_s, asked
        now_s, asked = now_s + 0.5, asked + 1
        return {"push": 0.25 * (asked - 1), "pull": 0.0}

    clock = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr("geomx.metrics.families.time", clock)
    metrics = NodeMetrics(job.workers[0], job, lambda: stats(job.workers[1].name, 0), norms)
    seen = []
    for _ in range(101):
        seen.append([*Reading.of(1.0, metrics.collect()).each("geomx_residual_norm")])
        now_s += 1.0
    assert asked == 3
    assert seen[:49] == [[]] * 49  # nothing is kept yet
    assert [value for _, value in seen[50]] == [0.25]
    assert {labels["direction"] for labels, _ in seen[-1]} == {"push"}


def test_metrics_beyond_this_machine_need_certificates(job: Cluster) -> None:
    spec = SimpleNamespace(metrics=MetricsOptions(port=9300, host="0.0.0.0"), cluster=job)
    member: Any = SimpleNamespace(spec=spec, node=job.scheduler)
    with pytest.raises(ConfigError, match=r"metrics\.host=0\.0\.0\.0.*certificates"):
        meter(member, None)


def test_nodes_on_an_ipv6_loopback_are_asked(job: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Federation] = []
    monkeypatch.setattr("geomx.live.metering.serve", lambda *about: served.append(about[2]))
    loop = SimpleNamespace(roster={job.workers[0].name: "[::1]:7"}, stats=None, residual_norms=None)
    spec = SimpleNamespace(metrics=MetricsOptions(port=9300, host="::1"), cluster=job)
    member: Any = SimpleNamespace(spec=spec, node=job.scheduler, loop=loop)
    meter(member, None)
    assert [*served[0]._addresses().values()] == [f"[::1]:{9300 + job.workers[0].id}"]


def test_without_a_port_nothing_is_served(job: Cluster) -> None:
    member: Any = SimpleNamespace(spec=SimpleNamespace(metrics=MetricsOptions(), cluster=job))
    member.node = job.scheduler
    assert meter(member, None) is None


@pytest.mark.slow
def test_a_live_run_serves_what_its_files_say(tmp_path: Path) -> None:
    port, steps = free_port(12), 120
    words = ["mode=live", "workload=tiny", f"iterations={steps}", f"metrics.port={port}"]
    words.append("+accel=[twobit]")
    command = [sys.executable, "-m", "geomx", *words, f"hydra.run.dir={tmp_path / 'run'}"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    readings = []
    try:
        while run.poll() is None:
            with contextlib.suppress(GeomxError):  # not yet, or no longer
                readings.append(Reading.of(time.monotonic(), fetch(f"127.0.0.1:{port}")))
            time.sleep(0.2)
        assert run.wait() == 0, run.communicate()[0]
    finally:
        run.kill()
    found = json.loads((tmp_path / "run/summary.json").read_text())
    mean = found["mean_round"]["beijing/server"]
    assert mean["shard_rounds"] == 3 * steps
    in_rounds_s = steps * sum(mean[f"{part}_s"] for part in PARTS)  # a shard is always in one
    assert found["seconds"] - 1.0 < in_rounds_s < found["seconds"] + 10.0  # from its initial value
    assert set(found["residual_norms"]) == {"beijing/server", "chengdu/server"}
    with (tmp_path / "run/links.csv").open() as file:
        links = list(csv.DictReader(file))
    ends = ("beijing/worker0", "beijing/server")
    (link,) = (row for row in links if (row["source"], row["target"]) == ends)
    each = float(link["bytes"]) / steps
    which = {"node": "beijing/worker0", "peer": "beijing/server", "direction": "push"}
    assert any(each.get("geomx_waiting") for each in readings)
    # A node that does not answer in time, or has left at the end, is not in a reading.
    whole = [r for r in readings if all(up for _, up in r.each("geomx_up"))]
    trained = [r for r in whole if r.get("geomx_steps_total", node="beijing/worker0") > 0]
    assert trained
    for reading in trained:
        done = reading.get("geomx_steps_total", node="beijing/worker0")
        sent = reading.get("geomx_sent_bytes_total", **which)
        assert each * (done - 1) <= sent * 1.001 and sent <= each * (done + 2) * 1.001
        for node in ("beijing/server", "hub/global_server0"):
            last = reading.get("geomx_last_contributions_total", node=node)
            assert last == reading.get("geomx_shard_rounds_total", node=node) > 0
    norms = {labels["node"]: value for labels, value in trained[-1].each("geomx_residual_norm")}
    assert set(norms) == {"beijing/server", "chengdu/server"} and min(norms.values()) > 0
    (row,) = (row for row in round_rows(trained[0], trained[-1]) if row.name == "beijing/server")
    span_s = trained[-1].time_s - trained[0].time_s
    shards = row.mean.whole_s * row.per_s  # each of three is in one phase at any time
    assert abs(shards - 3) * span_s < 0.5
    assert (
        min(
            row.mean.compute_s,
            row.mean.push_s or 0.0,
            row.mean.held_s or 0.0,
            row.mean.pull_s or 0.0,
        )
        > 0
    )


SCRIPT = """
import os, time
import numpy as np
import geomx.kv

store = geomx.kv.create("dist_sync")
store.init(0, np.zeros(4, np.float32))
while os.environ["GEOMX_NAME"] == "beijing/worker0" and not os.path.exists("seen"):
    time.sleep(0.05)
store.push(0, np.ones(4, np.float32))
store.pull(0)
print("trained")
"""


@pytest.mark.slow
def test_a_script_that_waits_for_another_is_seen(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    port = free_port(12)
    words = ["network=two_parties", f"metrics.port={port}", "hydra.run.dir=run"]
    command = [sys.executable, "-m", "geomx", "launch", *words, "--", sys.executable, "train.py"]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    seen: dict[str, float] = {}
    deadline_s = time.monotonic() + 60
    expected = {f"{party}/worker{i}": 1.0 for party in ("beijing", "chengdu") for i in (0, 1)}
    expected["beijing/worker0"] = 0.0
    try:
        while run.poll() is None and seen != expected and time.monotonic() < deadline_s:
            with contextlib.suppress(GeomxError):  # not yet
                now = Reading.of(time.monotonic(), fetch(f"127.0.0.1:{port}"))
                seen = {labels["node"]: value for labels, value in now.each("geomx_waiting")}
            time.sleep(0.1)
        (tmp_path / "seen").touch()
        assert run.wait(60) == 0, run.stderr.read() if run.stderr else ""
    finally:
        run.kill()
    assert seen == expected
    log = (tmp_path / "run/nodes/beijing-worker1.log").read_text()
    assert "trained" in log and "leaked" not in log  # the thread that serves keeps nothing
