"""The combined files of mode=both: one report and one trace of both runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from geomx.pages import both
from geomx.results.prediction import compare
from geomx.results.results import Results
from tests.report_fixture import run
from tests.test_report import Checker


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Results, Results]:
    sim = run(tmp_path / "sim", seed=0)
    live = run(tmp_path / "live", seed=1)
    both.leave(sim, live, compare(sim, live), tmp_path)
    return sim, live


def test_the_report_shows_both_runs_in_the_same_charts(
    pair: tuple[Results, Results], tmp_path: Path
) -> None:
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert checker.links == ["sim/report.html", "live/report.html"]
    charts = page.split('data-hover="')[1:]
    names = ["Training loss over time", "Held-out loss", "Accuracy over time", "Time per iteration"]
    assert len(charts) == len(names)
    for name, chart in zip(names, charts, strict=True):
        assert name in page
        for series in ("simulated", "live"):
            assert f"&quot;name&quot;:&quot;{series}&quot;" in chart
    for results in pair:
        shown = f"{results.evaluations[-1]['loss']:.4f}"
        assert shown in charts[1], shown
    comparison = json.loads((tmp_path / "comparison.json").read_text())
    assert comparison["loss"]["final"]["sim"] == pair[0].summary["loss"]["final"]


def test_the_trace_contains_both_timelines(pair: tuple[Results, Results], tmp_path: Path) -> None:
    """All events of both runs are contained; only their process ids are changed."""
    merged = json.loads((tmp_path / "trace.json").read_text())
    processes: dict[int, str] = {
        event["pid"]: event["args"]["name"]
        for event in merged["traceEvents"]
        if event["name"] == "process_name"
    }
    assert len(set(processes.values())) == len(processes)
    seen = 0
    for results in pair:
        mode = results.directory.name
        alone = json.loads((results.directory / "trace.json").read_text())
        pids = {pid for pid, name in processes.items() if name.startswith(f"{mode} · ")}
        mine = [event for event in merged["traceEvents"] if event["pid"] in pids]
        seen += len(mine)
        assert [_bare(event, mode) for event in mine] == [
            _bare(event, mode) for event in alone["traceEvents"]
        ]
        assert merged["otherData"][mode] == alone["otherData"]
    assert seen == len(merged["traceEvents"]) > 0


def _bare(event: dict[str, Any], mode: str) -> dict[str, Any]:
    """Return an event without the fields that identify its run."""
    text = json.dumps({key: value for key, value in event.items() if key != "pid"})
    bare = json.loads(text.replace(f"{mode} \\u00b7 ", ""))
    if event["name"] == "process_sort_index":
        del bare["args"]
    return bare


def test_a_run_without_numerics_has_both_timelines(tmp_path: Path) -> None:
    runs = [run(tmp_path / mode, numerics=False) for mode in ("sim", "live")]
    both.leave(*runs, compare(*runs), tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Time per iteration" in page
    assert "loss over time" not in page
