"""Agents on other machines and the launcher's connections to them: clocks, signals, output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geomx.errors import GeomxError
from geomx.kv.local import unshaped
from geomx.live.exit_status import INTERRUPTED
from geomx.live.files import path as file_of
from geomx.live.files import stem
from geomx.live.lifetime import Tied
from geomx.machines import lines
from geomx.machines.frames import Opening
from geomx.machines.launch import launch
from geomx.machines.line import Line
from geomx.version import __version__
from tests.test_machines import all_gone, write

NODE = unshaped({"east": 1}).cluster.workers[0]


def opening(*command: str) -> Opening:
    """Return the description of a worker that runs a command."""
    about: dict[str, Any] = {"host": "127.0.0.1", "scheduler": "127.0.0.1:1", "token": "token"}
    return Opening(name=NODE.name, id=NODE.id, command=list(command), **about)


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# ---- openings ----


def test_an_opening_of_another_version_is_refused_with_the_remedy() -> None:
    """Whatever else it has that is unknown here."""
    line = opening("true").line().decode()
    assert Opening.read(line) == opening("true")
    fields = {**json.loads(line), "colour": "red"}
    sentence = f"this is {__version__}: install the same version on all machines"
    for version in ({"geomx": "0.0.9"}, {"geomx": "99.0"}):
        with pytest.raises(GeomxError, match=f"the launcher runs geomx .*, {sentence}"):
            Opening.read(json.dumps(fields | version))
    del fields["geomx"]
    with pytest.raises(GeomxError, match=f"the launcher runs geomx of another version, {sentence}"):
        Opening.read(json.dumps(fields))


# ---- clocks ----

SHIFTED = """
import sys, time
here = time.monotonic
time.monotonic = lambda: here() + 1e6
from geomx.machines import agent
sys.exit(agent.attached())
"""
NOTING = """
import json, os, sys, time
with open(os.environ["GEOMX_NOTES"] + ".jsonl", "w") as notes:
    for note in ({"again": True}, {"recovered": time.monotonic() + 1e6}, {"iteration": 0}):
        print(json.dumps(note), file=notes, flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


def test_a_time_that_is_noted_at_once_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for an estimate of the other machine's clock, and so does what follows it."""
    monkeypatch.setattr("geomx.machines.line.BEAT_S", 5.0)  # the node begins before the second beat
    (tmp_path / "nodes").mkdir()
    began, stop = time.monotonic(), tmp_path / "stop"
    line = Line(NODE, [sys.executable, "-c", SHIFTED], tmp_path, lambda *_: None)
    line.open(opening(sys.executable, "-S", "-c", NOTING, str(stop)))
    file = file_of(stem(tmp_path, NODE.name), ".jsonl")
    try:
        until(lambda: "iteration" in file.read_text() or line.status is not None)
        stop.touch()
        until(lambda: line.status is not None)
    finally:
        line.kill()
    assert line.status == 0
    notes = [json.loads(each) for each in file.read_text().splitlines()]
    assert [next(iter(note)) for note in notes] == ["again", "recovered", "iteration"]
    assert began - 60 < notes[1]["recovered"] < time.monotonic() + 60


def agent(**env: str) -> subprocess.Popen[bytes]:
    """Start an agent."""
    command = [sys.executable, "-P", "-m", "geomx", "node", "--role", "worker", "--attached"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **env}
    )


def test_a_beat_that_comes_with_the_opening_is_answered() -> None:
    process = agent()
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(opening("sleep", "600").line() + b"beat 7\n")
    process.stdin.flush()
    frames = map(json.loads, process.stdout)
    assert next((frame["beat"] for frame in frames if "beat" in frame), None) == 7
    process.stdin.close()
    assert process.wait(60) != 0
    process.stdout.close()


# ---- ends ----

STUBBORN = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""


def test_a_second_signal_does_not_keep_an_agent_from_ending(tmp_path: Path) -> None:
    """Its node, which ignores SIGTERM, is killed, and its folder with keys is deleted."""
    (tmp_path / "folders").mkdir()
    ready = tmp_path / "ready"
    process = agent(GEOMX_TEST=str(tmp_path), TMPDIR=str(tmp_path / "folders"))
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(opening(sys.executable, "-S", "-c", STUBBORN, str(ready)).line())
    process.stdin.flush()
    until(ready.exists)
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)
            time.sleep(0.2)  # while it waits for the node
        assert process.wait(60) == INTERRUPTED
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
    assert all_gone(tmp_path)
    assert list((tmp_path / "folders").iterdir()) == []


