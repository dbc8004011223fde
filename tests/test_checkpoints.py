"""Live runs that begin with what another run has learned: ``resume=DIR network=OTHER``."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx import runner
from geomx.errors import ConfigError, GeomxError
from geomx.live import launcher
from geomx.live.checkpoint import Checkpoint
from geomx.live.files import durable, experiment_file
from geomx.results.results import Results
from geomx.terminal.progress import Advance
from tests.test_restarts import DURABLE, NETWORK, TINY, run
from tests.test_resume import begin, killed

OTHER = {
    **NETWORK,
    "parties": {
        name: {"workers": 1, "uplink_mbps": 200, "downlink_mbps": 300}
        for name in ("north", "east", "south")
    },
}
"""Three parties, with workers of other names and in another number."""


@pytest.fixture(name="shown")
def fixture_shown(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What progress bars were to count, and then what they have counted."""
    counted: list[int | None] = []

    @contextmanager
    def progress(total: int | None, description: str) -> Iterator[Advance]:
        del description
        made = []
        yield lambda n=1, **fields: made.append(n)
        counted.extend([total, sum(made)])

    monkeypatch.setattr(launcher, "progress", progress)
    return counted


def follow(before: Path, folder: Path, network: Any, *words: str) -> Results:
    """Run an experiment over a network with the state of another."""
    file = folder.parent / "other.yaml"
    file.write_text(str(network))
    begins = [f"network={file}", f"resume={before}", f"hydra.run.dir={folder}", "sim.max_spans=0"]
    return runner.run("mode=live", *begins, *words)


def first_step(results: Results) -> int:
    return min(row["iteration"] for row in results.iterations)


# ---- the file ----


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    values = {key: draw.normal(size=3 * key + 2).astype(np.float32) for key in range(3)}
    cuts = {key: (key + 1, 2 * key + 1) for key in values}
    states = {(key, shard): draw.bytes(5 * shard) for key in values for shard in range(2)}
    Checkpoint(7, values, states, cuts).write(tmp_path / "one.npz")
    found = Checkpoint.read(tmp_path / "one.npz")
    assert (found.rounds, found.states, found.cuts) == (7, states, cuts)
    assert found.values.keys() == values.keys()
    assert all(np.array_equal(found.values[key], values[key]) for key in values)


def test_a_missing_checkpoint_is_said_to_be_on_another_machine(tmp_path: Path) -> None:
    with pytest.raises(GeomxError, match=r"one\.npz is not on this machine: .* share the folder"):
        Checkpoint.read(tmp_path / "one.npz")


def test_a_damaged_checkpoint_is_an_error(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    path = tmp_path / "one.npz"
    whole = Checkpoint(1, {0: np.arange(50, dtype=np.float32)}, {(0, 0): b"state"}, {0: (50,)})
    whole.write(path)
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content))])
    with pytest.raises(GeomxError, match="is no checkpoint, or is damaged"):
        Checkpoint.read(path)
    at = content.index(np.arange(50, dtype=np.float32).tobytes()) + draw.randrange(200)
    damaged = bytearray(content)
    damaged[at] ^= 1 << draw.randrange(8)
    path.write_bytes(damaged)
    with pytest.raises(GeomxError, match="is no checkpoint, or is damaged"):
        Checkpoint.read(path)


# ---- runs ----


@pytest.mark.slow(4)
@pytest.mark.parametrize(
    "words",
    [
        [*TINY, "+accel=[p3,multigps]", "accel.p3.slice_elements=50"],
        [*TINY, "+sync=hfa", "sync.k1=2", "sync.k2=2"],
        ["workload.optimizer=adam"],
    ],
)
def test_a_run_in_two_parts_ends_like_one(
    tmp_path: Path, words: list[str], shown: list[int | None]
) -> None:
    """With the bits of a run that was not interrupted, where nothing but servers keeps a state."""
    calm = run(tmp_path / "calm", *words, mode="sim")
    first = run(tmp_path / "first", *words, DURABLE, "iterations=16")
    second = follow(first.directory, tmp_path / "second", NETWORK, *words, "iterations=40")
    assert first_step(second) == 16
    workers = len({row["worker"] for row in second.iterations})
    assert shown[-2] == 24 * workers  # the bar ends with the run; the last steps may be unread
    assert 0 < (shown[-1] or 0) <= 24 * workers
    for name, value in calm.parameters().items():
        assert np.array_equal(value, second.parameters()[name])


