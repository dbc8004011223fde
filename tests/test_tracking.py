"""Experiment trackers receive a run's parameters, curves, faults and end, and never end a run."""

from __future__ import annotations

import csv
import struct
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import geomx
from geomx.config.compose import compose
from geomx.errors import ConfigError, PluginError
from geomx.experiment import script_workload
from geomx.limits import rules
from geomx.plugin.registry import Registry
from geomx.plugin.tracking import TrackedRun, Tracker
from geomx.plugins import mlflow
from geomx.plugins.tensorboard import TensorBoard, TensorBoardConfig
from geomx.results.recorder import Recorder
from geomx.testing.worlds import build, cluster
from geomx.tracking.begin import parameters
from geomx.tracking.following import AHEAD, Following, means
from tests.laws import registry_with


class Notes(Tracker):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.values: list[tuple[int, float, dict[str, float]]] = []
        self.faults: list[Mapping[str, Any]] = []
        self.ends: list[Mapping[str, Any]] = []

    def scalars(self, values: Mapping[str, float], iteration: int, time_s: float) -> None:
        self.values.append((iteration, time_s, dict(values)))

    def fault(self, row: Mapping[str, Any]) -> None:
        self.faults.append(row)

    def end(self, summary: Mapping[str, Any]) -> None:
        self.ends.append(summary)


def row(iteration: int, end_s: float, loss: float | None = None) -> dict[str, Any]:
    """Return a row of iterations.csv of a step of 2 s, of which 0.5 s were waiting."""
    return {
        "iteration": iteration, "start_s": end_s - 2, "wait_s": 0.5, "end_s": end_s, "samples": 8,
        "loss": loss,
    }  # fmt: skip


def test_trackers_answer_no_hooks_that_nodes_of_a_live_run_ask() -> None:
    """They do not know the trackers, so a simulation would not be what runs live."""

    class Observer:
        @geomx.hookimpl
        def geomx_track(self, run: TrackedRun) -> Tracker:
            return Notes()

        @geomx.hookimpl
        def geomx_events(self, events: Any) -> None:
            events.subscribe(print)

    registry = registry_with(both=("track", Observer()), other=("accel", Observer()))
    with pytest.raises(PluginError, match=r"track both: .* that answers geomx_events as accel"):
        registry.select(None, track=[("both", {})])
    assert registry.select(None, [("other", {})]).answers("geomx_track")


def test_means_are_those_over_all_workers() -> None:
    values = means([row(0, 4.0, 1.0), row(0, 6.0, 3.0)])
    assert values == {
        "train/step_s": 2.0,
        "train/wait_share": 0.25,
        "train/samples_per_s": 8.0,
        "train/loss": 2.0,
    }


def test_an_iteration_is_passed_on_when_all_have_ended_it() -> None:
    notes = Notes()
    following = Following([("track notes", notes)], workers=2)
    following.iteration(row(0, 4.0))
    assert notes.values == []
    following.iteration(row(0, 6.0))
    assert [(number, at_s) for number, at_s, _ in notes.values] == [(0, 6.0)]


def test_a_worker_that_is_lost_does_not_hold_up_the_curve() -> None:
    notes = Notes()
    following = Following([("track notes", notes)], workers=2)
    for number in range(AHEAD + 5):
        following.iteration(row(number, 2.0 * number))
    assert [number for number, *_ in notes.values] == list(range(5))
    following.iteration(row(2, 500.0))  # too late
    following.end({"bytes": {}})
    assert [number for number, *_ in notes.values] == list(range(AHEAD + 5))
    assert len(notes.ends) == 1


def test_a_tracker_that_fails_is_left_out_with_a_warning() -> None:
    class Broken(Notes):
        def scalars(self, values: Mapping[str, float], iteration: int, time_s: float) -> None:
            super().scalars(values, iteration, time_s)
            raise OSError("disk full")

    broken, notes = Broken(), Notes()
    following = Following([("accel broken: geomx_track", broken), ("track notes", notes)], 1)
    with pytest.warns(match="accel broken: geomx_track failed, and .* no longer: OSError: disk"):
        following.iteration(row(0, 1.0))
    following.iteration(row(1, 2.0))
    following.end({"bytes": {}})
    assert (len(broken.values), len(broken.ends)) == (1, 0)
    assert (len(notes.values), len(notes.ends)) == (2, 1)