LEAVING = """
import os, pathlib, signal, sys, time
folder, node = pathlib.Path(sys.argv[1]), os.getpid()
signal.signal(signal.SIGUSR1, lambda *_: (folder / f"asked{os.getpid() == node}").touch())
if os.fork() == 0:  # as a loader of data does
    time.sleep(600)
(folder / "ready").touch()
while not (folder / "askedTrue").exists():
    time.sleep(0.02)
"""


def test_a_node_is_asked_to_leave_and_not_the_shell_that_has_started_it(tmp_path: Path) -> None:
    code = f'{sys.executable} -S -c "$1" {tmp_path}; exit 7'
    process = Tied(["sh", "-c", code, "sh", LEAVING], {})
    try:
        until((tmp_path / "ready").exists)
        process.ask_to_leave()
        assert process.wait(60) == 7
    finally:
        process.signal_all(signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "askedFalse").exists()


def test_without_a_node_the_command_itself_ends(tmp_path: Path) -> None:
    process = Tied(["sh", "-c", "sleep 600; exit 7"], {})
    process.ask_to_leave()
    assert process.wait(60) == -signal.SIGUSR1
    process.signal_all(signal.SIGKILL)


# ---- notes ----


def member(what: str, time_s: float) -> dict[str, Any]:
    """Return a note about a change of the members."""
    return {"member": what, "time_s": time_s, "names": ["east/worker1"], "about": []}


@pytest.mark.parametrize("again", [True, False])
def test_changes_of_members_that_a_restarted_node_repeats_are_noted_once(
    tmp_path: Path, again: bool
) -> None:
    """Those that happen several times while one process runs are all noted."""
    (tmp_path / "nodes").mkdir()
    file = file_of(stem(tmp_path, NODE.name), ".jsonl")
    file.write_text(json.dumps(member("gone", 1.0)) + "\n")
    told = [member("gone", 2.0), member("back", 3.0), member("back", 4.0)]
    frames = [*({"note": json.dumps(each)} for each in told), {"end": 0}]
    said = tmp_path / "said"
    said.write_text("".join(json.dumps(frame) + "\n" for frame in frames))
    line = Line(NODE, ["cat", str(said)], tmp_path, lambda *_: None, again=again)
    until(lambda: line.status is not None)
    line.hang_up()
    noted = [json.loads(text)["time_s"] for text in file.read_text().splitlines()]
    assert noted == ([1.0, 3.0, 4.0] if again else [2.0, 3.0, 4.0])


# ---- output ----


def test_output_with_a_progress_bar_stays_short_and_is_seen() -> None:
    reading, writing = os.pipe()
    output, seen = lines.Output(reading), []
    for percent in range(101):
        os.write(writing, f"\r{percent}%".encode() + b" " * 10_000)
        seen += output.take()
        assert len(output._left) < 50_000
    assert seen[0].rstrip() == "0%" and len(seen) < 50
    os.write(writing, b"\nnext\r\n")
    ends = list(output.take())
    assert [text.rstrip(" ") for text in ends] == ["100%", "next"]
    os.write(writing, b"50%\r")
    assert "50%" not in list(output.take())  # not so soon after the last one
    os.close(writing)
    assert list(output.take()) == ["50%"]
    os.close(reading)


def test_a_line_without_end_is_passed_on_in_parts() -> None:
    reading, writing = os.pipe()
    output, seen = lines.Output(reading), []
    for _ in range(40):
        os.write(writing, b"x" * 10_000)
        seen += output.take()
        assert len(output._left) <= lines.LONGEST
    os.close(writing)
    seen += output.take()
    os.close(reading)
    assert "".join(seen) == "x" * 400_000 and len(seen) > 2


# ---- logins ----

DROPPING = """
cd {folder}
case "$*" in
*"--role scheduler"*) while [ "$(ls | grep -c '^reached')" -lt 2 ]; do sleep 0.1; done;;
*"--role worker"*) mkdir dropped 2> /dev/null && exit 255; touch reached.$$;;
esac
exec "$@"
"""


@pytest.mark.slow
def test_a_login_that_is_dropped_before_the_scheduler_is_there_is_repeated(tmp_path: Path) -> None:
    """One of the workers' is; the scheduler begins when both have been reached."""
    script = tmp_path / "reach.sh"
    script.write_text(DROPPING.format(folder=tmp_path))
    words = ["faults.on_loss=continue", "iterations=3", "numerics=false"]
    file = write(tmp_path, reach=f"sh {script} {{command}}")
    _, results = launch(file, [f"hydra.run.dir={tmp_path}/run", *words])
    assert (tmp_path / "dropped").is_dir()
    assert len(results.iterations) == 6
