"""Costs files, calibration, probes between sites, and shared cores."""

from __future__ import annotations

import re
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from geomx import calibrate
from geomx.calibrate import codecs, device, endpoints, layers, probe, sites
from geomx.calibrate.fit import Sample, fit
from geomx.cli import calibrate as command
from geomx.cluster import Cluster
from geomx.config.compose import compose
from geomx.config.compose import main as compose_main
from geomx.errors import ConfigError, GeomxError
from geomx.experiment.costs import CostsWarning, this_machine
from geomx.experiment.experiment import Experiment
from geomx.network.files import read_network
from geomx.options.costs import (
    FIGURES,
    WORK,
    CodecCosts,
    Costs,
    DeviceCosts,
    LayerTimes,
    Measured,
)
from geomx.options.named_costs import named_costs
from geomx.options.parsing import build_options
from geomx.options.schema import RuntimeOptions, TcpOptions
from geomx.results.tables import costs_note
from geomx.version import __version__
from geomx.workload import Layer
from tests.laws import Build

DEVICE_FIGURES = [
    f"{work}_{per}_s" for work in ("copy", "encode", "update") for per in ("message", "byte")
]
LAYERS = ["conv1", "conv2", "dense1", "dense2", "dense3"]


def content(**changes: Any) -> dict[str, Any]:
    """Return the content of a costs file measured on this machine."""
    machine, cores = this_machine()
    measured = {"machine": machine, "cores": cores, "date": "2026-11-21T08:00:00Z"}
    times = {"forward_s": [0.001] * 5, "backward_s": [0.002] * 5}
    compute = {"batch_size": 32, "processes": 4, "layers": LAYERS, **times}
    return {
        "measured": {**measured, "geomx": __version__},
        "send_byte_s": 3e-9,
        "codecs": {"fp16": {"encode_byte_s": 7e-10}},
        "compute": {"digits_cnn": compute},
    } | changes


@pytest.fixture
def composed(tmp_path: Path) -> Callable[..., Experiment]:
    """Build the experiment of overrides with a costs file."""

    def build(costs: dict[str, Any], *words: str) -> Experiment:
        path = tmp_path / "costs.yaml"
        calibrate.write(costs, path)
        return compose([f"costs={path}", "numerics=false", *words], directory=tmp_path / "run")[0]

    return build


# ---- the file ----


def test_a_file_gives_costs_and_times(composed: Callable[..., Experiment]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CostsWarning)
        made = composed(content(), "accel=[fp16]", "costs.send_message_s=1e-3", "mode=live")
    assert made.costs.send_byte_s == 3e-9
    assert made.costs.send_message_s == 1e-3
    assert made.costs.of("encode", ("fp16",)) == (0.0, 7e-10)
    assert made.costs.of("encode", ("p3",)) == made.costs.of("encode")
    assert [layer.forward_s for layer in made.workload.layers] == [0.001] * 5
    assert made.workload.step_s == pytest.approx(0.015)
    about = made.header()["costs"]
    assert about["source"].endswith("costs.yaml")
    assert about["measured"]["machine"] == this_machine()[0]


def test_given_layer_times_take_precedence(composed: Callable[..., Experiment]) -> None:
    made = composed(content(), "workload.forward_ms=100")
    assert made.workload.step_s == pytest.approx(0.12)


