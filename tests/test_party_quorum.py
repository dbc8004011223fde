"""Rounds of a party that close without late workers: ``faults.party_quorum``, and policies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import geomx
from geomx import runner
from geomx.errors import PluginError
from geomx.results.results import Results
from tests.guide import documented
from tests.late import (
    Buffer,
    Confused,
    costs_the_deadline,
    in_python,
    is_refused,
    rows_of,
    same_parameters,
    took_part,
    words_of,
)
from tests.laws import Build, registry_with, same

FAST = ["east/worker0", "east/worker1"]
SLOW = "east/worker2"


def words(
    folder: Path, speed: float, *more: str, quorum: Sequence[str] = ("faults.party_quorum=2",)
) -> list[str]:
    """Return the words of a run of two parties; one of the three workers of the first is slower."""
    parties = {"east": {"workers": 3, "speed": [1.0, 1.0, speed]}, "west": {"workers": 1}}
    return words_of(folder, parties, quorum, *more)


def test_a_slow_worker_costs_its_party_and_the_others_the_deadline(tmp_path: Path) -> None:
    alone = runner.run(*words(tmp_path / "alone", 1.0, "faults.party_deadline_s=5"))
    slow = runner.run(*words(tmp_path / "slow", 0.01, "faults.party_deadline_s=0.2"))
    costs_the_deadline(alone, slow, (*FAST, "west/worker0"), slice(1, 10))


@pytest.mark.parametrize("sync", ["fsa", "hfa", "mixedsync", "diloco"])
@pytest.mark.needs("hfa", "mixedsync", "diloco")
def test_a_slow_worker_makes_the_steps_that_the_others_make(tmp_path: Path, sync: str) -> None:
    """It leaves steps out; the last round waits for it, and all end with the same values."""
    more = ["faults.party_deadline_s=0.02", f"+sync={sync}", "iterations=40"]
    more += ["sync.h=4"] if sync == "diloco" else []
    results = runner.run(*words(tmp_path / "run", 0.25, *more))
    steps = [row["iteration"] for row in rows_of(results, SLOW)]
    assert steps == sorted(set(steps))
    assert len(steps) < 40
    assert steps[-1] == 39
    assert len(rows_of(results, FAST[0])) == 40
    absent = [row[4] for row in took_part(tmp_path / "run") if row[0] == "east/server"]
    assert absent
    assert set(absent) <= {SLOW, ""}


@pytest.mark.slow
def test_rounds_of_a_party_do_not_wait_for_a_killed_worker(tmp_path: Path) -> None:
    more = ["faults.party_deadline_s=30", "scenario=[{kill: east/worker2, at_s: 0.2}]"]
    results = runner.run(*words(tmp_path / "run", 1.0, *more, "faults.restarts=0"))
    rows = rows_of(results, FAST[0])
    assert len(rows) == 12
    assert rows[-1]["end_s"] < 30
    absent = {row[4] for row in took_part(tmp_path / "run")}
    assert SLOW in absent
    more[1] = "scenario=[{kill: east/worker2, at_s: 0.2, restart_s: 0.1}]"
    results = runner.run(*words(tmp_path / "back", 1.0, *more, "iterations=40"))
    assert rows_of(results, SLOW)[-1]["iteration"] == 39


@pytest.mark.slow(4)
@pytest.mark.parametrize("sync", [("fsa",), ("diloco", "h=1", "party_quorum=2", "weights=tokens")])
@pytest.mark.needs("diloco")
def test_simulated_and_live_runs_agree_on_who_took_part_and_on_every_bit(
    tmp_path: Path, sync: tuple[str, ...]
) -> None:
    """The slow worker's first step takes several times as long as all steps of the others."""
    found, runs = {}, []
    name, *options = sync
    quorum = [f"+sync={name}", *(f"sync.{each}" for each in options)]
    if name == "fsa":
        quorum += ["faults.party_quorum=2", "faults.party_deadline_s=0"]
    for mode in ("sim", "live"):
        folder = tmp_path / mode
        results = runner.run(*words(folder, 0.01, "iterations=4", f"mode={mode}", quorum=quorum))
        runs.append(results)
        found[mode] = took_part(folder)
        assert results.summary["participation"]["late"] > 0
        assert [row["iteration"] for row in rows_of(results, SLOW)] == [0, 3]
    assert found["sim"] == found["live"]
    assert same_parameters(*runs)


# ---- policies of sync algorithms ----


