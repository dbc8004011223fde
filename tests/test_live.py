"""Live runs: real processes on this machine, their files, and how runs end."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from geomx import __version__
from geomx.config.compose import compose
from geomx.errors import ConfigError, GeomxError, NodeLost
from geomx.live.descriptors import readable
from geomx.live.exit_status import LOST
from geomx.live.files import Reader
from geomx.live.journal import Notes
from geomx.live.launcher import run_experiment
from geomx.live.node import Node
from geomx.live.relay import Relay
from geomx.live.spec import Spec
from geomx.results.results import Results
from geomx.results.tables import pace_note
from geomx.runner import execute
from tests.laws import Build

SMALL_NETWORK = """
name: small
central: {name: hub, global_servers: 1, uplink_mbps: 2000, downlink_mbps: 2000}
parties:
  east: {workers: 2, uplink_mbps: 2000, downlink_mbps: 2000}
  west: {workers: 1, uplink_mbps: 2000, downlink_mbps: 2000}
delay_ms: 5
lan: {mbps: 10000, delay_ms: 0.05}
"""
END_S = 10.0  # time limit for all processes after one was killed


# ---- communication of processes ----


def test_an_experiment_is_read_back_from_its_text() -> None:
    options = ["sync.k1=3", "accel.dgt.k=0.5", "workload.batch_size=16"]
    experiment, _ = compose(["+sync=hfa", "+accel=[dgt,p3]", *options])
    spec = Spec.of(experiment)
    assert spec.workload is not None
    assert spec.workload[1]["batch_size"] == 16
    again = Spec.from_json(spec.to_json())
    assert again.to_json() == spec.to_json()
    assert again.cluster.nodes == experiment.cluster.nodes
    assert again.sync[1]["k1"] == 3
    assert [name for name, _ in again.accel] == ["dgt", "p3"]
    other = spec.to_json().replace(f'"geomx": "{__version__}"', '"geomx": "9.8"')
    with pytest.raises(GeomxError, match=f"runs geomx 9.8, this is {re.escape(__version__)}: ins"):
        Spec.from_json(other)
    own = f'{{"geomx": "{__version__}"}}'
    for text in ("", "[]", "{}", own, spec.to_json().replace('"seed"', '"sead"')):
        with pytest.raises(GeomxError):
            Spec.from_json(text)


def test_the_limit_on_descriptors_is_raised_for_connections() -> None:
    """In a separate process, because a lowered hard limit cannot be raised again."""
    script = """
import resource
from geomx.errors import ConfigError
from geomx.live.descriptors import make_room

resource.setrlimit(resource.RLIMIT_NOFILE, (32, 1000))
make_room("hub/server", 100)
print(resource.getrlimit(resource.RLIMIT_NOFILE))
make_room("hub/server", 10)
print(resource.getrlimit(resource.RLIMIT_NOFILE))
make_room("hub/server", 900)
print(resource.getrlimit(resource.RLIMIT_NOFILE))
try:
    make_room("hub/server", 1000)
except ConfigError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    *limits, told = done.stdout.splitlines()
    assert limits == ["(420, 1000)", "(420, 1000)", "(1000, 1000)"], done.stderr
    assert told.startswith("ulimit -n=1000: hub/server talks with 1000 nodes and needs 1064 open")


def test_descriptors_from_1024_on_can_be_waited_for() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reading, writing = os.pipe()
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1_500), hard))
    high = fcntl.fcntl(reading, fcntl.F_DUPFD_CLOEXEC, 1_100)
    try:
        assert readable([high, reading], 0.01) == []
        os.write(writing, b"x")
        assert readable([high, reading]) == [high, reading]
        os.read(reading, 1)
        os.close(writing)
        assert readable([high], 10) == [high]  # at its end
    finally:
        os.close(high)
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize("program", ["__main__", "fork_server"])
def test_a_node_imports_only_needed_modules(program: str) -> None:
    """Imports take most of the time of a short run."""
    own = "geomx.live.fork_server.import_own_plugins()" if program == "fork_server" else ""
    script = f"import sys, geomx.live.{program}\n{own}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    heavy = {"hydra", "mxnet", "optuna", "rich", "scipy", "simpy", "sklearn", "torch"}
    assert heavy.isdisjoint(done.stdout.split())


def test_notes_are_read_back(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "a")
    assert list(reader.new()) == []
    parameters = tmp_path / "a.npz"
    parameters.touch()  # by an earlier run in the same folder
    notes = Notes(tmp_path / "a")
    assert not parameters.exists()
    notes.started(1.5)
    assert list(reader.new()) == [{"started": 1.5}]
    notes.end(status="done")
    notes.end(status="lost")
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"torn')
    assert list(reader.new()) == [{"end": {"status": "done"}}]


