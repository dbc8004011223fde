"""``benchmarks/live``: how figures are read from what workers write, and shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks" / "live"
sys.path.append(str(FOLDER))

import contenders
import run

del sys.modules["run"]  # other benchmarks have a module of this name


def test_memory_is_that_which_a_role_has_come_to_use():
    def facts(*sizes: int) -> list[list[object]]:
        names = ("a/server", "b/server", "hub/global_server0", "hub/scheduler")
        return [
            [f"python -m geomx.live --role server --name {name} --id 3", size]
            for name, size in zip(names, sizes, strict=True)
        ]

    grown = contenders.growth({"memory": [facts(1, 2, 3, 4), facts(11, 22, 43, 4)]})
    assert grown == {"server": 20, "global_server": 40, "scheduler": 0}
    assert contenders.growth({}) == {}


def test_a_round_lasts_from_the_first_start_to_the_last_end(tmp_path, monkeypatch):
    task = contenders.Task((8,), (2,), 2)
    monkeypatch.setattr(contenders.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    of = contenders.Run(task)
    for rank, spans in enumerate(([(1.0, 2.0), (5.0, 6.0)], [(0.5, 1.0), (5.5, 7.0)])):
        facts = {"init_s": 0.25 * rank, "spans": spans, "aside_s": 0.5}
        facts |= {"cpu_s": 3.0} if rank == 0 else {}
        (tmp_path / f"{rank}.json").write_text(json.dumps(facts))
    figures = of.of(lambda _: [])
    assert (figures.first_s, figures.rounds_s, figures.cpu_s) == (1.5, (2.0,), 2.0)
    assert figures.init_s == 0.25


def test_a_contender_whose_worker_is_missing_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(contenders.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    (tmp_path / "log").write_text("the reason")
    with pytest.raises(RuntimeError, match="the reason"):
        contenders.Run(contenders.Task((8,), (2,), 2)).of(lambda _: [])


def test_ratios_and_utilisation_are_of_the_first_contender():
    def ours(task: contenders.Task) -> contenders.Figures:
        return contenders.Figures(0.1, 0.4, (0.2, 0.3, 0.25), 0.5, {"server": task.bytes * 2})

    def other(task: contenders.Task) -> contenders.Figures:
        return contenders.Figures(0.1, 0.1, (0.1, 0.1), 0.25)

    def absent(task: contenders.Task) -> contenders.Figures:
        raise contenders.NotHereError("it is not installed")

    task = contenders.Task((8,), (2,), 2)
    contestants = {"geomx": ours, "other": other, "third": absent}
    row = run.measured(run.Row("x", "words", task, contestants, needed_s=0.2), passes=2)
    text = run.text(row)
    assert (
        "| other | 0.100 s | 0.100 s | 0.100 s | 0.100 s | 0.250 s | 2.00 times | 2.00 times |"
        in text
    )
    assert "80 % of their rate" in text and "server 2.0" in text
    assert "Without third: it is not installed." in text


@pytest.mark.slow
def test_an_unknown_row_is_refused():
    command = [sys.executable, str(FOLDER / "run.py"), "--only", "nothing"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("--only nothing: choose of one, many")