@pytest.mark.slow(4)
@pytest.mark.needs("halos")
def test_a_run_goes_on_where_replies_plan_the_steps(tmp_path: Path) -> None:
    """The replies of the other run's coordinators are not known."""
    words = [*TINY, "+sync=halos", "sync.h=4", "sync.k=1"]
    first = run(tmp_path / "first", *words, DURABLE, "iterations=9")
    second = follow(first.directory, tmp_path / "second", NETWORK, *words, "iterations=80")
    rounds = Checkpoint.read(tmp_path / "second" / "nodes" / "checkpoint.npz").rounds
    assert rounds > 1
    assert first_step(second) == 1 + 4 * (rounds - 1)


@pytest.mark.slow(4)
@pytest.mark.needs("diloco", "halos")
@pytest.mark.parametrize("words", [["+sync=diloco", "sync.h=2"], ["+sync=halos"]])
def test_another_optimizer_of_the_servers_begins_anew(tmp_path: Path, words: list[str]) -> None:
    """With the parameters of the other run, and without the state of its optimizer."""
    first = run(tmp_path / "first", *TINY, DURABLE, "iterations=6")
    second = follow(first.directory, tmp_path / "second", NETWORK, *TINY, *words, "iterations=80")
    assert first_step(second) > 0
    logs = "".join(file.read_text() for file in (second.directory / "nodes").glob("*.log"))
    assert "begin anew: it is the state of 'sgd', and not of " in logs


@pytest.mark.slow(4)
def test_a_killed_run_goes_on_with_another_number_of_workers(tmp_path: Path, seed: int) -> None:
    """All at once after a power cut, and again after a second one."""
    draw = random.Random(seed)
    killed_at = draw.randint(10, 25)
    begin(tmp_path / "first", killed_at, draw.uniform(0, 0.05), *TINY)
    words = [*TINY, "iterations=40"]
    second = follow(tmp_path / "first", tmp_path / "second", OTHER, *words, DURABLE)
    begun = first_step(second)
    assert killed_at <= begun <= killed_at + 3
    workers = {row["worker"] for row in second.iterations}
    assert workers == {"north/worker0", "east/worker0", "south/worker0"}
    assert len(second.iterations) == (40 - begun) * 3
    fresh = follow(tmp_path / "first", tmp_path / "again", OTHER, *words)
    for name, value in second.parameters().items():  # the state is the journals', and stays so
        assert np.array_equal(value, fresh.parameters()[name])

    third = tmp_path / "third"
    file = f"network={tmp_path / 'other.yaml'}"
    again = [file, f"resume={tmp_path / 'first'}", f"hydra.run.dir={third}", *words, DURABLE]
    if killed(third, draw.randint(1, 8), 0.0, *again):
        runner.run("mode=live", f"resume={third}")
        with np.load(third / "parameters.npz") as found:
            for name, value in second.parameters().items():
                assert np.array_equal(value, found[name])


@pytest.mark.slow(4)
def test_rounds_are_counted_through_runs_that_were_killed(tmp_path: Path) -> None:
    """A run that has begun with another may be killed several times, and be begun with itself."""
    words = [*TINY, DURABLE]
    run(tmp_path / "first", *words, "iterations=10")
    second, file = tmp_path / "second", tmp_path / "other.yaml"
    file.write_text(str(OTHER))
    begins = [f"network={file}", f"resume={tmp_path / 'first'}", f"hydra.run.dir={second}"]
    assert killed(second, 4, 0.0, *begins, *words, "iterations=70")
    assert killed(second, 20, 0.0, f"resume={second}")
    second = second.rename(tmp_path / "moved")  # the state that it begins with is in there
    found = runner.run("mode=live", f"resume={second}")
    told = json.loads((second / "durable/resumed.json").read_text())
    assert told["checkpoint"] == str((second / "nodes/checkpoint.npz").resolve())
    assert first_step(found) == 10
    third = follow(second, tmp_path / "third", NETWORK, *TINY, "iterations=75")
    assert first_step(third) == 70


