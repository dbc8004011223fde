"""Simulated runs that continue without lost nodes (``faults.on_loss=continue``)."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx import runner
from geomx.config.compose import compose
from geomx.errors import ConfigError, NodeLost
from geomx.network.files import read_network
from geomx.results.results import Results
from geomx.testing import replay as testing

NETWORK: dict[str, Any] = {
    "central": {"name": "hub", "uplink_mbps": 400, "downlink_mbps": 400},
    "parties": {
        "east": {"workers": 2, "uplink_mbps": 400, "downlink_mbps": 400},
        "west": {"workers": 2, "uplink_mbps": 400, "downlink_mbps": 400},
        "south": {"workers": 1, "uplink_mbps": 400, "downlink_mbps": 400},
    },
    "delay_ms": 5,
}
WORKERS = ["east/worker0", "east/worker1", "west/worker0", "west/worker1", "south/worker0"]


def words(folder: Path, scenario: str, *more: str) -> list[str]:
    network = folder.parent / "network.yaml"
    network.write_text(str(NETWORK))
    return [
        f"network={network}", "iterations=20", "faults.on_loss=continue", f"scenario={scenario}",
        "workload=tiny", "workload.forward_ms=10", "workload.backward_ms=20",
        "sim.max_spans=0", f"hydra.run.dir={folder}", *more,
    ]  # fmt: skip


def run(folder: Path, scenario: str, *more: str) -> Results:
    return runner.run(*words(folder, scenario, *more))


@pytest.mark.needs("hfa")
@pytest.mark.parametrize(("size", "on_loss"), [(1, "continue"), (2, "continue"), (1, "wait")])
def test_equal_weights_of_unequal_parties_need_all_of_them(
    size: int, on_loss: str, tmp_path: Path
) -> None:
    """Global servers make up for lost parties by their numbers of workers."""
    more = [f"network.parties.south.workers={size}", f"faults.on_loss={on_loss}"]
    hfa = [*words(tmp_path / "run", "[]", *more), "+sync=hfa"]
    compose([*hfa, "sync.weighting=workers"])
    with contextlib.ExitStack() as stack:
        if size == 1 and on_loss == "continue":
            wanted = r"sync.weighting=parties: .*: choose sync.weighting=workers, faults.on_loss"
            stack.enter_context(pytest.raises(ConfigError, match=wanted))
        compose([*hfa, "sync.weighting=parties"])


def participants(folder: Path) -> dict[tuple[str, int], list[list[str]]]:
    return testing.participants(folder, read_network(NETWORK))


def replay(folder: Path, *overrides: str) -> dict[str, np.ndarray]:
    experiment, _ = compose(list(overrides))
    return testing.replay(experiment, folder)


SCENARIOS = {
    "a worker": "[{at_s: 0.3, kill: west/worker1}]",
    "a worker, back": "[{at_s: 0.3, kill: west/worker1, restart_s: 0.3}]",
    "the first, back": "[{at_s: 0.31, kill: east/worker0, restart_s: 0.2}]",
    "a party's only worker, back": "[{at_s: 0.3, kill: south/worker0, restart_s: 0.4}]",
    "all of a party": "[{at_s: 0.3, kill: west/worker0}, {at_s: 0.45, kill: west/worker1}]",
    "a server": "[{at_s: 0.3, kill: west/server}]",
    "a server, back": "[{at_s: 0.3, kill: west/server, restart_s: 0.3}]",
    "again and again": "[{every_s: 0.21, random: true, kill: any worker, restart_s: 0.2}]",
}


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_parameters_equal_a_replay_of_the_participation(tmp_path: Path, scenario: str) -> None:
    results = run(tmp_path / "run", scenario)
    replayed = replay(tmp_path / "run", *words(tmp_path / "run", scenario)[:-1])
    for name, value in results.parameters().items():
        assert np.array_equal(value, replayed[name]), name
    participation = results.summary["participation"]
    assert participation["without"] > 0
    assert participation["with_everybody"] > 0
    assert participants(tmp_path / "run")


@pytest.mark.slow
def test_without_losses_results_equal_those_of_stop(tmp_path: Path) -> None:
    lasting = run(tmp_path / "lasting", "[]")
    usual = run(tmp_path / "usual", "[]", "faults.on_loss=stop")
    for name, value in usual.parameters().items():
        assert np.array_equal(value, lasting.parameters()[name])
    assert lasting.summary["participation"]["without"] == 0
    assert lasting.summary["bytes"]["wan_push"] == usual.summary["bytes"]["wan_push"]
    assert lasting.summary["seconds"] == usual.summary["seconds"]
    assert not (tmp_path / "lasting/participation.csv").exists()


def test_the_costs_of_faults_are_reported(tmp_path: Path) -> None:
    results = run(tmp_path / "run", "[{at_s: 0.3, kill: west/worker1, restart_s: 0.3}]")
    (fault,) = results.summary["faults"]
    assert fault["noticed_s"] == 0
    assert 0.3 < fault["recovered_s"] < 0.8
    assert 1 <= fault["lost_contributions"] < 12
    rows = [row for row in results.iterations if row["worker"] == "west/worker1"]
    missed = set(range(20)) - {row["iteration"] for row in rows}
    assert len(missed) >= fault["lost_contributions"]
    assert rows[-1]["iteration"] == 19


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["faults.quorum=2", "faults.deadline_s=0.005"]])
def test_the_only_worker_of_a_party_misses_global_rounds(tmp_path: Path, more: list[str]) -> None:
    """Not those for which it was late, as slow parties are with a quorum."""
    back = "[{at_s: 0.54, kill: south/worker0, restart_s: 0.3}]"
    results = run(tmp_path / "run", back, "iterations=30", *more)
    (fault,) = results.summary["faults"]
    steps = [row["iteration"] for row in results.iterations if row["worker"] == "south/worker0"]
    assert steps[-1] == 29
    assert 0 < fault["lost_contributions"] == 30 - len(steps)
    without = results.summary["participation"]["without"]
    assert (without > fault["lost_contributions"]) == bool(more)


@pytest.mark.parametrize(
    "combination",
    [
        pytest.param(["+sync=hfa", "sync.k1=2", "sync.k2=2"], marks=pytest.mark.needs("hfa")),
        pytest.param(
            ["+sync=diloco", "sync.h=4", "sync.fragments=2", "sync.tau=3", "sync.alpha=0.5"],
            marks=pytest.mark.needs("diloco"),
        ),
        pytest.param(["+sync=mixedsync"], marks=pytest.mark.needs("mixedsync")),
        pytest.param(
            ["+sync=mixedsync", "sync.staleness_bound=2"], marks=pytest.mark.needs("mixedsync")
        ),
        pytest.param(["+sync=esync"], marks=pytest.mark.needs("esync")),
        pytest.param(["+sync=esync", "sync.scope=party"], marks=pytest.mark.needs("esync")),
        pytest.param(
            ["+accel=[p3,fp16]", "accel.p3.slice_elements=50"],
            marks=pytest.mark.needs("p3", "fp16"),
        ),
        pytest.param(["+accel=[dgt]", "accel.dgt.block_bytes=64"], marks=pytest.mark.needs("dgt")),
    ],
)
@pytest.mark.parametrize("which", ["a worker, back", "a server, back", "again and again"])
@pytest.mark.slow(3)
def test_every_sync_algorithm_continues(tmp_path: Path, combination: list[str], which: str) -> None:
    results = run(tmp_path / "run", SCENARIOS[which], *combination)
    assert "aborted" not in results.summary
    assert {row["worker"] for row in results.iterations} == set(WORKERS)
    assert all(np.isfinite(value).all() for value in results.parameters().values())
    again = run(tmp_path / "again", SCENARIOS[which], *combination)
    for file in ("iterations.csv", "parameters.npz"):
        assert (again.directory / file).read_bytes() == (results.directory / file).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("early_s", [0.02, 0.002])
def test_a_worker_that_returns_when_the_others_have_ended_ends_the_run(
    tmp_path: Path, early_s: float
) -> None:
    """It is lost: for the scheduler the run has ended, so its loss is not reported once more."""
    end_s = run(tmp_path / "without", SCENARIOS["a worker"]).summary["seconds"]
    back = f"{{at_s: 0.3, kill: west/worker1, restart_s: {end_s - 0.3 - early_s}}}"
    results = run(tmp_path / "run", f"[{back}]")
    assert results.summary["seconds"] == end_s


def test_the_loss_of_required_nodes_ends_the_run(tmp_path: Path) -> None:
    for index, node in enumerate(("hub/global_server0", "hub/scheduler")):
        with pytest.raises(NodeLost, match=node):
            run(tmp_path / f"run{index}", f"[{{at_s: 0.3, kill: {node}}}]")


def test_a_cut_link_excludes_the_party(tmp_path: Path) -> None:
    results = run(
        tmp_path / "run", "[{at_s: 0.3, cut: [west, hub], for_s: 60}]", "faults.suspect_s=1"
    )
    lost = [row for row in results.summary["faults"] if row["what"] == "lost"]
    assert "west/server" in {row["node"] for row in lost}
    assert results.summary["seconds"] < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "who"),
    [
        ("pause: west/worker1, for_s: 2.5", {"west/worker1"}),
        ("cut: [west, hub], for_s: 2.5", {"west/server", "west/worker0", "west/worker1"}),
    ],
)
def test_lost_nodes_are_replaced_when_they_can_be_reached(
    tmp_path: Path, event: str, who: set[str]
) -> None:
    more = ["faults.suspect_s=1", "iterations=120"]
    scenario = f"[{{at_s: 0.3, {event}}}]"
    results = run(tmp_path / "run", scenario, *more)
    given = words(tmp_path / "run", scenario, *more)
    replayed = replay(tmp_path / "run", *(word for word in given if "hydra" not in word))
    for name, value in results.parameters().items():
        assert np.array_equal(value, replayed[name]), name
    lost = [row for row in results.summary["faults"] if row["what"] == "lost"]
    assert {row["node"] for row in lost} == who
    for row in lost:
        assert row["time_s"] + row["recovered_s"] > 0.3 + 2.5
    steps = [row["iteration"] for row in results.iterations if row["worker"] == "west/worker1"]
    assert steps[-1] == 119
    assert len(steps) < 120
    without = run(tmp_path / "without", scenario, *more, "faults.restarts=0")
    assert {row["recovered_s"] for row in without.summary["faults"][1:]} == {None}


@pytest.mark.needs("tsengine")
def test_overlays_that_aggregate_are_refused_with_continue() -> None:
    with pytest.raises(
        ConfigError, match=r"faults\.on_loss=continue: accel tsengine forwards .*; leave it out"
    ):
        compose(["faults.on_loss=continue", "+accel=[tsengine]"])


# ---- joining and leaving ----

TURNS = {
    "a worker leaves": "[{at_s: 0.5, leave: west/worker1}]",
    "a worker joins": "[{at_s: 0.5, join: {party: west, workers: 1}}]",
    "a party joins": "[{at_s: 0.5, join: {party: south, workers: 1}}]",
    "one comes, one goes": (
        "[{at_s: 0.3, join: {party: west, workers: 2}}, {at_s: 0.9, leave: east/worker1}]"
    ),
}


@pytest.mark.parametrize("mode", ["sim", pytest.param("live", marks=pytest.mark.slow(3))])
@pytest.mark.parametrize("scenario", TURNS.values(), ids=TURNS)
def test_members_join_and_leave(tmp_path: Path, scenario: str, mode: str) -> None:
    given = words(tmp_path / "run", scenario, f"mode={mode}", "iterations=60")
    results = runner.run(*given)
    replayed = replay(tmp_path / "run", *(word for word in given if "hydra" not in word))
    for name, value in results.parameters().items():
        assert np.array_equal(value, replayed[name]), name
    steps = {row["worker"]: 0 for row in results.iterations}
    assert set(steps) == set(WORKERS)
    for row in results.iterations:
        steps[row["worker"]] += 1
    assert 60 in steps.values()
    turned = [worker for worker, count in steps.items() if count < 60]
    assert len(turned) == {"one": 3}.get(scenario_name(scenario).split()[0], 1)
    assert {fault["what"] for fault in results.summary["faults"]} <= {"join", "leave"}


def scenario_name(scenario: str) -> str:
    return next(name for name, text in TURNS.items() if text == scenario)


@pytest.mark.slow
def test_invalid_joins_and_leaves_are_refused(tmp_path: Path) -> None:
    def refused(scenario: str, *more: str) -> str:
        with pytest.raises(ConfigError) as error:
            compose(words(tmp_path / "run", f"[{scenario}]", *more))
        return str(error.value)

    join = "{{at_s: 1, join: {{party: {}, workers: {}}}}}"
    assert "must be 1 to 2" in refused(join.format("west", 3))
    assert "there is no such party" in refused(join.format("wset", 1))
    assert "supplies the initial values" in refused(join.format("east", 2))
    twice = f"{join.format('west', 1)}, {join.format('west', 2)}"
    assert "only 1 more can join" in refused(twice)
    stop = "faults.on_loss=stop"
    assert "needs faults.on_loss=continue" in refused("{at_s: 1, leave: west/worker1}", stop)
    assert "there is no such node" in refused("{at_s: 1, leave: west/server}")
