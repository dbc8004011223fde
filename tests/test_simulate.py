"""`geomx simulate` runs the script of a launch as every worker, in virtual time."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx.config.compose import compose
from geomx.errors import ConfigError, GeomxError, NodeLost
from geomx.explaining import explain
from geomx.live.launcher import run_script
from geomx.results.results import Results
from geomx.runner import simulate_command
from geomx.sim.computing import Computing
from geomx.sim.script_members import leaving_allowed
from geomx.sim.script_worker import ScriptWorker
from geomx.virtual import processes
from tests.test_tracking import events as scalars

NETWORK = """
name: pair
central: {name: hub, uplink_mbps: 100, downlink_mbps: 100}
parties:
  here: {workers: 1, uplink_mbps: 10, downlink_mbps: 20}
  there: {workers: 1, uplink_mbps: 20, downlink_mbps: 10, speed: 0.5}
delay_ms: {here: {hub: 10, there: 35}, there: {hub: 30}}
"""

TRAIN = """
import numpy as np, geomx.kv
store = geomx.kv.create("dist_sync")
rank = store.global_rank
store.init(["a", "b"], [np.zeros(2000), np.ones((3, 5))])
store.set_optimizer("sgd", learning_rate=0.1, momentum=0.9)
generator = np.random.default_rng(rank)
for step in range(3):
    gradients = [generator.normal(size=2000), generator.normal(size=(3, 5))]
    store.push(["a", "b"], gradients)
    values = store.pull(["a", "b"])
    geomx.report(accuracy=step / 10, loss=1 / (step + 1))
store.barrier()
if rank == 0:
    np.savez("values.npz", a=values[0], b=values[1])
print("done")
"""


def composed(folder: Path, words: tuple[str, ...], where: str) -> tuple[Any, Path, list[str]]:
    (folder / "pair.yaml").write_text(NETWORK)
    experiment, directory = compose(
        [f"network={folder / 'pair.yaml'}", f"hydra.run.dir={folder / where}", *words]
    )
    return experiment, directory, [sys.executable, str(folder / "train.py")]


def simulated(
    folder: Path, script: str, *words: str, compute: str = "constant:0.05", where: str = "sim"
) -> Results:
    """Simulate a script on NETWORK."""
    (folder / "train.py").write_text(script)
    return simulate_command(*composed(folder, words, where), compute)


def test_computing_is_measured_or_constant() -> None:
    assert Computing.read("measured").between_calls(3000, 0.5) == 6000
    constant = Computing.read("constant:0.25")
    assert (constant.between_calls(3000, 0.5), constant.of_step(0.5)) == (0, 500_000_000)
    assert Computing.read(str(constant)) == constant
    for wrong in ("constant", "constant:", "constant:-1", "constant:nan", "fast", "measured:1"):
        with pytest.raises(ConfigError, match=r"--compute=.*constant:SECONDS"):
            Computing.read(wrong)


@pytest.mark.slow
def test_a_script_computes_and_sends_the_same_as_when_it_is_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first = simulated(tmp_path, TRAIN)
    assert capfd.readouterr().out == "done\n"
    here = dict(np.load("values.npz"))
    second = run_script(*composed(tmp_path, (), "live"))
    live = dict(np.load("values.npz"))
    for name in ("a", "b"):
        np.testing.assert_array_equal(here[name], live[name])
        for results in (first, second):
            np.testing.assert_array_equal(results.parameters()[name], live[name])
    for what in ("iterations", "rounds", "workload"):
        assert first.summary[what] == second.summary[what]
    assert _evaluated(first) == _evaluated(second)
    assert _steps(first) == _steps(second)
    assert _sent(first) == _sent(second)
    for row in second.iterations:
        took_s = row["end_s"] - row["start_s"]
        assert row["compute_s"] + row["wait_s"] == pytest.approx(took_s, abs=1e-6)
        assert row["wait_s"] > 0.05  # both workers wait for the other, which is 30 ms away


def _evaluated(results: Results) -> list[tuple[int, float, float]]:
    return [(row["iteration"], row["accuracy"], row["loss"]) for row in results.evaluations]


def _steps(results: Results) -> list[tuple[str, int]]:
    return [(row["worker"], row["iteration"]) for row in results.iterations]


def _sent(results: Results) -> dict[tuple[str, str], tuple[int, int]]:
    """Return bytes and messages by link, of those that carried any."""
    return {
        (row["source"], row["target"]): (row["bytes"], row["messages"])
        for row in results.links
        if row["bytes"]
    }


UNAWAITED = """
import numpy as np, geomx.kv
store = geomx.kv.create("dist_sync")
store.init("a", np.zeros(2000))
store.init("frozen", np.zeros(3))  # has no round
for step in range(2):
    store.push("a", np.ones(2000))
