"""Events that happen at an iteration (``at_iteration``): which ones begin, and both modes alike."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomx import _core
from geomx.cluster import Cluster
from geomx.config.compose import compose
from geomx.errors import ConfigError
from geomx.experiment.unreached import ScenarioWarning
from geomx.live.disturbances import Disturbances
from geomx.live.launcher import run_script
from geomx.network.files import read_network
from geomx.results.results import Results
from geomx.scenario import Iterations, Scenario, read_scenario
from tests.test_scenario import NETWORK, SMALL, run
from tests.test_simulate import composed, simulated

CONTINUES = "faults.on_loss=continue"


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return read_network(NETWORK)


def scenario(cluster: Cluster, *events: dict[str, Any], seed: int = 0) -> Scenario:
    return Scenario(read_scenario(list(events), cluster), cluster, seed)


def ended(results: Results, worker: str, iteration: int) -> float:
    """Return when a worker ended an iteration, in seconds."""
    rows = [row for row in results.iterations if row["worker"] == worker]
    return next(row["end_s"] for row in rows if row["iteration"] == iteration)


def last_iteration(results: Results, worker: str) -> int:
    return max(row["iteration"] for row in results.iterations if row["worker"] == worker)


# ---- which events begin ----

KINDS: dict[str, dict[str, Any]] = {
    "own": {"kill": "east/worker1"},
    "drawn": {"leave": "any worker"},
    "first": {"kill": "east/server"},
    "link": {"reset": ["east", "hub"]},
}


@given(
    st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(1, 12)), max_size=5),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=30),
    st.integers(0, 9),
)
def test_each_event_begins_once_with_the_first_step_that_it_is_about(
    events: list[tuple[str, int]], moves: list[tuple[int, int]], seed: int
) -> None:
    """Workers begin steps in any order, and may leave some out after the first."""
    cluster = read_network(NETWORK)
    chosen = scenario(cluster, *(KINDS[k] | {"at_iteration": at} for k, at in events), seed=seed)
    iterations, steps = Iterations(chosen), [0] * 4
    begun: set[int] = set()
    for worker, further in moves:
        steps[worker] += further if steps[worker] else 1
        node = cluster.workers[worker].id
        now = iterations.begins(node, steps[worker])
        assert begun.isdisjoint(now)
        begun.update(now)
        expected = set()
        for number, (kind, at) in enumerate(events):
            whose = chosen.worker_of(number)
            assert (whose is None) == (kind in ("first", "link"))
            ids = [each.id for each in cluster.workers]
            counted = max(steps) if whose is None else steps[ids.index(whose)]
            if counted >= at:
                expected.add(number)
        assert begun == expected
        assert iterations.waiting == set(range(len(events))) - begun


def test_what_another_process_has_begun_is_past(cluster: Cluster) -> None:
    events = scenario(cluster, *({"kill": "east/worker0", "at_iteration": at} for at in (3, 5, 9)))
    worker = cluster.workers[0].id
    late = Iterations(events)
    assert late.begins(worker, 4) == []  # it joined at the fourth step
    assert late.begins(worker, 5) == [1]
    again = Iterations(events)
    again.renew(worker)
    assert again.begins(worker, 3) == []  # the step at which its predecessor was killed
    assert [again.begins(worker, step) for step in (4, 5)] == [[], [1]]
    repeating = Iterations(events)  # from the step after the last synchronisation on
    repeating.renew(worker, begun=[0, 1])
    assert [repeating.begins(worker, step) for step in (2, 3, 5, 9)] == [[], [], [], [2]]


def test_an_event_at_an_iteration_has_no_time_of_its_own(cluster: Cluster) -> None:
    events = scenario(cluster, {"cut": ["east", "hub"], "at_iteration": 7, "for_s": 2})
    assert list(events.acts()) == []
    act = events.act(0, 500)
    end = events.end(act)
    assert end is not None
    assert (end.what, end.at_ns, end.peers_of(min(act.one))) == ("heal", 2_000_000_500, act.other)
    assert events.row(act) == {
        "time_s": 5e-7,
        "what": "cut",
        "link": ["east", "hub"],
        "for_s": 2.0,
        "at_iteration": 7,
    }


# ---- what is refused ----


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (
            {"kill": "east/server", "at_iteration": 0},
            r"\.at_iteration=0: must be between 1 and 4294967295, or null",
        ),
        ({"kill": "east/server", "at_s": 1, "at_iteration": 1}, r"must have a time: at_s or every"),
        (
            {"join": {"party": "east", "workers": 1}, "every_s": 1},
            r"\.join=.*: needs at_s or at_iteration, as it happens once",
        ),
    ],
)
def test_invalid_times_are_refused(cluster: Cluster, event: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_scenario([event], cluster)


def test_the_workers_of_a_party_join_at_times_or_at_iterations(cluster: Cluster) -> None:
    join = {"join": {"party": "west", "workers": 1}}
    with pytest.raises(ConfigError, match=r"scenario\[1\]\.join=.* all workers of a party must"):
        scenario(cluster, join | {"at_s": 1}, join | {"at_iteration": 5}).check()
    both = scenario(cluster, join | {"at_iteration": 9}, join | {"at_iteration": 5})
    assert both.late[cluster.parties[1].server.id] == 1  # the party begins with the earlier one


def test_live_networks_have_no_such_events(tmp_path: Path) -> None:
    network = tmp_path / "network.yaml"
    network.write_text(str(NETWORK))
    slower = "scenario=[{set: [east, hub], mbps: 9, at_iteration: 3}]"
    with pytest.raises(ConfigError, match=r"at_iteration=3: live runs change the network at_s"):
        compose([f"network={network}", "mode=live", slower])


# ---- both modes ----

BOTH = pytest.mark.parametrize("mode", ["sim", pytest.param("live", marks=pytest.mark.slow)])


@BOTH
def test_a_worker_leaves_after_its_own_iteration(tmp_path: Path, mode: str) -> None:
    events = "[{leave: west/worker1, at_iteration: 6}]"
    results = run(tmp_path / mode, mode, events, *SMALL, CONTINUES)
    assert last_iteration(results, "west/worker1") == 6
    assert last_iteration(results, "west/worker0") == 19
    (row,) = (row for row in results.summary["faults"] if row["what"] == "leave")
    assert row["at_iteration"] == 6
    assert row["time_s"] == pytest.approx(ended(results, "west/worker1", 5), abs=0.05)


@BOTH
def test_links_servers_and_slow_workers_at_iterations(tmp_path: Path, mode: str) -> None:
    """What happens to no worker alone happens as the first worker begins the iteration."""
    events = (
        "[{reset: [east, hub], at_iteration: 2}, {cut: [west, hub], at_iteration: 5, for_s: 1}, "
        "{pause: east/server, at_iteration: 9, for_s: 0.8}, "
        "{slow: east/worker0, times: 5, at_iteration: 15, for_s: 0.1}]"
    )
    results = run(tmp_path / mode, mode, events, *SMALL)
    rows = {row["what"]: row for row in results.summary["faults"]}
    assert list(rows) == ["reset", "cut", "pause", "slow"]
    workers = sorted({row["worker"] for row in results.iterations})
    for what, at in (("reset", 2), ("cut", 5), ("pause", 9)):
        first = min(ended(results, worker, at - 1) for worker in workers)
        assert rows[what]["time_s"] == pytest.approx(first, abs=0.05), what
        assert rows[what]["at_iteration"] == at

    def took(worker: str, iteration: int) -> float:
        return ended(results, worker, iteration) - ended(results, worker, iteration - 1)

    assert max(took("west/worker0", step) for step in (5, 6)) > 0.9  # the cut
    assert max(took("east/worker0", step) for step in (9, 10)) > 0.7  # the pause
    computed = {
        row["iteration"]: row["compute_s"]
        for row in results.iterations
        if row["worker"] == "east/worker0"
    }
    assert computed[15] > 4 * computed[14]
    assert computed[14] == pytest.approx(computed[17])


@BOTH
def test_killed_and_joining_nodes_at_iterations(tmp_path: Path, mode: str) -> None:
    events = (
        "[{join: {party: west, workers: 1}, at_iteration: 4}, "
        "{kill: east/worker1, at_iteration: 8, restart_s: 0.2}]"
    )
    results = run(tmp_path / mode, mode, events, *SMALL, CONTINUES, "iterations=200")
    rows = [row for row in results.summary["faults"] if "at_iteration" in row]
    assert [row["what"] for row in rows] == ["join", "kill"]
    first = min(ended(results, worker, 3) for worker in ("east/worker0", "west/worker0"))
    assert rows[0]["time_s"] == pytest.approx(first, abs=0.05)
    assert rows[1]["time_s"] == pytest.approx(ended(results, "east/worker1", 7), abs=0.05)
    for worker in ("west/worker1", "east/worker1"):  # both take part in the end
        assert last_iteration(results, worker) == 199
    steps = [row["iteration"] for row in results.iterations if row["worker"] == "east/worker1"]
    assert steps[:8] == list(range(8))
    assert steps[8] > 8  # the others went on without it


@pytest.mark.needs("hfa")
@BOTH
def test_a_worker_that_repeats_its_steps_is_killed_once(tmp_path: Path, mode: str) -> None:
    """The only worker goes on at its last synchronisation, before the step of the event.

    It has computed a step long before the end that its pace gives it, and is killed at the end.
    """
    network = tmp_path / "alone.yaml"
    links = {"uplink_mbps": 1000, "downlink_mbps": 1000}
    parties = {"east": {"workers": 1, **links}}
    content = {"central": {"name": "hub", **links}, "parties": parties, "delay_ms": 1}
    network.write_text(str(content))
    words = [f"network={network}", "+sync=hfa", "sync.k1=5", "sync.k2=1", CONTINUES]
    words += ["workload.backward_ms=60"]
    events = "[{kill: east/worker0, at_iteration: 7, restart_s: 0.1}]"
    results = run(tmp_path / mode, mode, events, *SMALL, *words)
    (row,) = results.summary["faults"]
    assert (row["what"], row["at_iteration"]) == ("kill", 7)
    assert row["recovered_s"] > 0.1
    assert last_iteration(results, "east/worker0") == 19


@BOTH
def test_a_server_resumes_from_its_log_after_a_kill_at_an_iteration(
    tmp_path: Path, mode: str
) -> None:
    events = "[{kill: hub/global_server0, at_iteration: 5, restart_s: 0.2}]"
    calm = run(tmp_path / "calm", mode, "[]", *SMALL)
    killed = run(tmp_path / mode, mode, events, *SMALL, "faults.durable=log")
    (row,) = killed.summary["faults"]
    assert row["recovered_s"] > 0.15
    for name, value in calm.parameters().items():
        assert (value == killed.parameters()[name]).all()


@pytest.mark.parametrize("begun", [frozenset(), frozenset({0})])
def test_a_process_is_not_killed_by_what_has_killed_its_predecessor(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, begun: frozenset[int]
) -> None:
    """It is told again of an iteration that the other had no time to acknowledge."""
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda process, signal: killed.append(process))
    heard = [(5, _core.clock_s())]
    schedule = scenario(cluster, {"kill": "hub/global_server0", "at_iteration": 5})
    member = SimpleNamespace(
        loop=SimpleNamespace(await_iteration=lambda n: heard[n] if n < len(heard) else None),
        node=next(node for node in cluster.nodes if node.name == "hub/global_server0"),
        spec=SimpleNamespace(event_schedule=schedule),
        started_s=_core.clock_s() - 1,
        late=False,
        resumed=bool(begun),
        act_notes=SimpleNamespace(begun=begun, killed=lambda event, restart_s: None),
    )
    disturbances = Disturbances(cast(Any, member), peers=())
    disturbances.start()
    disturbances.end()
    assert len(killed) == (0 if begun else 1)


def test_an_iteration_that_no_worker_begins_is_told_of(tmp_path: Path) -> None:
    events = "[{reset: [east, hub], at_iteration: 20}, {pause: east/server, at_s: 99, for_s: 1}]"
    with pytest.warns(ScenarioWarning, match=r"\[0\] \(at_iteration=20\), .*ended before them"):
        results = run(tmp_path / "sim", "sim", events, *SMALL)
    assert "faults" not in results.summary or results.summary["faults"] == []


def test_repeated_steps_are_not_skipped_over_an_event(tmp_path: Path) -> None:
    """A run of sizes alone repeats itself, and is cut short where nothing is to come."""
    words = ["workload=synthetic", "workload.elements=[1000]", "iterations=300"]
    words += ["workload.forward_ms=10", "workload.backward_ms=20"]
    calm = run(tmp_path / "calm", "sim", "[]", *words)
    cut = "[{cut: [west, hub], at_iteration: 250, for_s: 3}]"
    results = run(tmp_path / "cut", "sim", cut, *words)
    assert results.summary["seconds"] > calm.summary["seconds"] + 2
    (row,) = results.summary["faults"]
    assert row["time_s"] == pytest.approx(ended(calm, "east/worker0", 249), rel=1e-3)


@pytest.mark.needs("hfa")
@BOTH
def test_a_worker_that_leaves_does_not_change_when_its_party_synchronises(
    tmp_path: Path, mode: str
) -> None:
    words = [*SMALL, CONTINUES, "+sync=hfa", "sync.k1=1", "sync.k2=5"]
    events = ["[]", "[{leave: west/worker1, at_iteration: 12}]"]
    undisturbed, left = (
        run(tmp_path / f"{mode}{number}", mode, each, *words) for number, each in enumerate(events)
    )
    assert last_iteration(left, "west/worker1") == 12
    assert last_iteration(left, "west/worker0") == 19
    for way in ("wan_push", "wan_pull"):
        assert left.summary["bytes"][way] == undisturbed.summary["bytes"][way] > 0


# ---- training scripts ----

SCRIPT = """
import numpy as np, geomx.kv
store = geomx.kv.create("dist_sync")
store.init("a", np.zeros(2000))
for step in range(8):
    store.push("a", np.ones(2000))
    store.pull("a")