def trained(folder: Path, speed: float, *more: str) -> Results:
    return runner.run(*words(folder, speed, "iterations=24", *more, quorum=()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sync", "quorum"),
    [
        (["+sync=diloco", "sync.h=4"], ["sync.party_quorum=3"]),
        (["+sync=fedbuff", "sync.h=4", "sync.k=2"], ["sync.party_k=3"]),
        (["+sync=hfa"], ["faults.party_quorum=3", "faults.party_deadline_s=0"]),
        (["+sync=fsa"], ["faults.party_quorum=1.0", "faults.party_deadline_s=9"]),
    ],
)
@pytest.mark.needs("diloco", "fedbuff", "hfa")
def test_a_quorum_of_all_workers_changes_no_bit(
    tmp_path: Path, sync: list[str], quorum: list[str]
) -> None:
    plain = trained(tmp_path / "plain", 0.3, *sync)
    assert same_parameters(trained(tmp_path / "all", 0.3, *sync, *quorum), plain)


@pytest.mark.slow
@pytest.mark.needs("fedbuff")
def test_a_buffer_in_a_party_does_not_wait_for_its_slow_worker(tmp_path: Path) -> None:
    sync = ["+sync=fedbuff", "sync.h=4", "sync.k=2", "faults.on_loss=stop"]
    end_s = []
    for number, more in enumerate(([], ["sync.party_k=2"])):
        results = trained(tmp_path / str(number), 0.2, *sync, *more)
        end_s.append(rows_of(results, FAST[0])[20]["end_s"])
    assert end_s[1] < 0.5 * end_s[0]
    assert results.summary["participation"]["late"] > 0
    assert results.summary["accuracy"]["final"] > 0.8


@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("faults.party_quorum", ["faults.on_loss=wait", "faults.party_deadline_s=1"]),
        ("faults.party_quorum", []),
        ("faults.party_quorum", ["faults.party_quorum=4", "faults.party_deadline_s=1"]),
        ("faults.party_quorum", ["faults.party_quorum=1.5", "faults.party_deadline_s=1"]),
        ("faults.party_deadline_s", ["faults.party_quorum=null", "faults.party_deadline_s=1"]),
        ("faults.party_quorum", ["faults.party_deadline_s=1", "+sync=esync"]),
        ("faults.party_quorum", ["faults.party_deadline_s=1", "+sync=diloco", "sync.quorum=2"]),
        ("sync.party_quorum", ["faults.party_quorum=null", "+sync=diloco", "sync.party_quorum=4"]),
        (
            "sync.party_deadline_s",
            ["faults.party_quorum=null", "+sync=diloco", "sync.party_deadline_s=4"],
        ),
        ("sync.party_k", ["faults.party_quorum=null", "+sync=fedbuff", "sync.party_k=4"]),
    ],
)
@pytest.mark.needs("diloco", "fedbuff", "esync")
def test_what_cannot_be_is_refused(tmp_path: Path, key: str, more: list[str]) -> None:
    is_refused(words(tmp_path / "run", 1.0, *more), key)


def in_parties(make: type[Buffer]) -> Any:
    """Return a registry with ``sync=own``: fedbuff, with the parties' rounds in Python."""

    def rounds(policy: Any, cluster: Any, party: Any) -> Any:
        return make(min(2, len(party.workers)), 2)

    return in_python("party_round_policy", rounds, h=2, oldest=2)


@pytest.mark.needs("fedbuff")
def test_a_policy_in_python_does_the_same(network: Build, tiny: Any, simulate: Build) -> None:
    net = network(3, 2, speed=[(1.0, 0.9, 0.13), (1.0, 0.95)])
    options = {"h": 2, "oldest": 2}
    native = simulate(net, tiny, ("fedbuff", {**options, "party_k": 2}), iterations=40)
    python = simulate(net, tiny, ("own", {}), iterations=40, registry=in_parties(Buffer))
    assert native.bytes == python.bytes
    assert same(native.parameters, python.parameters)
    participation = native.results.summary["participation"]
    assert participation["late"] > 0
    assert python.results.summary["participation"] == participation
    with pytest.raises(PluginError, match=r"Confused.weigh gave 0 weights for [123] contribution"):
        simulate(net, tiny, ("own", {}), iterations=4, registry=in_parties(Confused))


def test_the_documented_policy_waits_for_all_but_one(
    network: Build, tiny: Any, simulate: Build
) -> None:
    class Own:
        @geomx.hookimpl
        def geomx_sync_policy(self, cluster: Any) -> geomx.SyncPolicy:
            policy: geomx.SyncPolicy = documented("WithoutStragglers")()
            return policy

    registry = registry_with(own=("sync", Own()))
    net = network(3, 1, speed=[(1.0, 0.9, 0.01), (1.0,)])
    run = simulate(net, tiny, ("own", {}), iterations=20, registry=registry)
    waits = simulate(net, tiny, ("fsa", {}), iterations=20)
    assert run.results.summary["participation"]["late"] > 0
    fast, slow = (each.results.iterations[10]["end_s"] for each in (run, waits))
    assert fast < 0.5 * slow