def test_layer_times_of_another_batch_size_are_ignored(composed: Callable[..., Experiment]) -> None:
    with pytest.warns(CostsWarning, match="32 samples a step, not 64"):
        made = composed(content(), "workload.batch_size=64")
    assert made.workload.step_s == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("measured", "mode", "doubt"),
    [
        ({"geomx": "0.0.1"}, "sim", "geomx 0.0.1"),
        ({"machine": "abacus"}, "live", "abacus"),
        ({"machine": "abacus"}, "sim", None),
    ],
)
def test_costs_of_another_machine_or_version_cause_a_warning(
    composed: Callable[..., Experiment], measured: dict[str, str], mode: str, doubt: str | None
) -> None:
    changed = content(measured=content()["measured"] | measured)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        composed(changed, f"mode={mode}")
    told = [str(each.message) for each in caught if each.category is CostsWarning]
    assert len(told) == (doubt is not None)
    assert all(str(doubt) in each and "geomx calibrate" in each for each in told)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"send_byte_s": -1.0}, "costs.send_byte_s=-1.0: must be between 0 and 1000000.0"),
        ({"sent_byte_s": 1.0}, "costs.sent_byte_s=1.0: unknown option; did you mean send_byte_s?"),
        ({"cores": "two"}, "costs.cores=two: must be a whole number or null"),
        ({"codecs": {"x": {"speed": 1}}}, "costs.codecs.x.speed=1: unknown option"),
        (
            {"compute": {"x": content()["compute"]["digits_cnn"] | {"layers": ["one"]}}},
            "costs.compute.x.forward_s=",
        ),
    ],
)
def test_errors_name_key_and_value(
    composed: Callable[..., Experiment], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        composed(content(**changes))
    assert str(caught.value).startswith(sentence)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"costs=.*nowhere.yaml: must be a file"):
        compose([f"costs={tmp_path / 'nowhere.yaml'}"], directory=tmp_path)


NAMES = "a100, cpu, gpu, h100, h200, none"


def named(tmp_path: Path, *words: str) -> Experiment:
    """Build the experiment of overrides, without numerics."""
    return compose(["numerics=false", *words], directory=tmp_path / "run")[0]


@pytest.mark.parametrize(
    ("name", "memory_bytes_s"), [("a100", 2.039e12), ("h100", 3.35e12), ("h200", 4.8e12)]
)
def test_costs_of_a_gpu_follow_from_published_bandwidths(
    name: str, memory_bytes_s: float, tmp_path: Path
) -> None:
    made = named(tmp_path, f"costs={name}")
    passes = {"send": 1, "receive": 1, "encode": 5, "decode": 2, "aggregate": 3, "update": 7}
    for work, times in passes.items():
        per_message_s, per_byte_s = made.costs.of(work)
        assert per_byte_s == pytest.approx(times / memory_bytes_s)
        assert 1e-6 <= per_message_s <= 1e-5
    assert (made.costs.device.copy_message_s, made.costs.device.copy_byte_s) == (0, 0)
    about = made.header()["costs"]
    assert about["source"] == name and about["measured"] is None
    for part in ("NVIDIA", f"{memory_bytes_s / 1e12:g} TB/s", "data sheet", "not measured"):
        assert part in costs_note({"mode": "sim", "costs": about})


@pytest.mark.slow
def test_names_select_no_costs_or_the_defaults(tmp_path: Path) -> None:
    none, cpu = (named(tmp_path, f"costs={name}") for name in ("none", "cpu"))
    assert {none.costs.of(work) for work in WORK} == {(0.0, 0.0)}
    assert all(getattr(none.costs.device, figure) == 0 for figure in DEVICE_FIGURES)
    assert replace(cpu.costs, source="shipped") == Costs()
    changed = named(tmp_path, "costs=none", "costs.send_byte_s=1e-9")
    assert changed.costs.of("send") == (0.0, 1e-9) and changed.costs.of("receive") == (0.0, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CostsWarning)
        named(tmp_path, "costs=none", "mode=live")
    told = [costs_note({"mode": "sim", "costs": made.header()["costs"]}) for made in (none, cpu)]
    assert "cost nothing (costs=none)" in told[0] and "geomx's defaults" in told[1]


def test_an_unknown_name_of_costs_lists_the_known_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"costs=h1000: must be a file .* or a name: {NAMES}"):
        named(tmp_path, "costs=h1000")


@pytest.mark.slow
def test_names_of_costs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compose_main(["--help"], lambda experiment, directory: None)
    listed = re.search(r"^costs: (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert listed and set(NAMES.split(", ")) <= set(
        listed[1].split(", ")
    )  # also files of other tests


@pytest.mark.slow
def test_a_simulated_workload_on_a_gpu_has_the_costs_of_a_gpu(tmp_path: Path) -> None:
    """The prediction of a live run uses this machine's costs."""
    words = "workload=torch_transformer", "workload.device=cuda"
    made = named(tmp_path, *words)
    assert made.costs.of("send") == named(tmp_path, "costs=gpu").costs.of("send")
    told = costs_note({"mode": "sim", "costs": made.header()["costs"]})
    assert "costs=gpu" in told and "workload.device=cuda" in told and "costs=cpu" in told
    assert named(tmp_path, *words, "costs=cpu").costs.of("send") == Costs().of("send")
    assert named(tmp_path, *words, "costs.cores=2").costs.of("send") == Costs().of("send")
    assert named(tmp_path).costs == Costs()


