"""Lines of the log: as text and as JSON, by launchers, nodes and their loops alike."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomx import _core
from geomx.cli.main import main
from geomx.errors import NodeLost
from geomx.live.files import stem
from geomx.live.relay import Relay
from geomx.machines.remote import to_terminal
from geomx.terminal import log, progress
from geomx.terminal.output import complain

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture
def as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have lines in JSON."""
    monkeypatch.setenv(log.FORMAT, "json")


def parsed(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the lines on standard error, each of which must be JSON."""
    return [json.loads(line) for line in capfd.readouterr().err.splitlines()]


def test_a_line_has_time_level_and_text(capfd: pytest.CaptureFixture[str]) -> None:
    log.say("a/server is lost", "warning", "a/server")
    line = capfd.readouterr().err
    assert re.fullmatch(rf"geomx: {STAMP} warning: a/server is lost\n", line)
    assert log.text_of(line.strip()) == "a/server is lost"


@given(text=st.text(), node=st.text(), warning=st.booleans())
def test_the_loop_writes_the_same_lines(text: str, node: str, warning: bool) -> None:
    text, node = (each.encode(errors="replace").decode() for each in (text, node))
    told = json.loads(_core.notice_line(True, warning, node, text))
    assert re.fullmatch(STAMP, told.pop("time"))
    level = "warning" if warning else "info"
    assert told == {"node": node, "level": level, "text": text}
    assert list(told) == ["node", "level", "text"]
    (plain,) = _core.notice_line(False, warning, node, "a text").splitlines()
    assert re.fullmatch(rf"geomx: {STAMP} {level}: a text", plain)
    assert log.text_of(plain) == "a text"


@pytest.mark.parametrize(
    "line", ["loss 0.5", '{"time": 3}', '{"time": "x"}', '{"time": "', "geomx"]
)
def test_what_scripts_print_is_no_line_of_the_log(line: str) -> None:
    assert log.text_of(line) is None


def test_errors_and_progress_are_json_too(
    as_json: None, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = NodeLost("a/worker0", "killed by SIGKILL")
    lost.add_note("a/worker0: the end of run/nodes/a.worker0.log:\n  Traceback")
    assert complain(lost, 1) == 1
    now_s = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now_s)
    with progress.progress(100, "training") as advance:
        now_s = 20.0
        advance(40, time_s=3.5, loss=0.25)
    error, told = parsed(capfd)
    assert (error["level"], error["status"], error["node"]) == ("error", 1, "launcher")
    assert error["notes"] == lost.__notes__
    assert "a/worker0" in error["text"]
    assert (told["done"], told["total"], told["time_s"], told["loss"]) == (40, 100, 3.5, 0.25)
    assert told["text"].startswith("training: 40 of 100")


@pytest.mark.slow
def test_the_flag_is_that_of_geomx_and_not_of_a_script(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(log.FORMAT, "text")  # so that it is restored
    assert main(["launch", "no=such", "--", "train", "--json"]) == 2
    assert not log.is_json()
    capfd.readouterr()
    assert main(["--json", "no=such"]) == 2
    (error,) = parsed(capfd)
    assert error["level"] == "error" and "no" in error["text"]


def test_lines_of_nodes_on_other_machines_stay_json(
    as_json: None, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a script prints has the node's name before it, as without JSON."""
    log.say("waits", node="east/server")
    tell = to_terminal(12)
    tell("east/server", capfd.readouterr().err.strip())
    tell("east/server", "epoch 1")
    notice, printed = capfd.readouterr().err.splitlines()
    assert json.loads(notice)["node"] == "east/server"
    assert printed == "east/server  | epoch 1"


def test_a_launcher_shows_the_end_of_a_chain_of_waits_in_json(tmp_path: Path) -> None:
    shown: list[str] = []
    path = tmp_path / "a.log"
    waits = ["a/server has waited 5 s for hub/global_server0 to answer round 3 of key 0"]
    waits += ["hub/global_server0 has waited 5 s for b/server to push round 3 of key 0"]
    lines = [_core.notice_line(True, True, text.split()[0], text) for text in waits]
    path.write_text(lines[0] + "a print of a script\n" + lines[1])
    Relay(lambda: [path], 0.0, shown.append).look(last=True)
    assert [json.loads(line)["node"] for line in shown] == ["hub/global_server0"]


@pytest.mark.slow
def test_a_live_run_that_loses_a_node_writes_json_only(tmp_path: Path) -> None:
    words = ["--json", "mode=live", "workload=tiny", "iterations=100000", "faults.restarts=0"]
    command = [sys.executable, "-m", "geomx", *words, f"hydra.run.dir={tmp_path}/run"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        steps = tmp_path / "run" / "iterations.csv"
        while run.poll() is None and not (steps.exists() and steps.stat().st_size > 200):
            time.sleep(0.05)
        (worker,) = (
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _is(entry, str(stem(tmp_path / "run", "beijing/worker0")))
        )
        os.kill(worker, signal.SIGKILL)
        _, errors = run.communicate(timeout=30)
    finally:
        run.kill()
    assert run.returncode == 1
    told = [json.loads(line) for line in errors.splitlines()]
    assert all({"time", "node", "level", "text"} <= line.keys() for line in told)
    last = told[-1]
    assert last["level"] == "error" and last["status"] == 1
    assert "beijing/worker0" in last["text"] and "SIGKILL" in last["text"]
    assert f"{tmp_path}/run" in last["text"]


def _is(entry: Path, argument: str) -> bool:
    try:
        return argument in (entry / "cmdline").read_bytes().decode().split("\0")
    except OSError:
        return False