"""


@pytest.mark.slow
def test_a_simulated_worker_leaves_when_its_last_pushes_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a live one does; otherwise the bytes of the last round would be missing."""
    monkeypatch.chdir(tmp_path)
    first = simulated(tmp_path, UNAWAITED)
    second = run_script(*composed(tmp_path, (), "live"))
    assert first.summary["rounds"] == second.summary["rounds"] == 2
    assert _sent(first) == _sent(second)


@pytest.mark.slow
def test_the_guides_numpy_script_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    guide = Path(__file__).parents[1] / "docs" / "moving.md"
    (code,) = re.findall(r"### NumPy.*?```python\n(.*?)```", guide.read_text("utf-8"), re.DOTALL)
    results = simulated(tmp_path, code)
    assert capfd.readouterr().out == "error 0.000\n"
    assert results.summary["rounds"] == 20


@pytest.mark.slow
def test_equal_runs_have_equal_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = simulated(tmp_path, TRAIN)
    files = contents(tmp_path / "sim")
    subprocess.run(["rm", "-r", tmp_path / "sim"], check=True)
    simulated(tmp_path, TRAIN)
    assert contents(tmp_path / "sim") == files
    assert [(row["worker"], row["iteration"], row["compute_s"]) for row in results.iterations] == [
        (worker, step, seconds)
        for step in range(3)
        for worker, seconds in (("here/worker0", 0.05), ("there/worker0", 0.1))
    ]
    assert results.summary["iterations"] == results.summary["rounds"] == 3
    assert results.summary["workload"]["elements"] == 2015


@pytest.mark.slow
def test_a_simulated_script_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = TRAIN.replace("range(3)", "range(8)").replace("2000", "100000")
    results = simulated(tmp_path, script)
    content = explain(results.directory).content
    (told,) = content["runs"]
    assert "waiting for the pull of there, limited by its downlink (10 Mbit/s)" in told["said"]
    shares = {part["what"]: part["share"] for part in reversed(told["parts"])}  # the largest
    assert shares["value"] + shares["push"] + shares["compute"] > 0.99 and "unknown" not in shares
    # The script's tensors and times predict the run as it was, and so what changes do.
    what_if = content["what_if"]
    rows = [row for row in results.iterations if 0 < row["iteration"] < 7]
    seconds = sum(row["end_s"] - row["start_s"] for row in rows) / len(rows)
    assert what_if["script"] and not what_if["reason"]
    assert what_if["seconds_per_iteration"] == pytest.approx(seconds, rel=0.05)
    wider = next(
        one for one in what_if["changes"] if one["name"] == "the downlink of there doubled"
    )
    (tmp_path / "pair.yaml").write_text(NETWORK.replace("downlink_mbps: 10,", "downlink_mbps: 20,"))
    experiment, directory = compose(
        [f"network={tmp_path / 'pair.yaml'}", f"hydra.run.dir={tmp_path / 'wider'}"]
    )
    command = [sys.executable, str(tmp_path / "train.py")]
    after = simulate_command(experiment, directory, command, "constant:0.05")
    rows = [row for row in after.iterations if 0 < row["iteration"] < 7]
    seconds = sum(row["end_s"] - row["start_s"] for row in rows) / len(rows)
    assert wider["seconds_per_iteration"] == pytest.approx(seconds, rel=0.05)


@pytest.mark.slow
def test_trackers_follow_a_simulated_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboardX")
    monkeypatch.chdir(tmp_path)
    results = simulated(tmp_path, TRAIN, "+track=[tensorboard]")
    found = scalars(results.directory / "tensorboard")
    accuracies = [row["accuracy"] for row in results.evaluations]
    assert [value for *_, value in found["evaluation/accuracy"]] == pytest.approx(accuracies)
    assert [step for step, *_ in found["train/step_s"]] == [0, 1, 2]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a run without the real duration of the run."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and ".hydra" not in path.parts:
            text = path.read_bytes()
            text = re.sub(rb'"wall_seconds": [\d.e-]+', b"", text)
            text = re.sub(rb"wall_seconds</th><td class=\"num\">[\d.e-]+", b"", text)
            found[str(path.relative_to(folder))] = text
    return found


