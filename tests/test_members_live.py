"""Live runs that continue without killed processes (``faults.on_loss=continue``)."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import yaml

import geomx
from geomx.cli import launch, simulate
from geomx.errors import GeomxError, NodeLost
from geomx.machines.scripts import composed_for_script
from geomx.results.files import read_table
from tests.laws import short_form
from tests.test_forks import gone
from tests.test_members import NETWORK, WORKERS, participants, replay, run, words
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
def test_live_parameters_equal_a_replay_of_the_participation(tmp_path: Path, scenario: str) -> None:
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


def test_a_run_does_not_wait_for_a_lost_process_that_still_exists(tmp_path: Path) -> None:
    """It is paused until long after the end of the run, and hears neither of its loss nor of it."""
    words = ["mode=live", "faults.suspect_s=0.5", "iterations=30"]
    results = run(tmp_path / "run", "[{at_s: 0.2, pause: south/worker0, for_s: 100}]", *words)
    assert results.summary["wall_seconds"] < 100
    (_, fault) = results.summary["faults"]
    assert (fault["what"], fault["node"]) == ("lost", "south/worker0")


def test_a_run_ends_when_those_that_may_join_have_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEOMX_TOKEN", "a long random secret: 0123456789")
    network = tmp_path / "one_party.yaml"
    links = {"uplink_mbps": 1000, "downlink_mbps": 1000}
    parties = {"east": {"workers": 2, **links}}
    central = {"name": "hub", **links}
    network.write_text(str({"central": central, "parties": parties, "delay_ms": 5}))
    words = [*LIVE, f"network={network}", "faults.absent=[east/worker1]", "iterations=400"]
    with pytest.raises(NodeLost, match="node east/server was lost: killed by SIGKILL"):
        run(tmp_path / "run", "[{at_s: 0.2, kill: east/server}]", *words)


def test_participation_equals_the_simulations(tmp_path: Path) -> None:
    slow = ["workload.forward_ms=400", "workload.backward_ms=20", "iterations=6"]
    scenario = "[{at_s: 1.1, kill: west/worker1}, {at_s: 2.0, kill: south/worker0}]"
    tables = []
    for mode in ("sim", "live"):
        results = run(tmp_path / mode, scenario, f"mode={mode}", *slow)
        rows = read_table(tmp_path / mode / "participation.csv")
        tables.append({tuple(row[name] for name in list(row)[1:]) for row in rows})
        assert "aborted" not in results.summary
    assert tables[0] == tables[1]
    assert tables[0]


@pytest.mark.needs("esync")
@pytest.mark.parametrize("scope", ["global", "party"])
def test_planned_steps_stay_few_after_a_party_is_back(tmp_path: Path, scope: str) -> None:
    """Members that are back must be in step with the others: one that is a round behind would be
    taken for a slow one, and the others would be planned ever more steps."""
    more = ["+sync=esync", f"sync.scope={scope}", "sync.timeout_s=60", "iterations=60"]
    scenario = "[{at_s: 0.5, kill: west/server, restart_s: 0.3}]"
    seconds = []
    for mode in ("sim", "live"):
        results = run(tmp_path / mode, scenario, f"mode={mode}", *more, "faults.restarts=0")
        seconds.append(results.summary["seconds"])
        rows = [row for row in results.iterations if row["worker"] == "west/worker0"]
        assert rows[-1]["start_s"] > 2  # is back, and trains to the end
    calm = run(tmp_path / "calm", "[]", *more).summary["seconds"]
    assert seconds[0] < 2 * calm
    assert seconds[1] == pytest.approx(seconds[0], rel=0.25)


def test_a_killed_worker_is_restarted_up_to_the_limit(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with killer(folder, ["west/worker1"] * 2, 1.2) as killed:
        results = run(folder, "[]", *LIVE, "iterations=100", "faults.restarts=1")
    assert killed
    faults = [row for row in results.summary["faults"] if row["node"] == "west/worker1"]
    assert faults[0]["what"] == "lost"
    assert faults[0]["recovered_s"] is not None
    assert participants(folder)


def test_a_run_without_workers_ends(tmp_path: Path) -> None:
    kills = ", ".join(f"{{at_s: 0.3, kill: {worker}}}" for worker in WORKERS)
    with pytest.raises(NodeLost, match="killed by SIGKILL"):
        run(tmp_path / "run", f"[{kills}]", *LIVE)


def test_a_worker_paused_for_too_long_is_replaced(tmp_path: Path) -> None:
    scenario = "[{at_s: 0.4, pause: west/worker1, for_s: 2}]"
    results = run(tmp_path / "run", scenario, "mode=live", "faults.suspect_s=0.5", "iterations=120")
    (lost,) = [row for row in results.summary["faults"] if row["what"] == "lost"]
    assert lost["node"] == "west/worker1"
    assert lost["recovered_s"] is not None


# ---- scripts ----

SCRIPT = """
import os, pathlib, sys, time
import numpy as np
from geomx import kv

folder, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2])
store = kv.create("dist_sync")
weights = np.zeros(3, np.float32)
store.init("weights", weights)
if store.is_master_worker:
    store.set_optimizer("sgd", learning_rate=1.0)
store.pull("weights", out=weights)
with (folder / f"{store.global_rank}.began").open("a") as began:
    began.write(f"{os.getpid()} {store.rounds} {weights[0]:.6f}\\n")