def test_a_full_disk_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("notes", "node"):
        (tmp_path / f"{name}.jsonl").symlink_to("/dev/full")
    notes = Notes(tmp_path / "notes")
    with pytest.raises(OSError, match="No space left") as caught:
        notes.started(1.5)
    assert caught.value.filename == str(tmp_path / "notes.jsonl")
    one = Node(
        argparse.Namespace(
            name="a/worker0", notes=str(tmp_path / "node"), journal="", again=False, resumes=False
        )
    )
    monkeypatch.setattr(one, "_watch", lambda: None)
    monkeypatch.setattr(one, "_play", lambda: one._notes.started(1.5))
    assert one.run() == 1
    said = capsys.readouterr().err
    assert said == f"{tmp_path}/node.jsonl: No space left on device; make room, and run it again\n"


LATE_SIGNAL = """
import argparse, signal, sys
from geomx.errors import NodeLost
from geomx.live.node import Node

class Losing(Node):
    def _play(self):
        raise NodeLost("a/server", "connection closed")

    def _log(self, text, level="error"):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)

of = argparse.Namespace(
    name="a/worker0", notes=sys.argv[1], journal="", again=False, resumes=False, told=False
)
sys.exit(Losing(of).run())
"""


def test_a_signal_does_not_interrupt_the_end_of_a_node(tmp_path: Path) -> None:
    """A launcher ends nodes that have noticed a loss, and are about to note what they counted."""
    command = [sys.executable, "-c", LATE_SIGNAL, str(tmp_path / "node")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (LOST, "")
    (note,) = Reader(tmp_path / "node").new()
    assert note["end"] == {"status": "lost", "lost": ["a/server", "connection closed"]}


def test_a_launcher_shows_the_end_of_a_chain_of_waits(tmp_path: Path) -> None:
    shown: list[str] = []
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    relay = Relay(lambda: logs, 0.0, shown.append)
    wait = "geomx: {} has waited 5 s for {} to {} round 3 of key 0\n"
    logs[0].write_text(
        "a traceback, for instance\n"
        + wait.format("east/server", "hub/global_server0", "answer")
        + wait.format("west/server", "west/worker0 and west/worker1", "push")
        + "geomx: something else\ngeomx: half a li"
    )
    logs[1].write_text(wait.format("hub/global_server0", "west/server", "push"))
    relay.look(last=True)
    end = wait.format("west/server", "west/worker0 and west/worker1", "push").strip()
    assert shown == ["geomx: something else", end]
    logs[1].write_text(logs[1].read_text() + wait.format("a", "b", "push"))
    logs[0].write_text(logs[0].read_text() + "ne\n" + wait.format("b", "a", "push"))
    relay.look(last=True)
    assert shown[2] == "geomx: half a line"
    assert len(shown) == 5  # a cycle has no end, so all its lines are shown


def test_nodes_that_wait_for_the_scheduler_are_not_shown_beside_its_own_wait(
    tmp_path: Path,
) -> None:
    shown: list[str] = []
    log = tmp_path / "a.log"
    relay = Relay(lambda: [log], 0.0, shown.append, "hub/scheduler")
    other = "geomx: a/server has waited 5 s for the scheduler at 127.0.0.1:1 to say that all joined"
    own = "geomx: hub/scheduler has waited 5 s for a/worker0 to join"
    log.write_text(f"{other}\n")
    relay.look(last=True)
    log.write_text(f"{other}\n{own}\n{other}\n")
    relay.look(last=True)
    assert shown == [other, own]


# ---- whole runs ----


def run(folder: Path, *words: str) -> Results:
    """Run live, with files in `folder`."""
    experiment, _ = compose(["mode=live", *words])
    return run_experiment(experiment, folder)


@pytest.mark.slow
def test_nodes_wait_for_a_planned_outage_in_both_modes(tmp_path: Path) -> None:
    """A site with an outage longer than the time limit of silence is late, but not lost."""
    network = tmp_path / "away.yaml"
    network.write_text(SMALL_NETWORK + "outages: [{site: west, start_s: 0.02, end_s: 4}]\n")
    words = [f"network={network}", "iterations=3", "runtime.failure_timeout_s=2", "workload=tiny"]
    live = run(tmp_path / "live", *words)
    experiment, _ = compose(words)
    simulated = execute(experiment, tmp_path / "sim")
    for results in (simulated, live):
        assert 4 < results.summary["seconds"] < 6
        assert all(row["loss"] > 0 for row in results.iterations)
    for kind in ("wan_push", "wan_pull", "lan"):
        assert simulated.summary["bytes"][kind] == live.summary["bytes"][kind]
    for one, other in zip(simulated.parameters().values(), live.parameters().values(), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.slow
@pytest.mark.interpreter
def test_the_default_experiment_runs_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = run(tmp_path / "run", "iterations=6", "evaluate_every=3")
    assert [(row["worker"], row["iteration"]) for row in results.iterations[:5]] == [
        ("beijing/worker0", 0),
        ("beijing/worker1", 0),
        ("chengdu/worker0", 0),
        ("chengdu/worker1", 0),
        ("beijing/worker0", 1),
    ]
    assert len(results.iterations) == 24
    for row in results.iterations:
        assert row["end_s"] - row["start_s"] == pytest.approx(row["compute_s"] + row["wait_s"])
        assert row["compute_s"] == pytest.approx(0.03)
        assert row["loss"] > 0
    assert [row["iteration"] for row in results.evaluations] == [2, 5]
    assert results.summary["rounds"] == 6
    wan = {(row["source"], row["target"]) for row in results.links if row["kind"] == "wan"}
    assert ("beijing/server", "hub/global_server0") in wan
    hub_in = next(row for row in results.edges if row["target"] == "hub/global_server0")
    up = [row for row in results.links if row["target"] == "hub/global_server0"]
    assert len(up) > 1 and hub_in["bytes"] == sum(row["bytes"] for row in up) > 0
    assert hub_in["busy_s"] == max(row["busy_s"] for row in up)
    dense = 4 * results.summary["workload"]["elements"]
    assert results.summary["bytes"]["wan_push"] == pytest.approx(2 * 6 * dense, rel=0.02)
    parameters = results.parameters()
    assert sum(array.size for array in parameters.values()) * 4 == dense
    assert all(np.isfinite(array).all() for array in parameters.values())
    for name in ("trace.json", "report.html", "network.json", "nodes/hub-scheduler.log"):
        assert (tmp_path / "run" / name).exists()


@pytest.mark.slow
def test_a_live_run_without_numerics_exchanges_parameters(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL_NETWORK)
    words = ["iterations=4", "numerics=false", "+sync=hfa", "sync.k1=2", "sync.k2=2", "+accel=[p3]"]
    results = run(tmp_path / "run", f"network={tmp_path / 'small.yaml'}", *words)
    assert len(results.iterations) == 12
    assert results.summary["rounds"] == 1
    assert results.summary["loss"]["final"] is None
    assert not (tmp_path / "run" / "parameters.npz").exists()


@pytest.mark.slow
def test_without_pace_a_run_is_as_fast_as_the_machine(tmp_path: Path, network_file: Build) -> None:
    words = ["iterations=3", "runtime.pace=false", f"network={network_file(1)}"]
    results = run(tmp_path / "run", *words)
    assert len(results.iterations) == 3
    assert results.summary["accuracy"]["final"] is not None
    assert results.summary["behind_pace_s"] == 0
    assert pace_note(results.summary) == ""


@pytest.mark.slow
def test_a_pace_that_cannot_be_kept_causes_a_warning(tmp_path: Path, network_file: Build) -> None:
    hurried = "workload.forward_ms=0.001", "workload.backward_ms=0.001"
    words = ["iterations=3", *hurried, f"network={network_file(1)}"]
    results = run(tmp_path / "run", *words)
    assert results.summary["behind_pace_s"] > 0
    late = results.summary | {"behind_pace_s": results.summary["seconds_per_iteration"]["mean"]}
    assert "workload.forward_ms" in pace_note(late)
    assert pace_note(late | {"behind_pace_s": 0.01 * late["behind_pace_s"]}) == ""


# ---- how runs end ----


class Started:
    """A running ``python -m geomx mode=live``."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "geomx", "mode=live", *words, f"hydra.run.dir={folder}/run"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def node(self, name: str) -> int:
        """Wait until the run has results; return the process of a node."""
        deadline = time.monotonic() + 60
        table = self.folder / "run" / "iterations.csv"
        while not table.exists() or table.read_text().count("\n") < 5:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return next(pid for pid, words in self.nodes() if name in words)

    def nodes(self) -> list[tuple[int, list[str]]]:
        """Return the existing processes of this run with their command lines."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if any(word.startswith(f"{self.folder}/run/nodes") for word in words):
                found.append((int(entry.name), words))
        return found

    def ended(self) -> tuple[int, str, float]:
        """Wait for the end; return exit status, stderr and duration. No process may remain."""
        began = time.monotonic()
        _, errors = self.process.communicate(timeout=30)
        took = time.monotonic() - began
        assert self.nodes() == []
        # On a busy machine, nodes may report waits.
        lines = [x for x in errors.splitlines(keepends=True) if not x.startswith("geomx: ")]
        return self.process.returncode, "".join(lines), took


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "numerics"),
    [("beijing/worker1", False), ("chengdu/server", False), ("hub/global_server0", True)],
)
def test_killing_a_process_ends_the_run_and_names_it(
    tmp_path: Path, name: str, numerics: bool
) -> None:
    started = Started(tmp_path, "iterations=500", f"numerics={str(numerics).lower()}")
    os.kill(started.node(name), signal.SIGKILL)
    status, errors, took = started.ended()
    assert status == 1
    where = f"results up to then are in {tmp_path / 'run'}"
    assert errors.strip() == f"node {name} was lost: killed by SIGKILL; {where}"
    assert took < END_S
    kept = Results.load(tmp_path / "run")
    assert len(kept.iterations) >= 4
    assert name in kept.summary["aborted"]