@pytest.mark.slow
def test_dominating_endpoint_costs_cause_a_note(
    network: Build, sized: Build, simulate: Build
) -> None:
    """A billion parameters in steps of 0.1 s over 184 Gbit/s, in half precision: with the default
    costs, which are those of a small processor, workers compute for 2 % of the time."""
    workload = sized(*[20_000_000] * 50, forward_s=0.04 / 50, backward_s=0.06 / 50)
    wan = network(1, 1, mbps=184_000, delay_ms=0.5, lan={"mbps": 1e7, "delay_ms": 0.001})
    utilised, notes = {}, {}
    for name, values in named_costs().items():
        costs = build_options(Costs, values, "costs")
        options = {"iterations": 6, "costs": costs, "tcp": TcpOptions(window_bytes=10**9)}
        runtime = RuntimeOptions(frame_bytes=1 << 24)
        summary = simulate(
            wan, workload, None, ["fp16"], runtime=runtime, **options
        ).results.summary
        utilised[name] = 0.1 / summary["seconds_per_iteration"]["mean"]
        notes[name] = costs_note(summary)
    assert utilised["cpu"] < 0.1
    for part in ("are most of an iteration", "of the time", "geomx's defaults", "Intel",
                 "costs=none", "costs=gpu", "geomx calibrate"):  # fmt: skip
        assert part in notes["cpu"]
    for name in ("gpu", "a100", "h100", "h200"):
        assert "are most of an iteration" not in notes[name]
        assert 0.9 * utilised["none"] < utilised[name] <= utilised["none"]


def test_a_summary_contains_the_source_of_costs() -> None:
    def note(costs: Costs, mode: str = "sim") -> str:
        return costs_note({"mode": mode, "costs": costs.about()})

    assert "geomx's defaults" in note(Costs())
    assert "given by hand" in note(Costs(send_byte_s=1.0))
    measured = Measured("abacus", 7, "2026-11-21T08:00:00Z")
    told = note(Costs(measured=measured, source="mine.yaml", cores=3))
    for part in ("mine.yaml", "abacus with 7 cores", "2026-11-21", "share 3 cores"):
        assert part in told
    assert note(Costs(), mode="live") == ""


# ---- measuring ----


def test_a_fit_recovers_known_costs(seed: int) -> None:
    generator = np.random.default_rng(seed)
    true = {"message": 4e-6, "byte": 2e-10}
    samples = []
    for size in (64, 4096, 65536, 1 << 20):
        for messages in (1, 5):
            took = messages * true["message"] + size * true["byte"]
            noise = generator.uniform(0.98, 1.02, 9)
            noise[generator.integers(9)] = 50.0  # an outlier, as from other traffic
            samples.append(Sample({"message": messages, "byte": size}, (took * noise).tolist()))
    costs, spread = fit(samples)
    for name, cost in true.items():
        assert costs[name] == pytest.approx(cost, rel=0.03), seed
        assert spread[name] > 0


def test_endpoints_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "ELEMENTS", (16, 65536, 524288))
    monkeypatch.setattr(endpoints, "MOST_TENSORS", 2)
    counted: list[int] = []
    costs, _ = fit(endpoints.measure(5, lambda: counted.append(1)))
    assert len(counted) == 3
    assert 1e-11 < costs[endpoints.BYTE] < 1e-7
    update, _ = fit(endpoints.measure_update({"name": "sgd", "learning_rate": 0.1}, 5))
    assert 1e-12 < update["update_byte_s"] < 1e-7


