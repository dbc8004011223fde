"""Live runs that go on without lost nodes: ``faults.on_loss=continue`` with processes that die."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geomx.errors import NodeLost
from geomx.results.files import read_table
from tests.test_members import WORKERS, participants, replay, run, words
from tests.test_restarts import killer

pytestmark = pytest.mark.slow(3)

LIVE = ["mode=live", "faults.suspect_s=2"]
SCENARIOS = {
    "a worker": "[{at_s: 0.5, kill: west/worker1}]",
    "a worker, back": "[{at_s: 0.5, kill: west/worker1, restart_s: 0.2}]",
    "the first, back": "[{at_s: 0.51, kill: east/worker0, restart_s: 0.2}]",
    "a party's only worker, back": "[{at_s: 0.5, kill: south/worker0, restart_s: 0.2}]",
    "all of a party": "[{at_s: 0.5, kill: west/worker0}, {at_s: 0.7, kill: west/worker1}]",
    "a server": "[{at_s: 0.5, kill: west/server}]",
    "a server, back": "[{at_s: 0.5, kill: west/server, restart_s: 0.2}]",
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_parameters_are_those_of_a_replay_of_who_took_part(tmp_path: Path, scenario: str) -> None:
    more = [*LIVE, "iterations=60"]
    results = run(tmp_path / "run", scenario, *more)
    given = words(tmp_path / "run", scenario, *more)
    replayed = replay(tmp_path / "run", *(word for word in given if "hydra" not in word))
    for name, value in results.parameters().items():
        assert np.array_equal(value, replayed[name]), name
    assert results.summary["participation"]["without"] > 0
    assert results.summary["participation"]["with_everybody"] > 0
    fault = results.summary["faults"][0]
    assert 0 <= fault["noticed_s"] < 1
    if "restart_s" in scenario:
        assert fault["recovered_s"] > 0.2
        rows = [row for row in results.iterations if row["worker"] == fault["node"]]
        assert "server" in fault["node"] or rows[-1]["iteration"] == 59


def test_who_took_part_is_as_simulated(tmp_path: Path) -> None:
    slow = ["workload.forward_ms=400", "workload.backward_ms=20", "iterations=6"]
    scenario = "[{at_s: 0.9, kill: west/worker1}, {at_s: 1.8, kill: south/worker0}]"
    tables = []
    for mode in ("sim", "live"):
        results = run(tmp_path / mode, scenario, f"mode={mode}", *slow)
        rows = read_table(tmp_path / mode / "participation.csv")
        tables.append({tuple(row[name] for name in list(row)[1:]) for row in rows})
        assert "aborted" not in results.summary
    assert tables[0] == tables[1]
    assert tables[0]


def test_a_killed_worker_is_restarted_until_its_restarts_are_used_up(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with killer(folder, ["west/worker1"] * 2, 1.2) as killed:
        results = run(folder, "[]", *LIVE, "iterations=100", "faults.restarts=1")
    assert killed
    faults = [row for row in results.summary["faults"] if row["node"] == "west/worker1"]
    assert faults[0]["what"] == "lost"
    assert faults[0]["recovered_s"] is not None
    assert participants(folder)


def test_without_any_worker_a_run_ends(tmp_path: Path) -> None:
    kills = ", ".join(f"{{at_s: 0.3, kill: {worker}}}" for worker in WORKERS)
    with pytest.raises(NodeLost, match="killed by SIGKILL"):
        run(tmp_path / "run", f"[{kills}]", *LIVE)


def test_a_paused_worker_comes_back_as_another_process(tmp_path: Path) -> None:
    scenario = "[{at_s: 0.4, pause: west/worker1, for_s: 2}]"
    results = run(tmp_path / "run", scenario, "mode=live", "faults.suspect_s=0.5", "iterations=120")
    (lost,) = [row for row in results.summary["faults"] if row["what"] == "lost"]
    assert lost["node"] == "west/worker1"
    assert lost["recovered_s"] is not None