@pytest.mark.slow
def test_measured_computing_takes_time_and_waiting_takes_none(tmp_path: Path) -> None:
    script = """
import time, numpy as np, geomx.kv
store = geomx.kv.create()
store.init(0, np.zeros(10))
for step in range(2):
    end = time.process_time() + 0.03
    while time.process_time() < end:
        pass
    time.sleep(0.3)
    geomx.sleep(1000)
    store.push(0, np.ones(10))
    store.pull(0)
"""
    began = time.monotonic()
    results = simulated(tmp_path, script, compute="measured")
    assert time.monotonic() - began < 300
    for row in results.iterations:
        speed = 0.5 if row["party"] == "there" else 1.0
        assert 0.025 / speed < row["compute_s"] < 0.3 / speed, row
        assert row["wait_s"] > 1000
    assert results.summary["script"]["waited_s"] > 0.55


FAILURES = {
    "no more data": """
    if rank == 1:
        raise RuntimeError("no more data")
""",
    "OSError: no data:\n": """
    if rank == 1:
        raise OSError("no data:\\n- a\\n- b")
""",
    "RuntimeError: nothing there\n": """
    if rank == 1:  # as MXNet's operators say it
        raise RuntimeError("Traceback (most recent call last):\\n  File a.cc\\nnothing there")
""",
    "exit status 1: no more samples\n": """
    import sys, traceback
    if rank == 1:
        try:
            raise ValueError
        except ValueError:
            traceback.print_exc()
            sys.exit("no more samples")
""",
    "which it may not": """
    import os
    if rank == 1 and os.fork() == 0:
        try:
            store.push(0, np.ones(10))
        except geomx.GeomxError as error:
            assert "was forked from process" in str(error)
            os._exit(7)
    elif rank == 1 and os.waitstatus_to_exitcode(os.wait()[1]) == 7:
        raise RuntimeError("the child used the store, which it may not")
""",
    "killed by SIGKILL": """
    import os
    os.kill(os.getpid(), 9 * rank)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("reason", FAILURES)
def test_a_worker_that_ends_is_named_with_its_traceback(reason: str, tmp_path: Path) -> None:
    script = (
        """
import numpy as np, geomx, geomx.kv
store = geomx.kv.create()
rank = store.global_rank
store.init(0, np.zeros(10))
def go_on():
"""
        + FAILURES[reason]
        + """
go_on()
store.push(0, np.ones(10))
store.pull(0)
"""
    )
    with pytest.raises(NodeLost, match=f"node there/worker0 was lost: .*{reason}") as raised:
        simulated(tmp_path, script)
    notes = "\n".join(getattr(raised.value, "__notes__", ()))
    if reason == "no more data":
        assert notes.count("Traceback (most recent call last)") == 1
        assert 'train.py", line 11, in <module>' in notes and "in go_on" in notes


@pytest.mark.slow
def test_a_worker_that_takes_long_to_end_is_named_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As programs with large libraries do on a busy machine, after they have closed the store."""
    monkeypatch.setattr(processes, "LINGER_S", 0.2)
    script = """
import atexit, time
atexit.register(time.sleep, 3)
import geomx.kv
if geomx.kv.create().global_rank == 1:
    raise RuntimeError("no more data")
"""
    with pytest.raises(NodeLost, match=r"it closed its connection .*: no more data") as raised:
        simulated(tmp_path, script)
    (note,) = raised.value.__notes__
    assert "Traceback" in note and "in <module>" in note


@pytest.mark.slow
def test_a_command_that_ends_without_a_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        NodeLost,
        match=r"/worker0 was lost: its command, .*train.py, ended with .* "
        r"0 without joining the simulation: a script joins when it creates",
    ):
        simulated(tmp_path, "print('no store')")


@pytest.mark.slow
def test_workers_that_wait_for_each_other_are_named_with_their_calls(tmp_path: Path) -> None:
    script = """
import numpy as np, geomx.kv
store = geomx.kv.create()
store.init("w", np.zeros(10))
def meet():
    store.barrier()
if store.global_rank == 0:
    meet()
store.push("w", np.ones(10))
store.pull("w")
store.barrier()
"""
    with pytest.raises(GeomxError) as raised:
        simulated(tmp_path, script)
    said = str(raised.value)
    assert "the simulation came to a standstill at 0.1" in said
    assert "here/worker0 waits for all workers at barrier 1 since train.py:6 (meet)" in said
    assert "there/worker0 waits for round 1 of w since train.py:10 (<module>)" in said
    assert "hub/global_server0 waits for round 1 of w from here/server" in said


