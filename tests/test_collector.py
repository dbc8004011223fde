"""The launcher's record of a run, from the notes of its nodes."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from geomx.cluster import Cluster
from geomx.errors import GeomxError, NodeLost, PluginError
from geomx.experiment import script_workload
from geomx.experiment.experiment import Experiment
from geomx.live import collector as collector_module
from geomx.live import launcher
from geomx.live.collector import Collector, recover
from geomx.live.files import stem
from geomx.live.journal import Notes
from geomx.live.left_early import LeftEarly
from geomx.options.schema import FaultOptions
from geomx.results.participation import Partial, Participation
from geomx.results.recorder import Recorder
from geomx.results.results import Results
from geomx.results.steps import unequal
from geomx.scenario.events import read_scenario


def noted_by(
    built: Experiment,
    folder: Path,
    server: Callable[[Notes], None],
    worker: Callable[[Notes], None],
) -> list[str]:
    """Record a script from notes; return the tensors of the rounds that lacked some node."""
    scripted = replace(built, workload=script_workload.of(["python", "train.py"]), iterations=0)
    (folder / "nodes").mkdir()
    for node in scripted.cluster.nodes:
        notes = Notes(stem(folder, node.name))
        notes.started(1.0)
        if node == scripted.cluster.workers[0]:
            worker(notes)
        if node.role == "global_server":
            server(notes)
    recorder = Recorder(folder, {**scripted.header(), "script": {}})
    collector = Collector(scripted, folder, recorder)
    collector.collect()
    collector.finish(1.0)
    with (folder / "participation.csv").open() as file:
        return [row["tensor"] for row in csv.DictReader(file)]


def lacking(*keys: int) -> Callable[[Notes], None]:
    """Note that rounds of keys were completed without a party."""

    def note(notes: Notes) -> None:
        for key in keys:
            about: Any = [key, 0, 1, 0, 1, [], 0]
            notes.member(0.5, "partial", ["chengdu/server"], about)

    return note


def test_rounds_of_tensors_that_no_worker_has_told_are_recorded(
    experiment: Callable[..., Experiment], two_parties: Cluster, tiny: Any, tmp_path: Path
) -> None:
    built = experiment(two_parties, tiny, faults=FaultOptions(on_loss="continue"))
    found = noted_by(
        built, tmp_path, lacking(1, 0), lambda notes: notes.tensors([(0, "w", (2,), [])])
    )
    assert found == ["tensor 1", "w"]


def test_tensors_are_known_by_the_keys_that_a_script_has_chosen(
    experiment: Callable[..., Experiment], two_parties: Cluster, tiny: Any, tmp_path: Path
) -> None:
    def tells(notes: Notes) -> None:
        for key in (9, 3, 0, 9):  # the last by another process of the worker
            notes.tensors([(key, f"name {key}", (2,), [])])

    built = experiment(two_parties, tiny, faults=FaultOptions(on_loss="continue"))
    found = noted_by(built, tmp_path, lacking(0, 3, 9), tells)
    assert found == ["name 0", "name 3", "name 9"]


class Failing:
    """A job that has failed half a second after its start, which its end took as long to find."""

    def __init__(self, started_s: float) -> None:
        self.failed_s: float | None = started_s + 0.5

    gone: tuple[str, ...] = ()

    def __enter__(self) -> Failing:
        return self

    def __exit__(self, *raised: Any) -> None:
        pass

    def poll(self) -> bool:
        raise NodeLost("party1/server", "killed by SIGKILL")


def test_what_happens_after_the_failure_of_a_run_is_no_fault(
    experiment: Callable[..., Experiment], two_parties: Cluster, tiny: Any, tmp_path: Path
) -> None:
    """Nodes end because the run does, and no event of the scenario happens any more."""
    events = read_scenario([{"every_s": 0.4, "reset": ["party0", "hub"]}], two_parties)
    faults = FaultOptions(on_loss="continue")
    built = replace(experiment(two_parties, tiny, faults=faults), scenario=events)
    started_s = time.monotonic() - 1.0
    (tmp_path / "nodes").mkdir()
    notes = Notes(stem(tmp_path, built.cluster.scheduler.name))
    notes.started(started_s)
    for time_s, name in ((0.3, "party1/worker0"), (0.7, "party0/server")):
        notes.member(time_s, "gone", [name], [])
    recorder = Recorder(tmp_path, built.header())
    collector = Collector(built, tmp_path, recorder)
    with pytest.raises(NodeLost):
        launcher._run(lambda: Failing(started_s), collector, recorder)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [(row["time_s"], row["what"]) for row in summary["faults"]] == [
        (0.3, "lost"),
        (0.4, "reset"),
    ]


def test_edges_of_a_run_that_fails_are_used_until_then(
    experiment: Callable[..., Experiment], two_parties: Cluster, tiny: Any, tmp_path: Path
) -> None:
    """Also for longer than until the end of a step: what was sent since then is counted, too."""
    built = experiment(two_parties, tiny)
    started_s = time.monotonic() - 1.0
    (tmp_path / "nodes").mkdir()
    Notes(stem(tmp_path, built.cluster.scheduler.name)).started(started_s)
    notes = Notes(stem(tmp_path, "party0/worker0"))
    notes.started(started_s)
    notes.iteration(0, 0.0, 0.05, 0.1, loss=1.0, spans=[])
    link = {"peer": "party0/server", "push": [1000, 1], "pull": [0, 0]}
    counts: dict[str, Any] = {"links": [link | {"control_bytes": 0, "busy_s": 0.01}]}
    counts |= {"node": {"rounds": 0}, "rounds": {}, "spans": [], "spans_dropped": 0, "python": {}}
    notes.end(status="lost", paced_pushes=1, behind_s=0.0, **counts)
    recorder = Recorder(tmp_path, built.header())
    with pytest.raises(NodeLost):
        launcher._run(lambda: Failing(started_s), Collector(built, tmp_path, recorder), recorder)
    used = [row for row in Results.load(tmp_path).edges if row["bytes"]]
    assert used and all(row["bytes"] == 1000 for row in used)
    assert all(row["mean_mbps"] == pytest.approx(8e-3 / 0.5) for row in used)


def test_a_run_that_has_gone_on_without_nodes_is_collected(
    experiment: Callable[..., Experiment], two_parties: Cluster, tiny: Any, tmp_path: Path
) -> None:
    """One was lost, and one has never joined; without the others the run has not finished."""
    faults = FaultOptions(on_loss="continue", absent=["party1/worker1"])
    built = experiment(two_parties, tiny, faults=faults)
    (tmp_path / "nodes").mkdir()
    counts: dict[str, Any] = {"links": [], "node": {"rounds": 0, "shards": 0}, "rounds": {}}
    counts |= {"spans": [], "spans_dropped": 0, "python": {}, "paced_pushes": 0, "behind_s": 0.0}
    counts["node"] |= dict.fromkeys(("late_slices", "missing_slices", "staleness_max"), 0)
    counts["node"] |= dict.fromkeys(("staleness_sum", "partial_rounds"), 0)
    lost = "party1/worker0"
    for node in built.cluster.nodes:
        if node.name not in faults.absent:
            notes = Notes(stem(tmp_path, node.name))
            notes.started(1.0)
            if node.role == "worker":
                notes.iteration(0, 0.0, 0.05, 0.1, loss=1.0, spans=[])
            if node.role == "scheduler":
                notes.member(0.2, "gone", [lost], [])
            if node.name != lost:
                notes.end(status="done", **counts)
    results = launcher.collect(built, tmp_path)
    workers = ["party0/worker0", "party0/worker1", lost]
    assert [row["worker"] for row in results.iterations] == workers
    Notes(stem(tmp_path, "party0/worker1")).started(1.0)
    with pytest.raises(GeomxError, match=r"node party0/worker1 has not finished"):
        launcher.collect(built, tmp_path)


def test_all_wait_also_if_some_nodes_are_no_process(
    experiment: Callable[..., Experiment], two_parties: Cluster, tiny: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A resumed node is idle when it says so itself."""
    monkeypatch.setattr(collector_module, "ANSWER_S", 0.0)
    built = experiment(two_parties, tiny)
    (tmp_path / "nodes").mkdir()
    notes = {node.name: Notes(stem(tmp_path, node.name)) for node in built.cluster.nodes}
    for name, each in notes.items():
        each.started(1.0)
        each.idle(name != "party1/worker1")
    collector = Collector(built, tmp_path, Recorder(tmp_path, built.header()))
    notes["party0/worker0"].waits("an answer")
    notes["party0/server"].recovered(2.0)
    collector.collect()
    collector.check(["party1/worker1"])
    notes["party0/server"].idle(True)
    collector.collect()
    collector.check()
    with pytest.raises(PluginError, match=r"party0/worker0, .* waited more than .* for an answer,"):
        collector.check(["party1/worker1"])