SCRIPT = """
import os
import numpy as np
from geomx import kv
store = kv.create("dist_sync")
if {dies} and store.is_master_worker and not store.member.late:
    os.kill(os.getpid(), 9)
store.set_optimizer("sgd", learning_rate=0.1, momentum=0.9)
store.init("weight", np.ones(5, np.float32))
store.init("bias", np.full(9, 2.0, np.float32))
store.init(["seldom", "never"], [np.ones(3, np.float32), np.ones(2, np.float32)])
for step in range(store.rounds, {steps}):
    for name in ("weight", "bias"):
        value = store.pull(name)
        store.push(name, (value / 2 + step) / store.num_all_workers)
    if step == 1:
        store.push("seldom", np.ones(3, np.float32))
values = {{name: store.pull(name) for name in ("weight", "bias")}}
if store.is_master_worker:
    np.savez("{out}", rounds=store.rounds, **values)
"""


@pytest.mark.slow(4)
def test_a_script_goes_on_with_another_number_of_workers(tmp_path: Path) -> None:
    """Its optimizer keeps its momentum on the servers, over the kill of one of them too.

    So it does where the first worker is killed before it has given them anything.
    """

    def made(
        steps: int, network: dict[str, Any] | None, *words: str, dies: bool = False
    ) -> dict[str, Any]:
        out, file = tmp_path / "out.npz", tmp_path / "network.yaml"
        if network is not None:
            file.write_text(str(network))
            words = (f"network={file}", *words)
        script = tmp_path / "train.py"
        script.write_text(SCRIPT.format(steps=steps, out=out, dies=dies))
        command = [sys.executable, "-m", "geomx", "launch", *words]
        done = subprocess.run(
            [*command, "--", sys.executable, str(script)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        with np.load(out) as found:
            return dict(found)

    before = tmp_path / "before"
    whole = made(12, NETWORK)
    kill = "scenario=[{at_s: 0.02, kill: hub/global_server0, restart_s: 0.2}]"
    made(5, NETWORK, kill, f"hydra.run.dir={before}")
    (row,) = json.loads((before / "summary.json").read_text())["faults"]
    assert row["what"] == "kill" and row["recovered_s"] > 0.2
    same = made(12, None, "scenario=[]", f"resume={before}")
    late = made(12, None, "scenario=[]", f"resume={before}", dies=True)
    rest = made(12, OTHER, f"resume={before}")
    assert [each.pop("rounds") for each in (whole, same, late, rest)] == [0, 5, 5, 5]
    for name, value in whole.items():
        assert np.array_equal(value, same[name]) and np.array_equal(value, late[name])
        assert np.allclose(value, rest[name], rtol=1e-5)


# ---- refusals ----


@pytest.mark.slow(2)
def test_what_a_run_cannot_begin_with_is_named(tmp_path: Path) -> None:
    first = run(tmp_path / "first", *TINY, DURABLE, "iterations=4")

    def refusal(*words: str, before: Path = first.directory) -> str:
        with pytest.raises(ConfigError) as error:
            follow(before, tmp_path / "second", OTHER, *words)
        return str(error.value)

    assert "begins live runs only: add mode=live" in refusal(*TINY, "mode=sim")
    assert "trained tensors of other sizes than this run" in refusal("workload=digits_cnn")
    (tmp_path / "empty").mkdir()
    assert "has no journals" in refusal(*TINY, before=tmp_path / "empty")
    journal = durable(first.directory, "hub/global_server0")
    content = journal.read_bytes()
    damaged = bytearray(content)
    damaged[len(content) // 2] ^= 1
    journal.write_bytes(damaged)
    assert "has no state to begin with: " in refusal(*TINY)
    journal.unlink()
    assert "it has no journal of hub/global_server0" in refusal(*TINY)
    experiment_file(first.directory).write_text("{")
    assert "experiment.json is damaged: " in refusal(*TINY)