def test_a_tracker_that_hangs_or_exits_is_left_out_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Hanging(Notes):
        def scalars(self, values: Mapping[str, float], iteration: int, time_s: float) -> None:
            awake.wait(60)

    class Exiting(Notes):
        def scalars(self, values: Mapping[str, float], iteration: int, time_s: float) -> None:
            sys.exit("no server")

    class Greedy(Notes):
        def end(self, summary: Any) -> None:
            summary["bytes"].clear()

    monkeypatch.setattr(rules, "HOOK_LIMIT_S", 0.2)
    awake, notes = threading.Event(), Notes()
    trackers = [("track a", Hanging()), ("track b", Exiting()), ("track c", Greedy())]
    following = Following([*trackers, ("track notes", notes)], 1)
    with pytest.warns() as warned:
        following.iteration(row(0, 1.0))
    said = [str(each.message) for each in warned]
    assert said[0] == "track a failed, and follows the run no longer: did not return for 0.2 s"
    assert said[1] == "track b failed, and follows the run no longer: SystemExit: no server"
    following.end({"bytes": {"lan": 3}})
    assert notes.ends == [{"bytes": {"lan": 3}}]
    awake.set()


def test_lost_nodes_are_told_once_each(tmp_path: Path) -> None:
    """Those that the scenario kills by their kill, others by an entry of their own."""
    notes = Notes()
    recorder = Recorder(tmp_path, {"mode": "sim", "sync": {"name": "fsa"}, "accel": []})
    participation = recorder.continues(cluster())
    recorder.follow(Following([("track notes", notes)], workers=2))
    recorder.fault({"time_s": 1.0, "what": "kill", "node": "east/worker0"})
    for node in ("east/worker0", "west/worker0", "west/worker0"):
        participation.lost(2.0, node)
    assert [(fault["what"], fault["node"]) for fault in notes.faults] == [
        ("kill", "east/worker0"),
        ("lost", "west/worker0"),
    ]
    assert notes.faults[1]["noticed_s"] == 0.0


def test_parameters_have_the_names_of_the_command_line() -> None:
    choices = {"sync": ("hfa", {"k1": 3}), "accel": [("fp16", {"lan": False})]}
    experiment = build(Registry.discover(), **choices)
    values = parameters(experiment)
    assert values["sync.k1"] == 3
    assert (values["accel"], values["accel.fp16.lan"]) == ("fp16", False)
    assert all(
        value is None or isinstance(value, bool | int | float | str) for value in values.values()
    )


def test_parameters_have_the_options_of_workload_and_network(tmp_path: Path) -> None:
    """As given: two runs that differ by one of them can be told apart."""
    words = ["workload=tiny", "workload.learning_rate=0.25", "network=two_parties"]
    words += ["network.delay_ms=40", "faults.on_loss=continue"]
    experiment, _ = compose([*words, f"hydra.run.dir={tmp_path / 'run'}"])
    values = parameters(experiment)
    assert values["workload.learning_rate"] == 0.25
    assert (values["network.delay_ms"], values["faults.on_loss"]) == ("40", "continue")
    assert not any(name.startswith("hydra") for name in values)
    script = replace(experiment, overrides=[], workload=script_workload.of(["python", "train.py"]))
    values = parameters(script)
    assert values["workload.name"] == "train.py"
    assert "workload.learning_rate" not in values


def test_an_unknown_tracker_and_one_listed_twice_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"track.*boards.*tensorboard"):
        geomx.run("workload=tiny", "+track=[boards]")
    with pytest.raises(ConfigError, match="tensorboard is listed twice"):
        geomx.run("workload=tiny", "+track=[tensorboard,tensorboard]")


# ---- the trackers that come with geomx ----


def events(folder: Path) -> dict[str, list[tuple[int, float, float]]]:
    """Return (step, wall time, value) of the scalars in a folder of TensorBoard, by tag."""
    from tensorboardX.proto import event_pb2

    found = defaultdict(list)
    (file,) = folder.glob("events.*")
    data = file.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event = event_pb2.Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found[value.tag].append((event.step, event.wall_time, value.simple_value))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sim", "live"])