def test_a_node_recovers_from_the_kill_that_has_ended_it() -> None:
    """Kills of a node that is dead have no effect."""
    kills: list[dict[str, Any]] = [
        {"time_s": at, "what": "kill", "node": "a"} for at in (1.0, 1.5, 3.0, 7.0)
    ]
    others = recover(kills, {"a": [2.0, 3.5, 5.0], "b": [4.0]})
    assert [kill["recovered_s"] for kill in kills] == [1.0, None, 0.5, None]
    assert others == [
        {"time_s": 4.0, "what": "restart", "node": "b"},
        {"time_s": 5.0, "what": "restart", "node": "a"},
    ]


def test_a_kill_of_a_dead_node_loses_no_contributions(two_parties: Cluster, tmp_path: Path) -> None:
    node = "party0/worker0"
    kills: list[dict[str, Any]] = [
        {"time_s": at, "what": "kill", "node": node} for at in (1.0, 1.2)
    ]
    found = Participation(tmp_path / "rounds.csv", kills, two_parties, lambda fault: None)
    for kill in kills:
        found.fault(kill)
    found.lost(1.3, node)
    for number, at in enumerate((1.4, 1.5)):
        found.partial(Partial(at, "party0/server", "w", 0, number, number, 1, (node,)))
    found.takes_part(1.6, node)
    found.summary()
    assert [kill["lost_contributions"] for kill in kills] == [2, 0]
    assert [kill["recovered_s"] for kill in kills] == [pytest.approx(0.6), None]


def test_a_worker_that_has_left_before_the_others_is_told_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    workers = LeftEarly(planned=False)
    workers.made(3)
    workers.left("b/worker0", 3)
    workers.tell()
    assert not capsys.readouterr().err  # the others may be done, too
    workers.made(4)
    workers.tell()
    workers.tell()
    said = capsys.readouterr().err
    assert said.count("b/worker0 has left after 3 steps, others train on without it") == 1
    stopping = LeftEarly(planned=False, continues=False)
    stopping.left("b/worker0", 3)
    stopping.made(4)
    stopping.tell()
    assert "b/worker0 has left after 3 steps, others make more\n" in capsys.readouterr().err
    planned = LeftEarly(planned=True)
    planned.left("b/worker0", 3)
    planned.made(4)
    planned.tell()
    assert not capsys.readouterr().err


def test_the_steps_that_workers_have_made_are_told_where_they_differ() -> None:
    rows = [{"worker": name} for name in ("a", "b", "a")]
    assert unequal(rows) == [1, 2]
    assert unequal(rows[:2]) == unequal([]) == []
