"""The launcher's record of a run, from the notes of its nodes."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from geomx.cluster import Cluster
from geomx.experiment import script_workload
from geomx.experiment.experiment import Experiment
from geomx.live.collector import Collector
from geomx.live.files import stem
from geomx.live.journal import Notes
from geomx.live.left_early import LeftEarly
from geomx.options.schema import FaultOptions
from geomx.results.recorder import Recorder
from geomx.results.steps import unequal


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
    planned = LeftEarly(planned=True)
    planned.left("b/worker0", 3)
    planned.made(4)
    planned.tell()
    assert not capsys.readouterr().err


def test_the_steps_that_workers_have_made_are_told_where_they_differ() -> None:
    rows = [{"worker": name} for name in ("a", "b", "a")]
    assert unequal(rows) == [1, 2]
    assert unequal(rows[:2]) == unequal([]) == []
