"""`geomx import`: what other tools have measured becomes workloads and networks."""

from __future__ import annotations

import gzip
import json
import math
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import geomx
from geomx.calibrate import kineto, sites
from geomx.cli.main import main
from geomx.errors import ConfigError
from geomx.network.files import read_network
from geomx.network.links import PAYLOAD_SHARE
from tests.ports import free_port

# ---- traces of PyTorch's profiler ----


def torch_trace(path: Path) -> tuple[list[list[tuple[int, ...]]], dict[str, tuple[int, ...]]]:
    """Profile three steps; return the gradients' shapes in order by step, and the parameters'."""
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(50, 8)
            self.attention = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.norm = torch.nn.LayerNorm(8)
            self.out = torch.nn.Linear(8, 50, bias=False)
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, words: Any) -> Any:
            return self.out(self.norm(self.attention(self.embedding(words)))) * self.scale

    model = Model()
    order: list[tuple[int, ...]] = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda it: order.append(tuple(it.shape)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = []
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1)
    with torch.profiler.profile(
        record_shapes=True,
        schedule=schedule,
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(5):
            words = torch.randint(50, (4, 6))
            optimizer.zero_grad()
            order.clear()
            loss = torch.nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
            loss.backward()
            optimizer.step()
            steps.append([*order])
            profiler.step()
    return steps, {name: tuple(each.shape) for name, each in model.named_parameters()}


@pytest.mark.slow
def test_a_trace_of_pytorch_has_its_parameters_in_the_order_of_their_gradients(
    tmp_path: Path,
) -> None:
    steps, parameters = torch_trace(tmp_path / "trace.json")
    command = ["import", "kineto", str(tmp_path / "trace.json")]
    assert main([*command, "--output", str(tmp_path / "model.yaml")]) == 0
    layers = yaml.safe_load((tmp_path / "model.yaml").read_text())["layers"]
    arrived = [tuple(shape) for layer in reversed(layers) for shape in layer["tensors"].values()]
    assert arrived == [shape or (1,) for shape in steps[-1]]
    assert len(arrived) == len(parameters)
    assert all(layer["forward_ms"] >= 0 and layer["backward_ms"] > 0 for layer in layers)
    # A step of the trace is longer than both passes, and they are most of it.
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    lengths = [each["dur"] for each in events if each["name"].startswith("ProfilerStep")]
    passes_ms = sum(layer["forward_ms"] + layer["backward_ms"] for layer in layers)
    assert 0.2 * min(lengths) < 1e3 * passes_ms < max(lengths)
    results = geomx.run(
        ["workload=profile", f"workload.path={tmp_path / 'model.yaml'}", "iterations=2",
         f"hydra.run.dir={tmp_path / 'run'}"]
    )  # fmt: skip
    assert results.summary["workload"]["elements"] == sum(map(math.prod, parameters.values()))


def event(name: str, ts: float, dur: float, cat: str = "cpu_op", **args: Any) -> dict[str, Any]:
    named = {key.replace("_", " "): value for key, value in args.items()}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": 1, "args": named}


def step(at: float, kernels: bool = False) -> list[dict[str, Any]]:
    """Return a step of two linear layers: times in microseconds.

    On the processor, forward takes 300 and 100, backward 500 for the second and 700 for the first.
    """
    gradient, linear = kineto.GRADIENT, "aten::linear"
    events = [
        event("ProfilerStep#1", at, 2000, "user_annotation"),
        event(linear, at + 100, 200, Sequence_number=1, Fwd_thread_id=0),
        event("aten::addmm", at + 110, 100, Sequence_number=1, Fwd_thread_id=0),
        event(linear, at + 400, 50, Sequence_number=2, Fwd_thread_id=0),
        event(kineto.BACKWARD + "AddmmBackward0", at + 500, 480, Sequence_number=2),
        event(gradient, at + 990, 10, Input_Dims=[[4, 3]]),
        event(kineto.BACKWARD + "AddmmBackward0", at + 1000, 600, Sequence_number=1),
        event(gradient, at + 1610, 10, Input_Dims=[[2]]),
        event(gradient, at + 1690, 10, Input_Dims=[[3, 2]]),
    ]
    if kernels:  # which take twice as long as their launches, one after the other
        for number, launch in enumerate((100, 400, 500, 1000)):
            lasts = 2 * (400 if launch < 500 else 600)
            key = int(at) + number
            events.append(
                event("cudaLaunchKernel", at + launch + 5, 1, "cuda_runtime", correlation=key)
            )
            start = at + 200 + sum((800, 800, 1200, 1200)[:number])
            events.append(event("gemm", start, lasts, "kernel", correlation=key))
    return events


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def times(content: dict[str, Any]) -> list[tuple[str, float, float, list[list[int]]]]:
    return [
        (each["name"], each["forward_ms"], each["backward_ms"], list(each["tensors"].values()))
        for each in content["layers"]
    ]


def test_times_are_those_between_uses_and_between_gradients(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.json", step(0) + step(2000))
    content, said = kineto.workload_of(path)
    assert times(content) == [
        ("linear1", 0.3, 0.7, [[2], [3, 2]]),
        ("linear2", 0.1, 0.5, [[4, 3]]),
    ]
    assert said.startswith("3 tensors of 20 elements in 2 layers; 0.4 ms forward and 1.2 ms backw")
    assert "medians of 2 steps" in said and "0.4 ms a step outside" in said
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert kineto.workload_of(tmp_path / "trace.json.gz") == (content, said)
    # Without marks of steps, the trace is one.
    unmarked = [each for each in step(0) if each["cat"] == "cpu_op"]
    assert kineto.workload_of(write(path, unmarked))[0] == content


def test_on_a_gpu_kernels_count_and_not_their_launches(tmp_path: Path) -> None:
    content, _ = kineto.workload_of(write(tmp_path / "trace.json", step(0, kernels=True)))
    # Kernels end 1000, 1800, 3000 and 4200 us after the beginning.
    assert times(content) == [
        ("linear1", 0.9, 1.2, [[2], [3, 2]]),
        ("linear2", 0.8, 1.2, [[4, 3]]),
    ]


def test_unusable_traces_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.json"
    no_shapes = step(0)
    for each in no_shapes:
        each["args"].pop("Input Dims", None)
    twice = [*step(0), event("aten::linear", 1750, 20, Sequence_number=3, Fwd_thread_id=0)]
    for content, remedy in (
        ("[]", "is not a trace of torch.profiler"),
        ('{"traceEvents": [{"ph": "X"}]}', "is not a trace of torch.profiler"),
        (json.dumps({"traceEvents": []}), "has no complete step"),
        (json.dumps({"traceEvents": no_shapes}), "record_shapes=True"),
        (json.dumps({"traceEvents": twice}), "several passes in a step"),
    ):
        path.write_text(content)
        with pytest.raises(ConfigError, match=remedy):
            kineto.workload_of(path)
    path.write_bytes(gzip.compress(b'{"traceEvents": []}')[:-9])
    with pytest.raises(ConfigError, match=r"trace.json: is not JSON: "):
        kineto.workload_of(path)
    assert main(["import", "kineto", str(tmp_path / "none.json")]) == 2
    assert "none.json: cannot be read: No such file" in capsys.readouterr().err


# ---- workload=profile ----


@pytest.mark.slow
def test_errors_in_a_file_of_layers_are_named(tmp_path: Path) -> None:
    layer = {"name": "a", "forward_ms": 1, "backward_ms": 2, "tensors": {"w": [2, 3]}}
    for content, sentence in (
        ({"layers": [{**layer, "forward_ms": -1}]}, r"layers\[0\] of .*forward_ms=-1"),
        ({"layers": [layer, {"name": "b"}]}, r"layers\[1\] of .*forward_ms=.*must be given"),
        ({"layers": [layer, layer]}, "two tensors a.w"),
        ({"layers": [{**layer, "tensors": {}}]}, "nothing would be sent"),
        ({"layers": [{**layer, "tensors": {"w": [0]}}]}, r"tensors.*0"),
        ({"layers": [3]}, r"layers\[0\].*must have name"),
        ({}, "must have a list `layers`"),
        ("a: [", "is not YAML"),
        ("layers: &a [*a]", "contains itself by an alias at line 1"),
    ):
        path = tmp_path / "layers.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        with pytest.raises(ConfigError, match=sentence):
            geomx.run(["workload=profile", f"workload.path={path}"])
    for path, sentence in (("", "must be a file of layers"), ("none.yaml", "cannot be read")):
        with pytest.raises(ConfigError, match=sentence):
            geomx.run(["workload=profile", f"workload.path={path}"])


# ---- networks ----


def iperf3_result(here: str, there: str, mbps: float, rtt_us: int, **test: Any) -> dict[str, Any]:
    """Return the parts of a result of iperf3 3.12 that matter."""
    return {
        "start": {
            "connected": [{"local_host": here, "remote_host": there}],
            "connecting_to": {"host": there, "port": 5201},
            "test_start": {"protocol": "TCP", "num_streams": 1, "reverse": 0, **test},
        },
        "end": {
            "streams": [{"sender": {"min_rtt": rtt_us, "mean_rtt": 3 * rtt_us}}],
            "sum_received": {"bits_per_second": mbps * 1e6},
        },
    }


def test_results_of_iperf3_become_a_network(tmp_path: Path) -> None:
    results = [
        iperf3_result("10.0.0.1", "10.1.0.1", 90, 20_000),
        iperf3_result("10.0.0.1", "10.1.0.1", 95, 24_000),
        iperf3_result("10.0.0.1", "10.1.0.1", 40, 0, reverse=1),  # from the second site
        iperf3_result("10.2.0.1", "10.0.0.1", 30, 60_000),
        iperf3_result("10.1.0.1", "10.2.0.1", 20, 80_000),
    ]
    files = []
    for number, result in enumerate(results):
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps(result))
    out = tmp_path / "network.yaml"
    sites = ["--site", "hub=10.0.0.1", "--site", "east=10.1.0.1", "--site", "west=10.2.0.1"]
    words = [*map(str, files), *sites, "--output", str(out)]
    assert main(["import", "iperf3", *words, "--workers", "2"]) == 0
    content = yaml.safe_load(out.read_text())

    def payload(mbps: float) -> Any:
        return pytest.approx(mbps / PAYLOAD_SHARE, abs=0.06)

    assert content["central"]["uplink_mbps"] == payload(95)
    assert content["central"]["downlink_mbps"] == payload(40)
    assert content["mbps"]["east"] == {"hub": payload(40), "west": payload(20)}
    assert content["mbps"]["hub"] == {"east": payload(95), "west": payload(30)}
    assert content["delay_ms"]["hub"] == {"east": 10, "west": 30}
    assert content["delay_ms"]["east"]["hub"] == 10
    cluster = read_network(out)
    assert [party.name for party in cluster.parties] == ["east", "west"]
    assert len(cluster.workers) == 4


def test_slow_paths_keep_their_bandwidth(tmp_path: Path) -> None:
    path, out = tmp_path / "a.json", tmp_path / "network.yaml"
    sites = ["--site", "x=a", "--site", "y=b", "--output", str(out)]
    for mbps in (0.03, 0.25, 3.33):
        path.write_text(json.dumps(iperf3_result("a", "b", mbps, 600_000)))
        assert main(["import", "iperf3", str(path), *sites]) == 0
        edges = read_network(out).graph.edges
        found = edges["x", "x/wan"]["bandwidth_mbps"]
        assert found == pytest.approx(mbps / PAYLOAD_SHARE, rel=0.005)


def test_an_earlier_file_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "a.json", tmp_path / "network.yaml"
    path.write_text(json.dumps(iperf3_result("a", "b", 5, 600)))
    out.write_text("mine")
    words = [str(path), "--site", "x=a", "--site", "y=b", "--output", str(out)]
    assert main(["import", "iperf3", *words]) == 0
    assert (tmp_path / "network-1.yaml").read_text() == "mine"
    assert "network.yaml was there already" in capsys.readouterr().out.replace("\n", "")


@pytest.mark.slow
def test_results_that_do_not_make_a_network_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    good = iperf3_result("a", "b", 1, 1)
    sites = ["--site", "x=a", "--site", "y=b"]
    for content, more, sentence in (
        (good, ["--site", "z=c"], "lacks a result between x and z, in either direction"),
        (iperf3_result("a", "b", 1, 0), [], "lacks a round-trip time between x and y"),
        (iperf3_result("a", "d", 1, 1), [], "is between a and d: name both, --site NAME=a"),
        (iperf3_result("a", "b", 1, 1, protocol="UDP"), [], "is of UDP"),
        ({"error": "unable to connect"}, [], "iperf3 says 'unable to connect'"),
        (iperf3_result("a", "b", 0, 1), [], "has no bandwidth: nothing was received"),
        ({"start": {}}, [], "is no result of iperf3 --client HOST --json"),
        (good, ["--workers", "0"], "--workers=0: must be at least 1"),
        (good, ["--site", "=c"], "must be NAME=HOST"),
    ):
        path.write_text(json.dumps(content))
        assert main(["import", "iperf3", str(path), *sites, *more]) == 2
        assert sentence in capsys.readouterr().err
    assert main(["import", "iperf3", str(path), "--site", "x=a"]) == 2
    assert "name two sites or more" in capsys.readouterr().err


def measurement(port: str) -> str | None:
    """Return what iperf3 says of two addresses of this machine; None if the port is taken."""
    client = ["iperf3", "-c", "127.0.0.2", "-B", "127.0.0.1", "-p", port, "--json"]
    with subprocess.Popen(["iperf3", "-s", "-p", port], stdout=subprocess.DEVNULL) as server:
        try:
            for _ in range(100):  # until the server listens
                done = subprocess.run(
                    [*client, "-b", "80M", "-t", "1"], check=False, capture_output=True, text=True
                )
                if done.returncode == 0 and "error" not in json.loads(done.stdout):
                    return done.stdout
                if server.poll() is not None:
                    return None
                time.sleep(0.1)
        finally:
            server.kill()
    return None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")
def test_a_measurement_by_iperf3_itself_is_read(tmp_path: Path) -> None:
    measured = next(filter(None, (measurement(str(free_port())) for _ in range(5))), None)
    assert measured is not None
    (tmp_path / "a.json").write_text(measured)
    sites = ["--site", "x=127.0.0.1", "--site", "y=127.0.0.2"]
    out = tmp_path / "network.yaml"
    assert main(["import", "iperf3", str(tmp_path / "a.json"), *sites, "--output", str(out)]) == 0
    content = yaml.safe_load(out.read_text())
    assert 40 < content["mbps"]["x"]["y"] < 120
    assert 0 < content["delay_ms"]["x"]["y"] < 50


def test_latencies_of_aws_become_a_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(source: str, target: str, *trips_ms: float) -> dict[str, Any]:
        points = [{"Value": trip, "Status": "OK"} for trip in trips_ms]
        lost = {"Value": 0.0, "Status": "Insufficient data"}
        return {"Source": source, "Destination": target, "MetricPoints": [*points, lost]}

    path, out = tmp_path / "aws.json", tmp_path / "network.yaml"
    answers = [
        answer("us-east-1", "eu-west-2", 75, 77, 90),
        answer("us-east-1", "ap-south-1", 190),
        answer("ap-south-1", "eu-west-2", 120),
    ]
    path.write_text(json.dumps({"DataResponses": answers}))
    words = ["import", "aws-latency", str(path), "--mbps", "300", "--output", str(out)]
    assert main([*words, "--hub", "us-east-1"]) == 0
    content = yaml.safe_load(out.read_text())
    assert content["delay_ms"] == {
        "ap-south-1": {"eu-west-2": 60, "us-east-1": 95}, "eu-west-2": {"us-east-1": 38.5},
    }  # fmt: skip
    cluster = read_network(out)
    assert [party.name for party in cluster.parties] == ["ap-south-1", "eu-west-2"]
    for mbps in ("-5", "nan", "1e12"):
        assert main([*words, "--mbps", mbps, "--hub", "us-east-1"]) == 2
        assert f"--mbps={float(mbps)}: must be at least" in capsys.readouterr().err
    assert main([*words, "--hub", "us-west-1"]) == 2
    assert "must be a region of" in capsys.readouterr().err
    path.write_text(json.dumps({"DataResponses": answers[:2]}))
    assert main([*words, "--hub", "us-east-1"]) == 2
    assert "lacks a latency between ap-south-1 and eu-west-2" in capsys.readouterr().err
    path.write_text("[1]")
    assert main([*words, "--hub", "us-east-1"]) == 2
    assert "is no output of aws ec2" in capsys.readouterr().err


def test_a_way_on_which_datagrams_are_blocked_counts_as_one_without_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {
        "measure": {"rtt_s": 0.04, "rtt_spread": 0.0, "mbps": 20.0, "loss": 1.0},
        "share": {"mbps": 30.0},
    }
    monkeypatch.setattr(sites, "greet", lambda probe: None)
    monkeypatch.setattr(sites, "ask", lambda probe, order, target: answers[order])
    access = {"uplink_mbps": 10, "downlink_mbps": 10}
    given = {"name": "hub", **access}, {"east": {"workers": 1, **access}}
    cluster = read_network({"central": given[0], "parties": given[1], "delay_ms": 20})
    with pytest.warns(UserWarning, match="no datagram from a:1 came to b:2; UDP is blocked"):
        found = sites.survey(["hub=a:1", "east=b:2"], cluster)
    network = read_network(sites.network_of(found, cluster))
    assert {data["loss"] for _, _, data in network.graph.edges(data=True)} == {0.0}
