"""What the command line prints and leaves, where it cannot be written."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from rich.console import Console

from geomx import calibrate
from geomx.cli import main as cli
from geomx.terminal.listing import listing


@pytest.mark.parametrize(
    "words",
    [
        "api",
        "--help",
        "launch --help",
        "--cfg job",
        pytest.param("run --help", marks=pytest.mark.slow),
        pytest.param("--info config", marks=pytest.mark.slow),
    ],
)
def test_words_for_a_full_output_end_with_one_line(
    words: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert cli.main(words.split()) == 1
    line = "standard output: No space left on device; make room, and run it again\n"
    assert capfd.readouterr().err == line


def test_words_for_a_pipe_that_nobody_reads_end_in_silence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    end, pipe = os.pipe()
    os.close(end)
    with open(pipe, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert cli.main(["--cfg", "job"]) == 1
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("command", ["plan", "launch", "simulate", "compat", "explain"])
def test_every_command_knows_the_short_flag_for_help(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for flag in ("-h", "--help"):
        with pytest.raises(SystemExit) as ended:
            cli.main([command, flag])
        assert ended.value.code == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] and shown[0].startswith(f"usage: geomx {command}")


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        ("file", "must be a folder"),
        ("file/calibration", "cannot be made: {here}/file is a file"),
        (
            "/proc/calibration",
            "cannot be written (No such file or directory); choose another folder",
        ),
    ],
)
def test_a_calibration_that_cannot_be_left_is_not_made(
    folder: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(calibrate, "run", None)
    (tmp_path / "file").write_text("")
    assert cli.main(["calibrate", "workload=tiny", "--output", folder]) == 2
    assert capfd.readouterr().err == f"--output={folder}: {sentence.format(here=tmp_path)}\n"


def test_an_earlier_calibration_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(calibrate, "table", lambda content: "")
    for number in range(3):
        monkeypatch.setattr(calibrate, "run", lambda experiment, number=number: {"made": number})
        assert cli.main(["calibrate", "workload=tiny"]) == 0
    made = {"costs-1": 0, "costs-2": 1, "costs": 2}
    for name, number in made.items():
        assert f"made: {number}" in (tmp_path / f"calibration/{name}.yaml").read_text()
    out = capfd.readouterr().out
    assert "calibration/costs.yaml was there already, and is calibration/costs-2.yaml now" in out


def test_a_working_directory_that_is_gone_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert cli.main(["workload=tiny"]) == 1
    assert capfd.readouterr().err == "the working directory is gone; change to another folder\n"


def test_a_narrow_list_leaves_empty_columns_out() -> None:
    row = ("workload", "tiny", "a network of few weights, for trying things out", "", "", "geomx")
    page, width = listing(("kind", "name", "what", "simulated", "live", "from"), [row], 2, 30)
    console = Console(width=width)
    with console.capture() as shown:
        console.print(page)
    assert [line.strip() for line in shown.get().splitlines()][-1] == "geomx"


@pytest.mark.parametrize("ignored", [True, False])
def test_a_closed_terminal_does_not_end_a_run_under_nohup(
    ignored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: dict[int, object] = {}
    monkeypatch.setattr(signal, "signal", handled.__setitem__)
    monkeypatch.setattr(
        signal, "getsignal", lambda number: signal.SIG_IGN if ignored else signal.SIG_DFL
    )
    cli._end_on_signals()
    assert handled.keys() >= {signal.SIGINT, signal.SIGTERM}
    assert (signal.SIGHUP in handled) is not ignored


@pytest.mark.needs("ring", "tsengine", "dgt")
@pytest.mark.parametrize("accel", ["ring,tsengine", "dgt,ring"])
def test_accelerators_that_exclude_each_other_leave_no_run(
    accel: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert cli.main(["workload=tiny", f"accel=[{accel}]", f"hydra.run.dir={folder}"]) == 2
    assert capfd.readouterr().err.startswith(f"accel=[{accel}]: ")
    assert not folder.exists()