def test_tensorboard_has_the_curves_of_the_tables(mode: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    words = ["workload=tiny", "iterations=6", f"mode={mode}", "+track=[tensorboard]"]
    results = geomx.run(*words, f"hydra.run.dir={tmp_path / 'run'}")
    found = events(results.directory / "tensorboard")
    losses = defaultdict(list)
    for entry in results.iterations:
        losses[entry["iteration"]].append(entry["loss"])
    curve = {step: value for step, _, value in found["train/loss"]}
    assert curve == pytest.approx({step: sum(all_) / len(all_) for step, all_ in losses.items()})
    first, last = found["train/step_s"][0][1], found["train/step_s"][-1][1]
    ends = {step: max(r["end_s"] for r in results.iterations if r["iteration"] == step)
            for step in (0, 5)}  # fmt: skip
    assert last - first == pytest.approx(ends[5] - ends[0], abs=1e-3)
    ((_, _, pushed),) = found["bytes/wan_push"]
    assert pushed == results.summary["bytes"]["wan_push"]
    with (results.directory / "evaluations.csv").open() as file:
        accuracies = [float(line["accuracy"]) for line in csv.DictReader(file)]
    assert [value for *_, value in found["evaluation/accuracy"]] == pytest.approx(accuracies)


def test_tensorboard_does_not_load_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboardX")
    (tmp_path / "torch.py").write_text("raise AssertionError('loaded')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [each for each in sys.modules if each.split(".")[0] in ("torch", "tensorboardX")]:
        monkeypatch.delitem(sys.modules, name)
    TensorBoard(TensorBoardConfig())
    assert "tensorboardX" in sys.modules and "torch" not in sys.modules


@pytest.mark.slow
def test_mlflow_has_parameters_curves_and_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)  # the store's artefacts go there
    store = f"sqlite:///{tmp_path / 'store.db'}"
    words = ["workload=tiny", "iterations=6", "+track=[mlflow]", f"track.mlflow.uri={store}"]
    scenario = "scenario=[{at_s: 0.05, pause: beijing/worker0, for_s: 0.1}]"
    geomx.run(*words, scenario, f"hydra.run.dir={tmp_path / 'run'}")
    client = library.MlflowClient(store)
    experiment = client.get_experiment_by_name("geomx")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["sync.name"] == "fsa"
    assert len(client.get_metric_history(run.info.run_id, "train/loss")) == 6
    names = {artefact.path for artefact in client.list_artifacts(run.info.run_id)}
    assert {"report.html", "summary.json", "faults.json"} <= names


class Server:
    """Stands for MLflow and its client: one experiment, which others may create before us."""

    def __init__(self, stage: str = "", created_meanwhile: bool = False) -> None:
        self.stage, self.created_meanwhile = stage, created_meanwhile
        self.sent: list[tuple[int, int]] = []
        self.names: list[str] = []
        self.entities = SimpleNamespace(Param=lambda *about: about, Metric=lambda *about: about)

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=7, lifecycle_stage=self.stage) if self.stage else None

    def create_experiment(self, name: str) -> str:
        self.stage = "active"
        if self.created_meanwhile:
            raise RuntimeError("UNIQUE constraint failed: experiments.name")
        return "7"

    def create_run(self, *about: Any) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id="run"))

    def log_batch(self, run: str, metrics: Sequence[Any] = (), params: Sequence[Any] = ()) -> None:
        self.names += [name for name, _ in params]
        self.sent.append((len(params), len(metrics)))


@pytest.mark.parametrize("server", [Server(), Server("active"), Server("", True)])
def test_jobs_of_a_sweep_share_an_experiment_of_mlflow(server: Server) -> None:
    assert mlflow.experiment_id(server, "geomx") == "7"


def test_a_deleted_experiment_of_mlflow_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^track\.mlflow\.experiment=geomx: was deleted in MLfl"):
        mlflow.experiment_id(Server("deleted"), "geomx")


def test_mlflow_gets_no_more_at_once_than_it_takes(tmp_path: Path) -> None:
    server = Server()
    parameters = {f"option{number}": number for number in range(249)} | {"a&b (c)": 1}
    run = mlflow._Run(
        server, server, "7", TrackedRun("fsa", "sim", tmp_path, 0.0, parameters), False
    )
    run.scalars({f"value{number}": 0.5 for number in range(450)}, 0, 1.0)
    assert server.sent == [(100, 0), (100, 0), (50, 0), (0, 200), (0, 200), (0, 50)]
    assert server.names[-1] == "a_b _c_"  # of the characters that it takes


def records(log: Path) -> bytes:
    """Return the records of a log of Weights & Biases: a LevelDB log of blocks of 32 KiB."""
    data, found, at = log.read_bytes(), b"", 7
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length = int.from_bytes(data[at + 4 : at + 6], "little")
        found += data[at + 7 : at + 7 + length]
        at += 7 + length
    return found


@pytest.mark.slow
def test_wandb_writes_an_offline_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    words = ["workload=tiny", "iterations=6", "+track=[wandb]"]
    results = geomx.run(*words, f"hydra.run.dir={tmp_path / 'run'}")
    (folder,) = (results.directory / "wandb").glob("offline-run-*")
    (log,) = folder.glob("run-*.wandb")
    logged = records(log)
    assert all(name in logged for name in (b"train/loss", b"evaluation/accuracy", b"sync.name"))
    assert str(results.summary["bytes"]["wan_push"]).encode() in logged
