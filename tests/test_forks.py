"""Forked nodes behave like separately started processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from geomx.config.compose import compose
from geomx.errors import GeomxError, NodeLost
from geomx.live.fork_pool import kept
from geomx.live.forks import Fork, ForkServer, command
from geomx.live.launcher import run_experiment
from tests.laws import Build

pytestmark = [pytest.mark.slow, pytest.mark.interpreter]

WAIT_S = 30.0


class Place:
    """Forks that wait for a scheduler that never starts, with their logs in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = ForkServer({"GEOMX_TOKEN": "secret"})

    def start(self, name: str, *words: str) -> Fork:
        with (self.folder / f"{name}.log").open("wb") as log:
            return self.server.start(self.arguments(name, *words), log, log)

    def arguments(self, name: str, *words: str) -> list[str]:
        words = words or ("--patience", str(2 * WAIT_S))
        notes = str(self.folder / name)
        return ["--scheduler", "127.0.0.1:9", "--name", name, "--notes", notes, *words]

    def begun(self, *forks: Fork) -> None:
        """Wait until the processes are nodes, as their command lines show, and try to join."""
        for fork in forks:
            deadline = time.monotonic() + WAIT_S
            while not fork.pid or "--notes" not in words(fork.pid):
                assert fork.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)


def words(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.server.end()


def gone(*pids: int) -> bool:
    """Return whether the processes end soon; a zombie has no command line."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}").exists() and words(pid) != [""] for pid in pids):
            return True
        time.sleep(0.01)
    return False


def test_a_fork_has_its_own_command_group_log_and_status(place: Place) -> None:
    one, other = place.start("one"), place.start("another-of-a-longer-name")
    place.begun(one, other)
    for fork, name in (one, "one"), (other, "another-of-a-longer-name"):
        parent = words(fork.pid)[-1]
        assert words(fork.pid) == command([*place.arguments(name), "--parent", parent])
        assert os.getpgid(fork.pid) == fork.pid
        assert os.getppid() != int(parent) != os.getpid()
    refused = place.start("refused", "--patience", "0.2")
    assert refused.wait(WAIT_S) == 1
    assert "cannot join the run" in (place.folder / "refused.log").read_text()
    one.signal_all(signal.SIGKILL)
    assert one.wait(WAIT_S) == -signal.SIGKILL
    other.signal_all(signal.SIGINT)
    assert other.wait(WAIT_S) == 130
    with pytest.raises(subprocess.TimeoutExpired):
        place.start("waits").wait(0.1)


def test_invalid_arguments_have_the_exit_status_of_the_program(place: Place) -> None:
    assert place.start("wrong", "--nothing").wait(WAIT_S) == 2
    assert "unrecognized arguments: --nothing" in (place.folder / "wrong.log").read_text()


def test_nodes_end_with_the_fork_server(place: Place) -> None:
    forks = [place.start("one"), place.start("two")]
    place.begun(*forks)
    os.kill(int(words(forks[0].pid)[-1]), signal.SIGKILL)
    assert [fork.wait(WAIT_S) for fork in forks] == [-signal.SIGKILL] * 2
    assert gone(*[fork.pid for fork in forks])
    with pytest.raises(GeomxError, match=r"starts the nodes was killed by SIGKILL, and its nodes"):
        place.server.check()
    assert place.start("late").poll() == -signal.SIGKILL


def test_nodes_end_with_the_launcher(tmp_path: Path) -> None:
    script = f"""
import os, sys, time
from pathlib import Path
from tests.test_forks import Place

place = Place(Path({str(tmp_path)!r}))
forks = [place.start("one"), place.start("two")]
place.begun(*forks)
print(*[fork.pid for fork in forks], flush=True)
time.sleep({2 * WAIT_S})
"""
    root = Path(__file__).parent.parent
    launcher = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert launcher.stdout is not None
    pids = [int(word) for word in launcher.stdout.readline().split()]
    assert len(pids) == 2
    launcher.kill()
    launcher.communicate()
    assert gone(*pids)


def server_of(fork: Fork) -> int:
    return int(words(fork.pid)[-1])


def finished(place: Place, name: str) -> int:
    """Let a run of one node end; return the process that forked it."""
    fork = place.start(name)
    place.begun(fork)
    pid = server_of(fork)
    fork.signal_all(signal.SIGKILL)
    fork.wait(WAIT_S)
    place.server.end()
    return pid


def test_runs_share_a_fork_server_while_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kept(apart_from=["GEOMX_TEST_A"]):
        first = finished(Place(tmp_path), "one")
        monkeypatch.setenv("GEOMX_TEST_A", "1")
        assert finished(Place(tmp_path), "two") == first
        assert "cannot join" not in (tmp_path / "two.log").read_text()

        # The next run's own, as this process has changed.
        monkeypatch.setenv("GEOMX_TEST_B", "1")
        second = finished(Place(tmp_path), "three")
        assert second != first and gone(first)

        # While a run uses it, another one has its own, which ends with that run.
        one, other = Place(tmp_path), Place(tmp_path)
        forks = one.start("four"), other.start("five")
        one.begun(*forks)
        assert server_of(forks[0]) == second != server_of(forks[1])
        third = server_of(forks[1])
        for place, fork in zip((one, other), forks, strict=True):
            fork.signal_all(signal.SIGKILL)
            fork.wait(WAIT_S)
            place.server.end()
        assert gone(third)


def test_a_kept_fork_server_outlives_the_thread_of_its_run(tmp_path: Path) -> None:
    with kept():
        with ThreadPoolExecutor(1) as thread:
            first = thread.submit(finished, Place(tmp_path), "one").result()
        assert finished(Place(tmp_path), "two") == first


def test_a_fork_of_the_launcher_has_its_own_fork_server(tmp_path: Path) -> None:
    with kept():
        first = finished(Place(tmp_path), "one")
        child = os.fork()
        if child == 0:
            own = finished(Place(tmp_path), "two")
            os._exit(0 if own != first else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert finished(Place(tmp_path), "three") == first


DRAWS = """
import os, pathlib, random, time
import numpy as np

seen = pathlib.Path(__file__).parent / "seen"
with seen.open("a") as file:
    file.write(f"{os.environ['GEOMX_TOKEN']} {random.random()} {np.random.random()}\\n")
deadline = time.monotonic() + 30
while seen.read_text().count("\\n") < 2 and time.monotonic() < deadline:
    time.sleep(0.01)
raise ModuleNotFoundError("", name="libwhatever")
"""


def test_forks_share_the_token_but_no_random_state(
    tmp_path: Path, network_file: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers import MXNet, which is replaced by a module that reports what it sees."""
    (tmp_path / "mxnet.py").write_text(DRAWS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    experiment, _ = compose(["mode=live", "iterations=1", f"network={network_file(2)}"])
    with pytest.raises(NodeLost):
        run_experiment(experiment, tmp_path / "run")
    one, other = (line.split() for line in (tmp_path / "seen").read_text().splitlines())
    assert one[0] == other[0] and len(one[0]) == 32
    assert one[1] != other[1] and one[2] != other[2]