@pytest.mark.needs("demo", "fp16", "lowbit", "p3")
def test_codecs_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(codecs, "ELEMENTS", (64, 65536))
    experiment, _ = compose(["workload=synthetic"], directory=tmp_path)
    costs, spread = codecs.measure(experiment, 3, lambda: None)
    assert "p3" not in costs
    assert {"demo", "lowbit", "int8", "int4"} <= costs.keys()  # demo: changes of parameters only
    assert 1e-12 < costs["fp16"]["encode_byte_s"] < 1e-7
    assert "codecs.fp16.encode_byte_s" in spread
    assert Costs(codecs={"fp16": CodecCosts(**costs["fp16"])}).of("encode", ("fp16",))[1] > 0
    low, high = (choose(one["encode_byte_s"] for one in costs.values()) for choose in (min, max))
    assert low <= codecs.general(costs)["encode_byte_s"] <= high


def test_layers_add_up_to_a_step() -> None:
    workload = [Layer("a", 1.0, 1.0), Layer("b", 3.0, 1.0)]
    steps = [(0.4, [0.1, 0.3]), (0.4, [0.2, 0.3]), (9.0, [5.0, 9.0])]
    times = layers.summary(steps, workload, batch_size=8, processes=2)
    assert times.forward_s == pytest.approx([0.1, 0.3])
    assert sum(times.backward_s) == pytest.approx(0.5)
    assert times.backward_s[0] / times.backward_s[1] == pytest.approx(2 / 3)
    assert isinstance(times, LayerTimes)


# ---- between sites ----


@pytest.fixture
def probes() -> Iterator[Callable[..., str]]:
    """Start probes on this machine, until the end of the test."""
    running: list[probe.Probe] = []

    def start(token: str = "") -> str:
        running.append(probe.Probe("127.0.0.1", 0, token))
        threading.Thread(target=running[-1].serve_forever, daemon=True).start()
        return f"127.0.0.1:{running[-1].server_address[1]}"

    yield start
    for each in running:
        each.shutdown()
        each.server_close()


@pytest.fixture
def surveyed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    """Return the network of a survey with simulated, instantaneous measurements."""
    monkeypatch.setattr(probe, "ENOUGH_S", 0.02)
    experiment, _ = compose(["workload=synthetic"], directory=tmp_path)
    return experiment.cluster


@contextmanager
def slow(target: str, mbps: float, delay_s: float) -> Iterator[str]:
    """Start a proxy to `target` with this bandwidth and delay, in both directions."""
    listener = socket.create_server(("127.0.0.1", 0))

    def carry(source: socket.socket, sink: socket.socket) -> None:
        line: list[tuple[float, bytes]] = []
        ready = threading.Condition()

        def deliver() -> None:
            while True:
                with ready:
                    ready.wait_for(lambda: bool(line))
                    due, data = line.pop(0)
                time.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)

        threading.Thread(target=deliver, daemon=True).start()
        free = time.monotonic()
        while True:
            data = source.recv(16384)
            free = max(free, time.monotonic()) + len(data) * 8e-6 / mbps
            time.sleep(max(0.0, free - time.monotonic()))
            with ready:
                line.append((free + delay_s, data))
                ready.notify()
            if not data:
                return

    def accept() -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", int(target.rpartition(":")[2])))
            for ends in ((near, far), (far, near)):
                threading.Thread(target=carry, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.close()


@pytest.mark.slow
def test_a_probe_measures_bandwidth_and_delay(
    probes: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "ENOUGH_S", 0.3)
    with slow(probes(), mbps=40.0, delay_s=0.02) as address:
        way = probe.measure(address)
    assert 0.04 <= way.rtt_s < 0.08
    assert 20.0 < way.mbps < 42.0
    assert way.loss == 0.0


@pytest.mark.slow
def test_a_survey_writes_a_network_file(
    probes: Callable[[], str],
    surveyed: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(probe, "SHARE_S", 0.02)
    names = ("hub", "beijing", "chengdu")
    found = sites.survey([f"{name}={probes()}" for name in names], surveyed)
    path = tmp_path / "network.yaml"
    calibrate.write(sites.network_of(found, surveyed), path)
    cluster = read_network(path)
    assert [node.name for node in cluster.nodes] == [n.name for n in surveyed.nodes]
    there = cluster.path(cluster.parties[0].server, cluster.global_servers[0])
    way = found.ways["beijing", "hub"]
    assert there.delay_s >= way.rtt_s / 2 * 0.9
    assert there.bandwidth_bps == pytest.approx(min(way.mbps * 1e6 * 1500 / 1448, 1e10), rel=0.01)


@pytest.mark.slow
def test_access_links_are_measured_with_all_connections_at_once(
    probes: Callable[[], str], surveyed: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection to the hub is slow, but two of them get twice its bandwidth."""
    monkeypatch.setattr(probe, "SHARE_S", 0.8)
    with slow(probes(), mbps=8.0, delay_s=0.0) as hub:
        words = [f"hub={hub}", f"beijing={probes()}", f"chengdu={probes()}"]
        found = sites.survey(words, surveyed)
    alone = max(found.ways[party, "hub"].mbps for party in ("beijing", "chengdu"))
    assert 1.3 * alone < found.down["hub"] < 18.0
    central = sites.network_of(found, surveyed)["central"]
    assert central["downlink_mbps"] == pytest.approx(found.down["hub"] * 1500 / 1448, rel=0.01)


def test_a_caller_without_token_receives_nothing(probes: Callable[[], str]) -> None:
    with pytest.raises(GeomxError, match="GEOMX_TOKEN differs from the probe's"):
        probe.measure(probes(), token="guess")


def test_an_eavesdropper_cannot_authenticate(
    probes: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is not sent, and the proof of knowing it is valid for one connection only."""
    said: list[dict[str, Any]] = []
    say = probe._say
    monkeypatch.setattr(probe, "_say", lambda *words: (said.append(dict(words[1])), say(*words)))
    address = probes("secret")
    with probe._connected(address, "secret", "echo") as (_, stream):
        probe._echo(stream)
    assert "secret" not in str(said)
    (heard,) = [each for each in said if "proof" in each]
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as again, again.makefile("rwb") as stream:
        probe._hear(stream)
        say(stream, heard)
        with pytest.raises(GeomxError, match="GEOMX_TOKEN differs from the probe's"):
            probe._hear(stream)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["a=1"], "--probe=1: "),
        (["a=h:1", "a=h:2"], "--probe=a=h:2: names a site that was given before"),
        (["h:1", "b=h:2"], "--probe=h:1: must be SITE=HOST:PORT"),
        (["a=h:1"], "--probe=a=h:1: needs two sites"),
        (
            ["a=h:1", "b=h:2"],
            "--probe=a b: must be the sites of the network: hub, beijing, chengdu",
        ),
    ],
)
def test_invalid_sites_are_refused(words: list[str], complaint: str, surveyed: Cluster) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        sites.survey(words, surveyed)


