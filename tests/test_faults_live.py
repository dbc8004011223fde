"""Laws of ``benchmarks/faults/live.py``, and one of its cases."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from geomx._core import why_no_namespaces
from geomx.results.results import Results

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks" / "faults"))

import live
import outside
from cases import Case, cases


def results(**steps: list[float]) -> Results:
    """Return a run in which each worker's steps ended at these times, one of each party."""
    rows: list[dict[str, Any]] = [
        {"worker": f"{party}/worker0", "end_s": end}
        for party, ends in steps.items()
        for end in ends
    ]
    return Results(Path(), {}, rows, [], [])


def test_figures_of_a_run() -> None:
    run = results(east=[1.0, 2.0, 2.5, 3.0], west=[1.0, 7.0])
    assert outside.longest_pause_s(run, 1.5) == 6.0
    assert outside.longest_pause_s(run, 1.5, ["west"]) == 1.0
    assert outside.longest_pause_s(run, 2.2, ["west/worker0"]) == 0.5
    assert outside.back_s(run, "west", 5.0) == 2.0
    assert outside.back_s(run, "all", 1.5) == 5.5
    assert outside.back_s(run, "east/worker0", 3.5) == float("inf")


def test_rows_tell_whether_limits_hold(tmp_path: Path) -> None:
    case = Case("name", lambda folder, draw: {}, {"others_s": 2, "equal": 1})
    found = [
        {"others_s": 1.0, "equal": 1.0, "more": 9.0},
        {"others_s": 2.5, "equal": 0.0, "more": 1.0},
    ]
    table = {row["figure"]: row for row in live.rows(case, found, failed=1)}
    assert [table[name]["worst"] for name in ("others_s", "equal", "more")] == ["2.5", "0", "9"]
    assert [table[name]["holds"] for name in ("others_s", "equal", "more")] == ["no", "no", ""]
    assert (table["failed"]["times"], table["failed"]["holds"]) == ("1", "no")
    assert [row["holds"] for row in live.rows(case, found[:1], failed=0)] == ["yes", "yes", ""]


def test_rows_of_other_cases_are_kept(tmp_path: Path) -> None:
    first, second = cases()[:2]
    path = tmp_path / "live.csv"
    for case in (second, first, second):
        live.write(path, live.rows(case, [{"equal": 1.0}], failed=0))
    lines = path.read_text().splitlines()
    assert [line.split(",")[0].strip('"') for line in lines[1:]] == [
        case.name.split(",")[0] for case in (first, second)
    ]


@pytest.mark.slow
@pytest.mark.skipif(bool(why_no_namespaces()), reason="needs root and network namespaces")
def test_a_party_that_the_kernel_cuts_off_comes_back(tmp_path: Path, seed: int) -> None:
    (case,) = [each for each in cases() if each.name == "party cut for 3 s, continue"]
    figures = case.run(tmp_path, random.Random(seed))
    assert figures["equal"] == 1
    assert figures["others_s"] > 1  # the kernel did cut it off, and the others had to notice
    assert figures["back_s"] < float("inf")