"""


@BOTH
def test_events_begin_with_the_steps_of_a_script(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live, a step of this script is recognised by its first push."""
    monkeypatch.chdir(tmp_path)
    words = (
        "scenario=[{pause: here/worker0, at_iteration: 2, for_s: 0.8}, "
        "{cut: [there, hub], at_iteration: 5, for_s: 1}, {reset: [here, hub], at_iteration: 8}]",
    )
    with pytest.warns(ScenarioWarning, match=r"scenario\[2\] \(at_iteration=8\)"):
        if mode == "sim":
            results = simulated(tmp_path, SCRIPT, *words)
        else:
            (tmp_path / "train.py").write_text(SCRIPT)
            results = run_script(*composed(tmp_path, words, mode))
    paused, cut = results.summary["faults"]
    assert (paused["what"], paused["at_iteration"]) == ("pause", 2)
    before, after = (ended(results, "here/worker0", step) for step in (1, 2))
    assert before <= paused["time_s"] <= after - 0.8
    assert (cut["what"], cut["at_iteration"]) == ("cut", 5)
    workers = ("here/worker0", "there/worker0")
    before, after = (min(ended(results, each, step) for each in workers) for step in (4, 5))
    assert before <= cut["time_s"] <= after
    assert max(ended(results, each, 6) for each in workers) > cut["time_s"] + 1