def test_a_missing_probe_is_an_error_before_any_measurement(
    probes: Callable[[], str], surveyed: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("something was measured")

    monkeypatch.setattr(sites, "ask", refuse)
    monkeypatch.setattr(calibrate, "run", refuse)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        gone = f"127.0.0.1:{nobody.getsockname()[1]}"
    there = [f"hub={probes()}", f"beijing={probes()}", f"chengdu={gone}"]
    words = ["--probe", *there, "--output", str(tmp_path / "out")]
    with pytest.raises(GeomxError, match=f"the probe at {gone}: .*refused"):
        command.main(words)
    assert not (tmp_path / "out").exists()


# ---- cores ----


def test_shared_cores_serialise_work(network: Build, sized: Build, simulate: Build) -> None:
    """One core serialises all work; as many cores as nodes equal separate cores."""
    costs = Costs(**dict.fromkeys(FIGURES, 0.0) | {"receive_message_s": 2e-4, "cores": 0})
    wan, workload = network(2, 3), sized(400_000, 70_000, 9)
    own, *shared = (
        simulate(wan, workload, costs=replace(costs, cores=cores)) for cores in (0, 1, 2, 9)
    )
    seconds = [run.results.summary["seconds"] for run in (own, *shared)]
    assert seconds[1] > seconds[2] >= seconds[3] == seconds[0]
    work_s = shared[0].simulation.fabric.messages * costs.receive_message_s
    assert seconds[1] >= work_s
    assert all(run.results.summary["bytes"] == own.results.summary["bytes"] for run in shared)


# ---- GPUs ----


def test_workers_on_a_gpu_have_its_costs(network: Build, sized: Build, simulate: Build) -> None:
    """One worker and one step: encoding takes the GPU's time, and encoded or decoded values cross
    the bus in both directions; copies may overlap with the network, not with each other."""
    elements = 50_000
    free = Costs(**dict.fromkeys(FIGURES, 0.0))
    workload = replace(sized(elements), iterations=1)

    def seconds(*accel: str, **figures: float) -> float:
        device = DeviceCosts(**dict.fromkeys(DEVICE_FIGURES, 0.0) | figures)
        costs = replace(free, device=device, on_device=bool(figures))
        summary = simulate(network(1, 1), workload, accel=accel, costs=costs).results.summary
        assert ("GPU: NVIDIA H200 (measured on 2026" in costs_note(summary)) == bool(figures)
        taken: float = summary["seconds"]
        return taken

    plain, cast = seconds(), seconds("fp16")
    assert seconds(encode_byte_s=1e-5) == plain
    both_ways = 2 * 4 * elements * 1e-5
    assert seconds("fp16", encode_byte_s=1e-5) == pytest.approx(cast + both_ways)
    slow_plain, slow_cast = (seconds(*accel, copy_byte_s=1e-5) for accel in ((), ("fp16",)))
    assert slow_plain > (4 + 4) * elements * 1e-5
    assert slow_plain > slow_cast > (2 + 2) * elements * 1e-5


def test_servers_on_a_gpu_have_its_costs(network: Build, sized: Build, simulate: Build) -> None:
    """One step: sums are copied to the GPU; dense weights and encoded values are copied back."""
    elements = 50_000
    free = Costs(**dict.fromkeys(FIGURES, 0.0) | {"update_byte_s": 1e-3})
    runtime = RuntimeOptions(server_device="cuda")
    workload = replace(sized(elements), iterations=1)

    def seconds(*accel: str, **figures: float) -> float:
        device = DeviceCosts(**dict.fromkeys(DEVICE_FIGURES, 0.0) | figures)
        costs = replace(free, device=device)
        run = simulate(network(1, 1), workload, accel=accel, costs=costs, runtime=runtime)
        assert "GPU: NVIDIA H200 (measured on 2026" in costs_note(run.results.summary)
        taken: float = run.results.summary["seconds"]
        return taken

    dense = 4 * elements
    plain, cast = seconds(), seconds("fp16")
    assert plain < dense * 1e-3  # the processor's update is not charged
    assert seconds(update_byte_s=1e-5) == pytest.approx(plain + dense * 1e-5)
    assert seconds(copy_byte_s=1e-5) == pytest.approx(plain + 2 * dense * 1e-5)
    # Encoded three times: the party's sum, the weights, and the weights for the worker.
    assert seconds("fp16", encode_byte_s=1e-5) == pytest.approx(cast + 3 * dense * 1e-5)
    copies = 2 * dense + 3 * (dense + dense / 2)
    assert seconds("fp16", copy_byte_s=1e-5) == pytest.approx(cast + copies * 1e-5)


@pytest.mark.slow
def test_the_workload_determines_the_device_of_tensors(composed: Callable[..., Experiment]) -> None:
    words = "workload=torch_transformer", "workload.device=cuda:0"
    assert composed(content(), *words).on_device
    assert not composed(content(), *words, "costs.on_device=false").on_device
    assert not composed(content()).on_device
    made = composed(content(device={"copy_byte_s": 3e-11}), "costs.on_device=true")
    assert made.on_device
    assert made.costs.device == DeviceCosts(copy_byte_s=3e-11)
    with pytest.raises(ConfigError, match=r"costs\.device\.copy_byte_s=-1\.0: must be between"):
        composed(content(device={"copy_byte_s": -1.0}))


def test_a_gpu_is_measured_through_its_queue() -> None:
    """With the processor's queue; runtime_cpp/tests uses the emulated device's."""
    figures, spread = device.measure("cpu", "the processor", 3)
    made = build_options(DeviceCosts, figures, "costs.device")
    assert (made.name, made.basis) == ("the processor", "measured")
    assert 0 < made.copy_byte_s < 1e-8
    assert 0 < made.encode_byte_s < 1e-8
    assert set(spread) == set(DEVICE_FIGURES)
    with pytest.raises(ValueError, match="no device cuda:77"):
        device.measure("cuda:77", "", 1)


def test_costs_files_are_readable_yaml(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "costs.yaml"
    calibrate.write(content(), path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Written by")
    assert yaml.safe_load(text) == content()