@pytest.mark.slow
@pytest.mark.needs("hfa")
def test_a_rhythm_tells_the_steps(tmp_path: Path) -> None:
    script = """
import numpy as np, geomx.kv
store = geomx.kv.create()
weights = np.zeros(10, np.float32)
store.init(0, weights)
for step in (rhythm := store.rhythm(8)):
    weights += store.global_rank
    if rhythm.due():
        store.push(0, weights * rhythm.scale)
        store.pull(0, out=weights)
        rhythm.exchanged()
"""
    results = simulated(tmp_path, script, "+sync=hfa", "sync.k1=2", "sync.k2=2")
    rows = [row for row in results.iterations if row["party"] == "here"]
    assert [row["iteration"] for row in rows] == list(range(8))
    assert {row["compute_s"] for row in rows} == {0.05}
    assert [row["wait_s"] > 0 for row in rows] == [False, True] * 4
    assert results.summary["rounds"] == 2
    (value,) = results.parameters().values()
    np.testing.assert_allclose(value, 4.0)


@pytest.mark.slow
def test_a_scenario_disturbs_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    usual = simulated(tmp_path, TRAIN, where="usual")
    at_s = usual.iterations[2]["start_s"] + 0.01  # while the first worker computes
    pause = f"{{at_s: {at_s}, pause: here/worker0, for_s: 2}}"
    slow = "{at_s: 0, slow: there/worker0, times: 3, for_s: 100}"
    resets = "{every_s: 0.3, reset: [there, hub]}"  # without end
    results = simulated(tmp_path, TRAIN, f"scenario=[{pause},{slow},{resets}]")
    np.testing.assert_array_equal(results.parameters()["a"], usual.parameters()["a"])
    rows = {(row["party"], row["iteration"]): row for row in results.iterations}
    assert rows["there", 1]["compute_s"] == pytest.approx(0.3)
    assert rows["here", 0]["compute_s"] == rows["here", 1]["compute_s"] == 0.05
    assert rows["here", 0]["wait_s"] > 2 or rows["here", 1]["wait_s"] > 2


WAITS = """
def world(world):
    assert world.round() == 0
    world.process(waits(world))

def waits(world):
    yield world.when(lambda: world.now_s > 0)
    yield world.env.timeout(world.seconds(AT_S) - world.env.now)
    assert world.nodes["here/worker0"].round("a") == 1 >= world.round("a")
    world.nodes["here/worker0"].pause(2)
    yield world.when(lambda: world.round() == 3)
"""


@pytest.mark.slow
def test_a_program_waits_in_a_simulated_script_and_pauses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a scenario does; a condition that holds does not stop the script."""
    monkeypatch.chdir(tmp_path)
    usual = simulated(tmp_path, TRAIN, where="usual")
    at_s = usual.iterations[2]["start_s"] + 0.01  # while the first worker computes
    (tmp_path / "w.py").write_text(WAITS.replace("AT_S", str(at_s)))
    listed = f"[{{at_s: {at_s}, pause: here/worker0, for_s: 2}}]"
    runs = [
        simulated(tmp_path, TRAIN, f"scenario={given}", where=where)
        for where, given in (("listed", listed), ("program", "w.py"))
    ]
    seconds = [results.summary["seconds"] for results in (usual, *runs)]
    assert seconds[1] == pytest.approx(seconds[0] + 2, abs=0.1)
    assert seconds[2] == pytest.approx(seconds[1], abs=1e-6)


def test_a_lost_node_ends_a_simulated_script(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"faults\.on_loss=continue: must be stop or wait"):
        simulated(tmp_path, "", "faults.on_loss=continue")


UNEVEN = """
import numpy as np, geomx.kv
store = geomx.kv.create("dist_sync")
store.init("w", np.zeros(10))
store.set_optimizer("sgd", learning_rate=0.1)
for step in range(3 + store.global_rank):
    geomx.sleep(0.1 + 0.4 * store.global_rank)  # so that the other leaves before the last round
    store.push("w", np.full(10, step + 1.0))
    store.pull("w")