@pytest.mark.slow
def test_a_process_that_hangs_is_detected(tmp_path: Path) -> None:
    words = ["iterations=500", "numerics=false", "runtime.failure_timeout_s=1"]
    started = Started(tmp_path, *words)
    os.kill(started.node("chengdu/worker0"), signal.SIGSTOP)
    status, errors, took = started.ended()
    assert status == 1
    assert "node chengdu/worker0 was lost" in errors
    assert took < END_S


@pytest.mark.slow
@pytest.mark.interpreter
def test_ctrl_c_leaves_no_process_and_keeps_results(tmp_path: Path) -> None:
    started = Started(tmp_path, "iterations=500")
    started.node("beijing/worker0")
    started.process.send_signal(signal.SIGINT)
    status, errors, took = started.ended()
    where = f"results up to then are in {tmp_path / 'run'}"
    assert (status, errors.strip()) == (130, f"interrupted; {where}")
    assert took < END_S
    kept = Results.load(tmp_path / "run")
    assert len(kept.iterations) >= 4
    assert kept.summary["aborted"] == "interrupted"


@pytest.mark.slow
@pytest.mark.interpreter
def test_killing_the_launcher_leaves_no_process(tmp_path: Path) -> None:
    started = Started(tmp_path, "iterations=500", "numerics=false")
    started.node("beijing/worker0")
    started.process.kill()
    started.process.communicate(timeout=30)
    deadline = time.monotonic() + 5
    while started.nodes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert started.nodes() == []
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["aborted"]


