"""Signals end the command line with one line and its exit status, whenever they come."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from geomx.limits import watchdog

pytestmark = pytest.mark.slow

PROGRAM = """
import os, signal, sys, time
from geomx.cli import main

def signalled():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(300):
        time.sleep(0.1)

def within_a_library():
    try:
        signalled()
    except BaseException:
        raise AttributeError("of a half-made object") from None

class Deleted:
    def __del__(self):
        signalled()

def while_an_object_is_deleted():
    Deleted()
    for _ in range(300):
        time.sleep(0.1)

status = main._guarded(globals()[sys.argv[1]])
os.kill(os.getpid(), signal.SIGINT)
time.sleep(0.01)
sys.exit(status)
"""


@pytest.mark.parametrize("when", ["signalled", "within_a_library", "while_an_object_is_deleted"])
def test_a_signal_and_a_second_one_are_one_line(when: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_the_second_signal_abandons_work_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process then ends at once, without its thread: see `geomx.cli.main.ended`."""
    abandoned: list[watchdog._Work] = []
    monkeypatch.setattr(watchdog, "_abandoned", abandoned)
    work = watchdog._Work(lambda: None)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(work, "_pause_s", interrupted)
    monkeypatch.setattr(work, "_stop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        work.result()
    assert abandoned == [work]