for _ in range(store.rounds, rounds):
    time.sleep(0.02)
    store.push("weights", -np.ones(3, np.float32))
    store.pull("weights", out=weights)
np.save(folder / f"{store.global_rank}.npy", weights)
"""


@pytest.mark.parametrize("rank", [0, 3])
def test_a_script_continues_without_a_worker_and_after_its_return(
    tmp_path: Path, rank: int
) -> None:
    script, rounds = tmp_path / "script.py", 150
    script.write_text(SCRIPT)
    (tmp_path / "network.yaml").write_text(str(NETWORK))

    def began() -> list[str]:
        file = tmp_path / f"{rank}.began"
        return file.read_text().splitlines() if file.exists() else []

    def kill() -> None:
        while not began():
            time.sleep(0.02)
        time.sleep(0.5)
        os.kill(int(began()[0].split()[0]), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    words = [f"network={tmp_path}/network.yaml", f"hydra.run.dir={tmp_path}/run"]
    launch.main([*words, "--", sys.executable, str(script), str(tmp_path), str(rounds)])
    thread.join()
    _, again = began()
    at = int(again.split()[1])
    assert 0 < at < rounds
    # Sums without it are scaled up, so that every round changes the weights equally.
    assert float(again.split()[2]) == pytest.approx(5 * at)
    for each in range(len(WORKERS)):
        assert np.allclose(np.load(tmp_path / f"{each}.npy"), 5 * rounds)


def test_jobs_of_scripts_continue_by_default_if_possible(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    experiment, _ = composed_for_script(["+accel=[tsengine]", f"hydra.run.dir={tmp_path}/run"])
    assert experiment.faults.on_loss == "stop"
    assert "warning: faults.on_loss=stop, since continue is not possible" in capfd.readouterr().err
    experiment, _ = composed_for_script(["faults.on_loss=wait", f"hydra.run.dir={tmp_path}/other"])
    assert experiment.faults.on_loss == "wait"
    experiment, _ = composed_for_script([f"hydra.run.dir={tmp_path}/third"])
    assert (experiment.faults.on_loss, experiment.faults.durable) == ("continue", "log")
    experiment, _ = composed_for_script(["faults.durable=none", f"hydra.run.dir={tmp_path}/fourth"])
    assert (experiment.faults.on_loss, experiment.faults.durable) == ("continue", "none")


LEFT_BEHIND = """
import os, signal, subprocess, sys
from pathlib import Path
import numpy as np
import geomx.kv
store = geomx.kv.create("dist_sync")
store.init("weights", np.zeros(3, np.float32))
if store.global_rank == 0 and not store.member.late:
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    Path(sys.argv[1]).write_text(str(child.pid))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_of_a_script_that_was_restarted(tmp_path: Path) -> None:
    script, pid = tmp_path / "script.py", tmp_path / "pid"
    script.write_text(LEFT_BEHIND)
    (tmp_path / "network.yaml").write_text(yaml.safe_dump(short_form(1)))
    words = [f"network={tmp_path / 'network.yaml'}", f"hydra.run.dir={tmp_path / 'run'}"]
    launch.main([*words, "--", sys.executable, str(script), str(pid)])
    assert gone(int(pid.read_text()))


@pytest.mark.parametrize("mode", ["sim", "live"])
def test_only_the_first_worker_gives_initial_values(mode: str, tmp_path: Path) -> None:
    """A run ends if it is lost before that, and waits for it if it comes back."""
    slow = {"mbps": 0.01, "delay_ms": 0.05}  # 2 KB take almost two seconds
    (tmp_path / "slow.yaml").write_text(yaml.safe_dump(short_form(1, 1, lan=slow)))
    given = [f"mode={mode}", f"network={tmp_path / 'slow.yaml'}", "workload=tiny", "iterations=1"]
    given += ["faults.on_loss=continue", "runtime.failure_timeout_s=1"]
    kill = "at_s: 0, kill: party0/worker0"
    lost = r"party0/worker0 was lost before it gave the initial value of hidden.weight, without"
    with pytest.raises(GeomxError, match=lost):
        geomx.run([*given, f"scenario=[{{{kill}}}]", f"hydra.run.dir={tmp_path / 'lost'}"])
    if mode == "live":  # where the return takes long over this LAN
        return
    back = f"scenario=[{{{kill}, restart_s: 0.1}}]"
    results = geomx.run([*given, back, f"hydra.run.dir={tmp_path / 'back'}"])
    assert {row["worker"] for row in results.iterations} == {"party0/worker0", "party1/worker0"}


LEAVES = """
import numpy as np
import geomx.kv
store = geomx.kv.create("dist_sync")
if store.global_rank > 0:
    store.init("w", np.zeros(3, np.float32))
"""


@pytest.mark.parametrize("way", [launch, simulate])
def test_a_first_script_that_leaves_before_it_gave_initial_values_ends_the_run(
    way: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(LEAVES)
    (tmp_path / "network.yaml").write_text(yaml.safe_dump(short_form(1, 1)))
    words = [f"network={tmp_path / 'network.yaml'}", "runtime.failure_timeout_s=1"]
    words += [f"hydra.run.dir={tmp_path / 'run'}", "--", sys.executable, str(tmp_path / "train.py")]
    with pytest.raises(GeomxError, match="party0/worker0 left the run before it gave the initial"):
        way.main(words)
