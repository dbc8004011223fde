"""Members that join a running job by command, and leave it when a signal asks them to."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from geomx import runner
from geomx.cli import launch
from geomx.config.compose import compose
from geomx.errors import ConfigError
from geomx.kv.local import unshaped
from geomx.live import access
from geomx.live.files import Reader, stem
from geomx.live.lifetime import LEAVE
from geomx.metrics.server import fetch
from geomx.metrics.top import Reading
from geomx.results.results import Results
from geomx.terminal.log import text_of
from tests.ports import free_port
from tests.test_members import NETWORK, WORKERS, replay, run, words
from tests.test_restarts import process

LONG = "iterations=100000"  # until the last worker is asked to leave
ENDS_S = 60.0


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(access.TOKEN, secrets.token_hex(16))
    return os.environ[access.TOKEN]


@pytest.fixture
def port() -> int:
    return free_port()


def node(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Run ``geomx node``."""
    return subprocess.Popen(
        [sys.executable, "-m", "geomx", "node", *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    """Return what a process says until it ends, without the notices that it is waiting."""
    output = process.communicate(timeout=ENDS_S)[0]
    return "".join(line for line in output.splitlines(True) if text_of(line.rstrip()) is None)


def until(found: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + ENDS_S
    while not found():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def steps(folder: Path, worker: str) -> int:
    """Return the number of steps of a worker so far."""
    return sum("iteration" in note for note in Reader(stem(folder, worker)).new())


@contextlib.contextmanager
def running(folder: Path, *more: str) -> Iterator[Callable[[], Results]]:
    """A live run that trains; yields a function that lets its workers leave, and returns it."""
    results: list[Results] = []
    thread = threading.Thread(target=lambda: results.append(run(folder, "[]", *more)))
    thread.start()

    def end() -> Results:
        for worker in WORKERS:
            if (pid := process(folder, worker)) is not None:
                os.kill(pid, LEAVE)
        thread.join(ENDS_S)
        return results[0]

    try:
        until(lambda: steps(folder, "east/worker0") > 2)
        yield end
    finally:
        end()


@pytest.mark.slow(12)
def test_a_party_joins_and_leaves_by_command(tmp_path: Path, port: int) -> None:
    folder, address = tmp_path / "run", f"127.0.0.1:{port}"
    metrics = free_port(12)
    live = ["mode=live", f"runtime.port={port}", LONG, "faults.absent=[west]"]
    live.append(f"metrics.port={metrics}")

    def served() -> set[str]:
        """The nodes whose metrics the scheduler serves."""
        up = Reading.of(time.monotonic(), fetch(f"127.0.0.1:{metrics}")).each("geomx_up")
        return {labels["node"] for labels, value in up if value}

    with running(folder, *live) as end:
        assert not steps(folder, "west/worker1")
        assert "east/worker0" in served() and "west/worker1" not in served()
        party = node("--join", address, "--party", "west", "--directory", str(folder))
        until(lambda: steps(folder, "west/worker0") > 5 and steps(folder, "west/worker1") > 5)
        assert served() > {"east/worker0", "west/server", "west/worker0", "west/worker1"}
        party.send_signal(signal.SIGTERM)
        party.communicate(timeout=ENDS_S)
        assert party.returncode == 0
        alone = steps(folder, "east/worker0")
        until(lambda: steps(folder, "east/worker0") > alone + 5)
        # A worker of the party that has left may come again, with its server.
        again = node("--join", address, "--party", "west", "--directory", str(folder))
        before = steps(folder, "west/worker1")
        until(lambda: steps(folder, "west/worker1") > before + 5)
        again.send_signal(signal.SIGTERM)
        results = end()
        again.communicate(timeout=ENDS_S)
    joined = {row["node"] for row in results.summary["faults"] if row["what"] == "join"}
    assert joined >= {"west/worker0", "west/worker1"}
    rounds = 1 + max(row["iteration"] for row in results.iterations)
    given = [word for word in words(folder, "[]", *live) if "hydra" not in word and word != LONG]
    replayed = replay(folder, *given, f"iterations={rounds}")
    for name, value in results.parameters().items():
        assert np.array_equal(value, replayed[name]), name
    assert results.summary["participation"]["with_everybody"] > 0


@pytest.mark.slow(12)
def test_what_cannot_join_is_told_why(tmp_path: Path, port: int) -> None:
    folder, address = tmp_path / "run", f"127.0.0.1:{port}"
    first = node("--join", address, "--party", "west", "--patience", "0.1")
    assert "no connection to" in said(first)
    live = ["mode=live", f"runtime.port={port}", LONG, "faults.absent=[west/worker1]"]
    with running(folder, *live) as end:
        sentences = {
            "its network has no node of that name": node("--join", address, "--party", "wes"),
            "a node of that name takes part already": node(
                "--join", address, "--party", "east", "--patience", "0.5"
            ),
            "refused this node (not a member)": node(
                "--join", address, "--name", "west/worker1", **{access.TOKEN: "guessed"}
            ),
            "the run has a workload": node(
                "--join", address, "--name", "west/worker1", "--", "true"
            ),
        }
        for sentence, process in sentences.items():
            output = said(process)
            assert sentence in output
            assert len(output.splitlines()) == 1
            assert output.startswith("--join=")
            assert process.returncode == 2
        end()


@pytest.mark.slow(6)
def test_a_run_without_continue_takes_nobody_in(tmp_path: Path, port: int) -> None:
    live = ["mode=live", f"runtime.port={port}", "iterations=40", "workload.backward_ms=100"]
    results: list[Results] = []
    folder = tmp_path / "run"
    thread = threading.Thread(
        target=lambda: results.append(run(folder, "[]", *live, "faults.on_loss=stop"))
    )
    thread.start()
    until(lambda: steps(folder, "east/worker0") > 2)
    output = said(node("--join", f"127.0.0.1:{port}", "--name", "west/worker1"))
    assert "a run without faults.on_loss=continue takes in no members later" in output
    thread.join(ENDS_S)
    assert "aborted" not in results[0].summary


@pytest.mark.slow
def test_absent_members_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(names: str, *more: str) -> list[str]:
        return [*words(tmp_path / "run", "[]"), f"faults.absent={names}", *more]

    experiment, _ = compose(absent("[west,south/worker0]"))
    away = {"west/server", "west/worker0", "west/worker1", "south/server", "south/worker0"}
    assert set(experiment.event_schedule.by_hand) == away
    for names, sentence in {
        "[wst]": "did you mean west",
        "[west/server]": "no such worker or party",
        "[east]": "the first worker of all supplies the initial values",
    }.items():
        with pytest.raises(ConfigError, match=sentence) as caught:
            compose(absent(names))
        assert caught.value.key == "faults.absent"
    with pytest.raises(ConfigError, match=r"needs faults\.on_loss=continue"):
        compose(absent("[west]", "faults.on_loss=wait"))
    monkeypatch.delenv(access.TOKEN)
    with pytest.raises(ConfigError, match="needs GEOMX_TOKEN"):
        run(tmp_path / "run", "[]", "mode=live", "faults.absent=[west]")


@pytest.mark.slow
def test_absent_members_never_take_part_in_a_simulation(tmp_path: Path) -> None:
    results = run(tmp_path / "run", "[]", "faults.absent=[west]")
    assert {row["party"] for row in results.iterations} == {"east", "south"}
    assert results.summary["participation"]["with_everybody"] == 40  # of the two local servers
    given = words(tmp_path / "run", "[]", "faults.absent=[west]")
    replayed = replay(tmp_path / "run", *given[:-2], given[-1])
    for name, value in results.parameters().items():
        assert np.array_equal(value, replayed[name]), name


@pytest.mark.slow(3)
@pytest.mark.parametrize("mode", ["sim", "live"])
def test_a_scenario_lets_absent_members_join(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No token is needed: nobody joins by hand."""
    monkeypatch.delenv(access.TOKEN)
    join = "{{at_s: {}, join: {{party: {}, workers: 1}}}}"
    joins = f"[{join.format(0.3, 'west')}, {join.format(0.6, 'south')}]"
    absent = "faults.absent=[west/worker0,south]"
    given = words(tmp_path / "run", joins, f"mode={mode}", absent, "iterations=60")
    results = runner.run(*given)
    replayed = replay(tmp_path / "run", *(word for word in given if "hydra" not in word))
    for name, value in results.parameters().items():
        assert np.array_equal(value, replayed[name]), name
    steps = Counter(row["worker"] for row in results.iterations)
    assert [steps[worker] == 60 for worker in WORKERS] == [True, True, False, True, False]
    assert all(steps[worker] for worker in WORKERS)
    assert [row["what"] for row in results.summary["faults"]] == ["join", "join"]


# ---- patience ----

WAITING = """
import sys
from geomx.live import member, node
member.JOIN_TIMEOUT_S = 0.1
sys.exit(node.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_script_waits_for_the_scheduler_as_long_as_it_is_told(tmp_path: Path) -> None:
    words = ["--role", "worker", "--party", "east", "--scheduler", "127.0.0.1:9"]
    words += ["--patience", "1.5", "--directory", str(tmp_path)]
    create = "from geomx import kv; kv.create('dist_sync')"
    output = said(node(*words, "--", sys.executable, "-c", create))
    assert re.search(r"no connection to 127\.0\.0\.1:9 in [12]\.\d s", output), output


def test_a_scheduler_waits_for_all_as_long_as_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(unshaped({"east": 1}).to_json())
    words = ["--experiment", str(tmp_path / "spec.json"), "--notes", str(tmp_path / "node")]
    done = subprocess.run(
        [sys.executable, "-c", WAITING, *words, "--patience", "1.5"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "did not join the run in 1.5 s" in done.stderr


# ---- scripts ----

SCRIPT = """
import pathlib, sys, time
import numpy as np
from geomx import kv

folder = pathlib.Path(sys.argv[1])
store = kv.create("dist_sync")
weights = np.zeros(3, np.float32)
store.init(["weights", "more"], [weights, weights])
if store.is_master_worker:
    store.set_optimizer("sgd", learning_rate=1.0)
store.pull("weights", out=weights)
made = store.rounds
(folder / f"{store.global_rank}.began").write_text(str(made))
try:
    while not (folder / "stop").exists():
        time.sleep(0.02)
        for key in ("weights", "more"):
            store.push(key, -np.ones(3, np.float32))
        for key in ("weights", "more"):
            store.pull(key, out=weights)
            assert np.allclose(weights, 5 * (made + 1))
        made += 1
        (folder / f"{store.global_rank}.made").write_text(str(made))
finally:
    (folder / f"{store.global_rank}.left").write_text(str(made))
"""


@pytest.mark.slow(8)
def test_a_script_joins_and_leaves(tmp_path: Path, port: int) -> None:
    script, network = tmp_path / "script.py", tmp_path / "network.yaml"
    script.write_text(SCRIPT)
    network.write_text(str(NETWORK))
    command = [sys.executable, str(script), str(tmp_path)]

    def told(rank: int, what: str) -> int:
        file = tmp_path / f"{rank}.{what}"
        return int(file.read_text() or "0") if file.exists() else 0

    given = [
        f"network={network}", f"hydra.run.dir={tmp_path}/run", f"runtime.port={port}",
        "faults.absent=[west/worker1]", "scenario=[{at_s: 0.5, leave: south/worker0}]",
    ]  # fmt: skip
    thread = threading.Thread(target=launch.main, args=([*given, "--", *command],))
    thread.start()
    try:
        until(lambda: told(0, "made") > 5 and told(4, "left"))  # south/worker0 has left
        join = ["--join", f"127.0.0.1:{port}", "--name", "west/worker1"]
        folder = str(tmp_path / "joined")
        assert "the run is of a script" in said(node(*join, "--directory", folder))
        wrapped = ["sh", "-c", f"{shlex.join(command)}; exit $?"]  # a signal would end the shell
        joined = node(*join, "--directory", folder, "--", *wrapped)
        until(lambda: told(3, "made") > told(3, "began") + 3)
        joined.send_signal(signal.SIGTERM)
        output = joined.communicate(timeout=ENDS_S)[0]
        assert joined.returncode == 0, output
        assert 5 < told(3, "began") < told(3, "left")
        since = told(0, "made")
        until(lambda: told(0, "made") > since + 3)
    finally:
        (tmp_path / "stop").touch()
        thread.join(ENDS_S)
    assert told(0, "left") > told(3, "left")
