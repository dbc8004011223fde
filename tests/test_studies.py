"""Scripts of ``benchmarks`` whose results are incomplete, or depend on the speed of the machine."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


def script(name: str) -> dict[str, Any]:
    """Return what a script defines."""
    defined = runpy.run_path(str(ROOT / "benchmarks" / name))
    names: dict[str, Any] = defined["main"].__globals__
    return names


# ---- plan/choice.py ----


def row(sim_s: float | None, live_s: float | None, ran: bool = True) -> dict[str, Any]:
    return {
        "name": "x", "status": "ranked" if sim_s else "refused", "sim_s": sim_s, "live_s": live_s,
        "sim_iteration_s": sim_s, "live_iteration_s": 0.1 if ran else None, "live_accuracy": None,
    }  # fmt: skip


@pytest.mark.slow
def test_a_candidate_that_cannot_be_run_is_the_last() -> None:
    choice = script("plan/choice.py")
    rows = [row(1.0, 2.0), row(2.0, 1.0), row(None, None, ran=False), row(3.0, None)]
    found = choice["judge"](rows)
    assert found == {"rank_live": 2, "regret": 1.0, "tau": pytest.approx(-1.0)}
    network = {"parties": {}, "delay_ms": 1}
    text = choice["table"]({"number": 1, "network": network, "candidates": rows, **found})
    assert "| x | refused | not run | - | - | - |" in text and "| not reached |" in text
    missed = choice["judge"](rows[2:])
    assert (missed["regret"], missed["tau"]) == (None, None)
    assert "NaN" not in json.dumps(missed)
    choice["table"]({"number": 1, "network": network, "candidates": rows, **missed})


@pytest.mark.slow
def test_a_refused_live_run_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    choice = script("plan/choice.py")
    candidate = {
        "name": "fsa", "sync": "fsa", "accel": [], "status": "refused", "seconds": None,
        "seconds_per_iteration": None, "command": "python -m geomx iterations=0",
    }  # fmt: skip
    plan = {"candidates": [candidate], "target_accuracy": None, "by": "seconds_per_iteration"}
    (made,) = choice["run_all"](plan, tmp_path)
    assert made["live_s"] is made["live_iteration_s"] is made["live_accuracy"] is None
    assert "fsa: iterations=0: " in capsys.readouterr().err


# ---- compare/run.py ----


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--only", "fsa;diloco"], ["--only", "diloco"], ["--page"]])
def test_an_incomplete_comparison_writes_no_page(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    compare = script("compare/run.py")
    page = tmp_path / "compare.md"
    page.write_text("<!-- measured: compare -->\nold\n<!-- end -->\n")

    def run(study: Any, words: Any, seed: int) -> dict[str, Any]:
        curve = [(step, step / 10, 3.0 - step / 200) for step in range(19, 400, 20)]
        return {"curve": curve, "accuracy": 0.5, "seconds": 40.0, "up": 2e6, "down": 2e6}

    changed = {"PAGE": page, "RESULTS": tmp_path, "run": run}
    for name, value in changed.items():
        monkeypatch.setitem(compare, name, value)
    monkeypatch.setattr(sys, "argv", ["run.py", *words])
    compare["main"]()
    assert "old" in page.read_text()
    out = capsys.readouterr().out
    assert "compare.md is not written without runs of " in out
    assert ("| fsa | " in out) == ("fsa" in words[-1])
    monkeypatch.setattr(sys, "argv", ["run.py"])
    compare["main"]()
    text = page.read_text()
    assert "old" not in text and all(f"| {name} | " in text for name in compare["CHOICES"])


# ---- faults/mutations.py ----


def test_a_search_may_take_longer_with_more_seeds_or_on_a_slower_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutations = script("faults/mutations.py")
    limits = []
    for took_s, seeds in ((6.0, 10_000), (12.0, 10_000), (6.0, 20_000)):
        monkeypatch.setitem(mutations, "search", lambda tree, seeds, s=took_s: (0, "", s))
        limits.append(mutations["longest_s"](Path("tree"), seeds))
    assert limits == [600.0, 1200.0, 1200.0]
    monkeypatch.setitem(mutations, "search", lambda tree, seeds: (1, "seed 3 breaks a law", 1.0))
    with pytest.raises(SystemExit, match="breaks without any bug"):
        mutations["longest_s"](Path("tree"), 10)
