"""The node that failed first, from the notes and logs of all."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from geomx.kv.local import unshaped
from geomx.live.diagnosis import culprit, lost_another
from geomx.live.exit_status import INTERRUPTED, LOST
from geomx.live.files import path as file_of
from geomx.live.files import stem

CLUSTER = unshaped({"east": 2, "west": 2}).cluster
STARTED: dict[str, Any] = {"started": 1.0}
END = {"end": {"status": "lost", "lost": ["west/server", "killed by SIGKILL"]}}


def note(folder: Path, name: str, *notes: dict[str, Any]) -> None:
    """Write the notes of a node."""
    file = file_of(stem(folder, name), ".jsonl")
    file.write_text("".join(json.dumps(each) + "\n" for each in notes))


def test_what_a_run_has_survived_does_not_explain_its_end(tmp_path: Path) -> None:
    """A server was lost: one of its workers has been replaced, the other was given up."""
    (tmp_path / "nodes").mkdir()
    note(tmp_path, "west/worker0", STARTED, END, {"again": True}, STARTED)
    note(tmp_path, "west/worker1", STARTED, END)
    note(tmp_path, "east/worker1", STARTED)
    file_of(stem(tmp_path, "east/worker1"), ".log").write_text("ValueError: no such data\n")
    lost = culprit(CLUSTER, tmp_path, {"east/worker1": 1, "west/worker0": INTERRUPTED})
    assert (lost.name, lost.reason) == ("east/worker1", "exit status 1: ValueError: no such data")
    assert "no such data" in lost.__notes__[0]


def test_a_deleted_folder_of_logs_is_the_reason(tmp_path: Path) -> None:
    lost = culprit(CLUSTER, tmp_path, {"east/worker1": 1})
    said = f"exit status 1: {tmp_path}/nodes was deleted while its run wrote files there"
    assert lost.reason.startswith(said)


def test_a_report_of_the_present_loss_names_the_lost_node(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    note(tmp_path, "west/worker0", STARTED, END, {"again": True}, STARTED, END)
    lost = culprit(CLUSTER, tmp_path, {"west/worker0": LOST, "east/worker1": LOST})
    assert (lost.name, lost.reason) == ("west/server", "killed by SIGKILL")


def test_the_end_of_a_standby_is_not_that_of_the_server_that_it_replaces(tmp_path: Path) -> None:
    """Both note theirs under the server's name, in either order."""
    (tmp_path / "nodes").mkdir()
    server, done = "west/server", {"end": {"status": "done"}}
    for order in ((END, done), (done, END)):
        note(tmp_path, server, STARTED, {"recovered": 2.0}, *order)
        assert lost_another(tmp_path, server, LOST)
    note(tmp_path, server, STARTED, END, {"again": True}, STARTED, done)
    assert not lost_another(tmp_path, server, LOST)


def test_real_time_signals_without_a_name_have_their_number(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    for number in (signal.SIGKILL, signal.SIGRTMIN + 1):
        lost = culprit(CLUSTER, tmp_path, {"east/worker1": -number})
        name = "SIGKILL" if number == signal.SIGKILL else f"signal {number}"
        assert (lost.name, lost.reason) == ("east/worker1", f"killed by {name}")
