"""Live runs whose processes are all killed at once, and that ``resume=DIR`` continues."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx import _core, runner
from geomx.errors import ConfigError
from geomx.kv.local import LocalCluster, unshaped
from geomx.live import resume
from geomx.live.files import durable, stem
from geomx.live.journal import opened
from geomx.live.member import Member
from geomx.live.resumption import Resumption
from geomx.live.step_notes import StepNotes
from geomx.options.schema import FaultOptions
from geomx.results.results import Results
from geomx.training.passes import Backward, Forward
from tests.ports import free_port
from tests.test_restarts import CUT, DURABLE, NETWORK, TINY, check_equal, process, run

# ---- one worker ----


def train(member: Member, notes: StepNotes, values: list[np.ndarray[Any, Any]]) -> list[Any]:
    """Push each of `values` as the only worker; return the sums, with a note about each."""
    loop = member.loop
    loop.declare(0, len(values[0]), [(0, len(values[0]), 0, 0)])
    past = notes.past()
    if past is None:
        loop.init(0, values[0])
        loop.request(0)
    first = 0 if past is None else past.step
    got = [] if past is None else [past.values[0]]
    for step in range(first, len(values)):
        if past is None or step > first:
            loop.wait(0, step, 10.0)
            got.append(np.empty_like(values[0]))
            loop.value(0, got[-1])
        if notes.due(step):
            notes.note(step, step, [bytes([step])])
        loop.push(0, values[step])
        notes.finished(float(step), [step / 2])
    return got


def test_a_workers_journal_says_where_it_was(tmp_path: Path, seed: int) -> None:
    """Repeated without any network, and with the push that comes next made once only."""
    generator = np.random.default_rng(seed)
    values = [generator.normal(size=5).astype(np.float32) for _ in range(4)]
    path = tmp_path / "worker.journal"
    cluster = LocalCluster(unshaped({"east": 1}), journals={"east/worker0": path})
    try:
        (member,) = cluster.workers
        train(member, StepNotes(member.loop, path), values)
        member.loop.wait(0, len(values), 10.0)
        for _ in range(2):  # each in a later cycle of the loop, and what cycles record they write
            member.loop.absent(0)
        path = Path(shutil.copy(path, tmp_path / "killed.journal"))  # the end is not in there
        token, experiment = "token", member.spec.to_json()
    finally:
        cluster.close()
    del cluster, member

    journal = _core.Journal(str(path))
    assert journal.begun and journal.experiment == experiment
    again = Member.resume(journal, "east/worker0", token)
    again.wire()
    notes = StepNotes(again.loop, path)
    again.loop.declare(0, 5, [(0, 5, 0, 0)])
    past = notes.past()
    assert past is not None
    assert past.step == past.round == 3 and past.state == [bytes([3])]
    assert past.steps == [(float(step), [step / 2]) for step in range(3)]
    forward, backward = Forward(), Backward("gradients", False, None)
    assert notes.repeats(forward, 2) and notes.repeats(backward, 2)
    assert (forward.compute_s, backward.answer) == (2.0, [1.0])
    assert not notes.repeats(forward, 3) and not notes.due(3) and notes.due(4)
    # The value of round 4 has arrived before the process ended; the note has that of round 3.
    assert again.loop.push(0, values[3]) == 4
    again.loop.wait(0, 4, 0.0)
    with pytest.raises(TimeoutError):
        again.loop.push(0, values[3])
        again.loop.wait(0, 5, 0.05)
    again.loop.close()


# ---- what is refused ----


def refused(*words: str) -> str:
    with pytest.raises(ConfigError) as error:
        runner.run(*words)
    assert str(error.value).startswith("resume=") and "\n" not in str(error.value)
    return str(error.value)


def test_folders_without_a_run_to_continue_are_refused(tmp_path: Path) -> None:
    assert not resume.asked(["resume=null", "mode=live"]) and resume.asked(["resume=x"])
    assert "has no journals; a run can be continued that" in refused(f"resume={tmp_path}")
    (tmp_path / "durable").mkdir()
    assert "does not say what was run" in refused(f"resume={tmp_path}")
    summary = tmp_path / "summary.json"
    words = ["seed=3", "network=a"]
    summary.write_text(json.dumps({"schema": 1, "aborted": "killed", "words": words}))
    said = refused(f"resume={tmp_path}", "mode=live", "seed=4")
    assert "is a run without seed=4; leave it out" in said
    assert "is a run without mode=sim" in refused(f"resume={tmp_path}", "mode=sim")
    (tmp_path / "nodes").mkdir()
    experiment, file = unshaped({"east": 1}), tmp_path / "nodes" / "experiment.json"
    for damaged in ("", "[1]", "{"):
        file.write_text(damaged)
        assert f"{file} cannot be read" in refused(f"resume={tmp_path}", "seed=3")
        assert resume.asked([f"resume={tmp_path}", "network=a"])
    file.write_text(experiment.to_json())
    said = refused(f"resume={tmp_path}", "seed=3")
    assert f"has no journal of {experiment.cluster.scheduler.name}" in said
    notes = stem(tmp_path, experiment.cluster.scheduler.name).with_suffix(".jsonl")
    notes.write_text('{"started": 1.0}\n{"end": {"status": "lost"}}\n')
    assert "was ended by hub/scheduler (lost)" in refused(f"resume={tmp_path}")
    summary.write_text(json.dumps({"schema": 1, "seconds": 3.0}))
    assert "is complete" in refused(f"resume={tmp_path}")
    for damaged in ("", '{"schema": 1, "aborted"', "[1, 2]"):
        summary.write_text(damaged)
        said = refused(f"resume={tmp_path}", "mode=live")
        assert f"{summary} is damaged: " in said
        assert said.endswith("; delete that file")


def test_a_script_is_warned_that_the_options_of_the_other_run_are_unknown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "durable").mkdir()
    words = [f"resume={tmp_path}", "seed=3"]
    assert resume.words_of(words) == words
    assert f"resume={tmp_path} has no summary.json: options not" in capfd.readouterr().err
    (tmp_path / "summary.json").write_text('{"words": ["+sync=x", "seed=2"]}')
    assert resume.words_of(words) == ["+sync=x", *words]
    assert capfd.readouterr().err == ""
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(ConfigError, match=r"delete that file, and give the options of the run"):
        resume.words_of(words)


@pytest.mark.parametrize("given", ["resume={}/before", "resume='{}/it\\'s, here'"])
def test_a_script_has_the_options_of_the_run_before(given: str, tmp_path: Path) -> None:
    """Also where that run named no network; and its folder may need quotes."""
    from geomx.machines.scripts import composed_for_script

    for name in ("before", "it's, here"):
        (tmp_path / name / "durable").mkdir(parents=True)
        (tmp_path / name / "summary.json").write_text('{"words": ["seed=2"]}')
    words = [given.format(tmp_path), f"hydra.run.dir={tmp_path}/run"]
    made, _ = composed_for_script(words)
    assert made.seed == 2 and made.begins_with in map(str, tmp_path.iterdir())
    assert resume.asked(words[:1]) and "is complete" in refused(words[0])


def test_a_sweep_cannot_be_resumed() -> None:
    with pytest.raises(ConfigError, match="resume=x: continues one run"):
        from geomx.config.compose import compose

        compose(["resume=x"])


@pytest.mark.parametrize("word", ["network=two_parties", "+network=two_parties"])
def test_with_another_network_a_new_run_begins(word: str, tmp_path: Path) -> None:
    from geomx.config.compose import compose

    made, _ = compose(["mode=live", "resume=x", word], directory=tmp_path)
    assert made.begins_with == "x"


def test_a_run_in_namespaces_may_begin_anew_in_the_same_network(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.mkdir()
    spec = unshaped({"east": 1})
    logged = dataclasses.replace(spec, faults=FaultOptions(durable="log"))
    (nodes / "experiment.json").write_text(logged.to_json())
    again = [f"resume={tmp_path}", "network=x"]
    for emulate, continues in (("shaper", True), ("netns", False)):
        about = {"schema": 1, "aborted": "killed", "words": ["network=x"], "emulate": emulate}
        (tmp_path / "summary.json").write_text(json.dumps(about))
        assert resume.asked(again) is continues
        assert resume.asked(again[:1])


# ---- whole runs ----


def processes(folder: Path) -> set[int]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
    return found - {os.getpid()}


def iterations(folder: Path) -> int:
    notes = stem(folder, "east/worker0").with_suffix(".jsonl")
    return notes.read_bytes().count(b'"iteration"') if notes.exists() else -1


def killed(folder: Path, after: int, then_s: float, *words: str) -> bool:
    """Run until a worker has made `after` steps, and kill -9 everything; False: it was over."""
    command = [sys.executable, "-m", "geomx", "mode=live", *words]
    launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while launcher.poll() is None and iterations(folder) < after:
        time.sleep(0.005)
    time.sleep(then_s)
    over = launcher.poll() is not None
    launcher.kill()
    launcher.wait()
    while left := processes(folder):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return not over


def begin(folder: Path, after: int, then_s: float, *words: str) -> None:
    network = folder.parent / "network.yaml"
    network.write_text(str(NETWORK))
    fixed = [f"network={network}", "iterations=40", DURABLE, f"hydra.run.dir={folder}"]
    assert killed(folder, after, then_s, *fixed, *words)


def resumed(folder: Path, *words: str) -> Results:
    return runner.run("mode=live", f"resume={folder}", *words)


def check_like(calm: Results, live: Results) -> None:
    """The same bits, bytes, losses and evaluations, and every step once."""
    check_equal(calm, live)
    order = [(row["worker"], row["iteration"]) for row in calm.iterations]
    assert [(row["worker"], row["iteration"]) for row in live.iterations] == order
    for name in ("iterations", "evaluations"):
        losses = [[row["loss"] for row in getattr(each, name)] for each in (calm, live)]
        assert losses[0] == losses[1]
    assert "aborted" not in live.summary


WORDS = (
    [
        *TINY, "+accel=[p3,bisparse]", "accel.p3.slice_elements=50",
        "accel.bisparse.min_elements=8", "faults.log_sync=true",
    ],
    ["+sync=hfa", "workload.optimizer=adam", CUT],
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("words", WORDS)
def test_a_run_that_was_killed_as_a_whole_ends_as_if_it_had_not_been(
    tmp_path: Path, seed: int, words: list[str]
) -> None:
    draw = random.Random(f"{seed} {words}")
    calm = run(tmp_path / "calm", *words, mode="sim")
    folder = tmp_path / "killed"
    begin(folder, draw.randint(1, 30), draw.uniform(0, 0.05), *words)
    killed(folder, 0, draw.uniform(0, 3), f"resume={folder}")  # while it starts, or later
    check_like(calm, resumed(folder))
    assert "is complete" in refused(f"resume={folder}")


@pytest.mark.slow
def test_a_run_that_serves_metrics_may_be_killed_several_times(tmp_path: Path) -> None:
    calm = run(tmp_path / "calm", *TINY, mode="sim")
    folder = tmp_path / "killed"
    begin(folder, 5, 0.0, *TINY, f"metrics.port={free_port(8)}")
    assert killed(folder, 15, 0.0, f"resume={folder}")
    check_like(calm, resumed(folder))


@pytest.mark.slow
def test_a_run_goes_on_elsewhere_and_on_other_ports(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    calm = run(tmp_path / "calm", *TINY, mode="sim")
    begin(tmp_path / "before", draw.randint(1, 30), draw.uniform(0, 0.05), *TINY)
    folder = tmp_path / "moved"
    shutil.move(tmp_path / "before", folder)
    journal = opened(durable(folder, "hub/global_server0"))
    port = journal.port
    del journal
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # a connection of another process has taken it
            taken.bind(("127.0.0.1", port))
            taken.listen()
        check_like(calm, resumed(folder, "iterations=40"))
    addresses = Resumption.beside(durable(folder, "hub/global_server0")).addresses
    assert not addresses["hub/global_server0"].endswith(f":{port}")


@pytest.mark.slow
def test_a_journal_that_is_damaged_or_missing_is_named_before_anything_starts(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    folder = tmp_path / "run"
    begin(folder, draw.randint(1, 20), 0.0, *TINY)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    journal = durable(folder, draw.choice(["hub/global_server0", "west/worker1", "east/server"]))
    content = bytearray(before[journal])
    content[draw.randrange(8, len(content) // 2)] ^= 1 << draw.randrange(8)
    journal.write_bytes(content)
    assert f"cannot be continued: the journal {journal} is damaged at byte" in refused(
        f"resume={folder}"
    )
    journal.write_bytes(before[journal])
    other = durable(folder, "hub/scheduler")
    other.unlink()
    assert "has no journal of hub/scheduler" in refused(f"resume={folder}")
    other.write_bytes(before[other])
    for path, content in before.items():  # but for a last record that was cut short
        assert content.startswith(path.read_bytes())


# ---- one worker that is killed ----


@contextlib.contextmanager
def killing(folder: Path, node: str, after: int) -> Iterator[None]:
    """Kill a node once, when the first worker has made `after` steps."""

    def work() -> None:
        while iterations(folder) < after:
            time.sleep(0.005)
        pid = process(folder, node)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join()


@pytest.mark.slow
def test_a_worker_that_is_killed_continues_where_it_was(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    words = draw.choice(WORDS)
    calm = run(tmp_path / "calm", *words, mode="sim")
    folder = tmp_path / "killed"
    with killing(folder, draw.choice(["east/worker0", "west/worker1"]), draw.randint(1, 30)):
        live = run(folder, *words, DURABLE)
    check_like(calm, live)
    assert [row["what"] for row in live.summary["faults"]] == ["restart"]