@pytest.mark.slow
def test_a_worker_that_cannot_start_is_named_with_its_reason(
    tmp_path: Path, network_file: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mxnet.py").write_text("raise ModuleNotFoundError('', name='libwhatever')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(NodeLost, match=r"worker\d was lost: exit status 1: mxnet=missing: no mod"):
        run(tmp_path / "run", "iterations=1", f"network={network_file(1)}")


@pytest.mark.slow
def test_a_scheduler_that_cannot_start_is_named_with_its_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NodeLost, match=f"node hub/scheduler was lost: .*{port}"):
            run(tmp_path / "run", "numerics=false", f"runtime.port={port}")


# ---- NaN ----

DIVERGING = ["workload=tiny", "workload.learning_rate=1e38", "iterations=6", "evaluate_every=6"]


@pytest.mark.slow
def test_a_simulated_worker_that_pushes_nan_is_named(tmp_path: Path) -> None:
    """The core checks pushes in both modes."""
    experiment, _ = compose(DIVERGING)
    with pytest.warns(
        UserWarning, match=r"worker\d pushed round \d of key '[\w.]+' with \d+ of \d+ v"
    ):
        execute(experiment, tmp_path / "warned")
    experiment, _ = compose([*DIVERGING, "runtime.non_finite=refuse"])
    with pytest.raises(GeomxError, match=r"NaN or infinite: runtime\.non_finite=refuse ends"):
        execute(experiment, tmp_path / "refused")
    with pytest.raises(ConfigError, match=r"non_finite=wran: .*warn"):
        compose([*DIVERGING, "runtime.non_finite=wran"])


@pytest.mark.slow
def test_a_live_worker_that_pushes_nan_ends_the_run(tmp_path: Path, network_file: Build) -> None:
    words = [*DIVERGING, "runtime.non_finite=refuse", f"network={network_file(1)}"]
    said = r"worker\d pushed round \d of key '[\w.]+' with \d+ of \d+ v"
    with pytest.raises(NodeLost, match=said):
        run(tmp_path / "run", *words)