print("done")
"""


@pytest.mark.slow
def test_a_worker_that_makes_fewer_steps_leaves_as_when_it_is_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    first = simulated(tmp_path, UNEVEN)
    capfd.readouterr()
    continues = ("faults.on_loss=continue",)  # the default of `geomx launch`
    second = run_script(*composed(tmp_path, continues, "live"))
    assert "here/worker0 has left after 3 steps, others train on" in capfd.readouterr().err
    assert _sent(first) == _sent(second)
    for results in (first, second):
        assert results.summary["iterations"] == 4
        assert results.summary["iterations_made"] == [3, 4]
        shown = map(str, results.table().columns[-1].cells)
        assert "3 to 4 iterations per worker" in shown
        assert results.summary["participation"]["without"] == 1
    np.testing.assert_array_equal(first.parameters()["w"], second.parameters()["w"])


def test_workers_may_leave_unless_the_options_say_that_a_loss_ends_the_run() -> None:
    usual, _ = compose(["workload=tiny"])
    assert leaving_allowed(usual)[0].faults.continues
    strict, _ = compose(["workload=tiny", "faults.on_loss=stop"])
    assert leaving_allowed(strict) == (strict, "faults.on_loss=stop")


@pytest.mark.slow
@pytest.mark.needs("tsengine")
def test_a_standstill_says_why_all_workers_must_make_equally_many_steps(tmp_path: Path) -> None:
    with pytest.raises(GeomxError) as raised:
        simulated(tmp_path, UNEVEN, "+accel=[tsengine]")
    assert (
        "here/worker0 waits for the other workers to leave after 3 steps (all must make as many, "
        "since accel tsengine needs them in every round)"
    ) in str(raised.value)


ROUNDS = """
import os, numpy as np, geomx.kv
store = geomx.kv.create("dist_sync")
rank = store.global_rank
values = {"a": np.zeros(40, np.float32), "b": np.ones((3, 5), np.float32)}
store.init(list(values), list(values.values()))
while rank and not os.path.exists("first-made-all"):
    geomx.sleep(0.05)
for step in (rhythm := store.rhythm(8)):
    geomx.sleep(0.4 * rank)  # in a live run as well, so that the same worker is late
    for value in values.values():
        value -= 0.1 * (value - rank - 1)
    rhythm.exchange(values)
if not rank:
    open("first-made-all", "w").close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["fedbuff", "diloco"])
@pytest.mark.needs("fedbuff", "diloco")
def test_rounds_that_close_early_are_those_of_a_launched_script(
    sync: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = ("sync.k=1",) if sync == "fedbuff" else ("sync.quorum=1", "sync.deadline_s=0")
    words = (f"+sync={sync}", "sync.h=2", *own)
    first = simulated(tmp_path, ROUNDS, *words)
    (tmp_path / "first-made-all").unlink()
    second = run_script(*composed(tmp_path, words, "live"))
    assert first.summary["participation"]["late"] > 0
    assert first.summary["participation"] == second.summary["participation"]
    made = [Counter(row["worker"] for row in run.iterations) for run in (first, second)]
    assert made[0] == made[1]
    assert min(made[0].values()) < max(made[0].values()) == 8  # a late one leaves out steps
    assert _sent(first) == _sent(second)
    for name, value in first.parameters().items():
        np.testing.assert_array_equal(value, second.parameters()[name])


REPORTS = """
import time, numpy as np, geomx.kv
store = geomx.kv.create()
weights = np.zeros(10, np.float32)
store.init(0, weights)
for step in (rhythm := store.rhythm(4)):
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    if rhythm.due():
        store.push(0, weights * rhythm.scale)
        store.pull(0, out=weights)
        rhythm.exchanged()
"""

STRETCHED = {
    "steps": "network.steps=[{workers:[there],uniform:{low:2,high:2}}]",
    "slow": "scenario=[{at_s: 0, slow: there/worker0, times: 2, for_s: 100}]",
    "cores": "costs.cores=1",
}


@pytest.mark.slow
@pytest.mark.needs("esync")
@pytest.mark.parametrize("how", STRETCHED)
def test_a_script_is_told_what_its_computing_takes(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it reports to a coordinator is what the simulation lets pass, not what it measures."""
    reports: list[tuple[str, int, float]] = []
    job = ScriptWorker._job

    def listened(worker: ScriptWorker, op: str, asked: dict[str, Any], content: bytes) -> Any:
        if op == "report":
            reports.append((worker.spec.name, worker.local.done, asked["values"][1]))
        return job(worker, op, asked, content)

    monkeypatch.setattr(ScriptWorker, "_job", listened)
    results = simulated(tmp_path, REPORTS, "+sync=esync", STRETCHED[how], compute="measured")
    took_s = {(row["worker"], row["iteration"]): row["compute_s"] for row in results.iterations}
    assert len({worker for worker, *_ in reports}) == 2 and len(reports) >= 4
    for worker, step, told_s in reports:
        assert told_s == pytest.approx(took_s[worker, step], rel=0.15)
        if worker == "there/worker0" and how != "cores" and step > 0:
            assert told_s > 2 * 0.15  # of 0.2 on its slower machine
