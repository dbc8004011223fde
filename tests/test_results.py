"""Laws of a run's files: names, columns, sums, reproducibility, and completeness."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import rich.console

import geomx.errors
from geomx.network.topology import to_cluster
from geomx.pages.page import render
from geomx.results.files import (
    Row,
    Table,
    plain,
    read_arrays,
    read_network,
    read_table,
    write_arrays,
)
from geomx.results.prediction import compare
from geomx.results.recorder import Recorder
from geomx.results.results import UNFINISHED, Results
from geomx.results.tables import comparison_table
from geomx.results.trace import Span, Timeline
from geomx.results.trace import read as read_timeline
from geomx.results.traffic import EdgeTraffic
from geomx.study.variants import Variant, finished
from geomx.terminal import progress
from tests.report_fixture import graph, header, record, run

pytestmark = pytest.mark.interpreter  # files and encodings

FILES = {
    "summary.json", "iterations.csv", "evaluations.csv", "links.csv", "edges.csv", "trace.json",
    "report.html", "parameters.npz", "network.json",
}  # fmt: skip
COLUMNS = {
    "iterations.csv": "worker,party,iteration,start_s,compute_s,wait_s,end_s,loss,samples",
    "evaluations.csv": "time_s,iteration,accuracy,loss",
    "links.csv": "source,target,kind,bytes,messages,busy_s,control_bytes",
    "edges.csv": "source,target,bytes,busy_s,utilisation,mean_mbps,peak_mbps,peak_flows,"
    "peak_queue_bytes",
}
INTO_HUB = ("hub/wan", "hub")
FIELDS = {
    "schema", "geomx", "mode", "seed", "sync", "accel", "network", "workload", "iterations",
    "rounds", "seconds", "seconds_per_iteration", "samples_per_second", "bytes", "accuracy",
    "loss", "wall_seconds",
}  # fmt: skip


def text(renderable: object) -> str:
    console = rich.console.Console(width=120, file=io.StringIO(), record=True)
    console.print(renderable)
    return console.export_text()


def test_a_run_has_all_files_with_documented_columns_and_fields(tmp_path: Path) -> None:
    results = run(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == FILES
    for name, columns in COLUMNS.items():
        assert (tmp_path / name).read_text().splitlines()[0] == columns
    assert results.summary.keys() >= FIELDS
    assert results.summary["bytes"].keys() >= {"wan_push", "wan_pull", "lan"}
    assert json.loads((tmp_path / "summary.json").read_text()) == results.summary


def test_equal_runs_have_equal_files_and_other_seeds_others(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run(tmp_path / name, seed=seed)
    for name in FILES:
        first = (tmp_path / "a" / name).read_bytes()
        assert first == (tmp_path / "b" / name).read_bytes(), name
    for name in ("iterations.csv", "parameters.npz"):
        assert (tmp_path / "a" / name).read_bytes() != (tmp_path / "c" / name).read_bytes(), name


def test_results_are_read_back(tmp_path: Path) -> None:
    results = run(tmp_path)
    assert Results.load(tmp_path) == results
    with pytest.raises(geomx.errors.GeomxError, match="does not hold a run"):
        Results.load(tmp_path / "nowhere")
    (tmp_path / "iterations.csv").unlink()
    with pytest.raises(geomx.errors.GeomxError, match=r"run: it has no iterations\.csv$"):
        Results.load(tmp_path)


def test_a_folder_of_several_runs_says_where_they_are(tmp_path: Path) -> None:
    for place in ("both/sim", "both/live", "study/a", "study/b/live"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "summary.json").touch()
    both = tmp_path / "both"
    with pytest.raises(geomx.errors.GeomxError, match=f"are in {both}/sim and {both}/live$"):
        Results.load(both)
    with pytest.raises(geomx.errors.GeomxError, match=r"there are runs in it: a, b$"):
        Results.load(tmp_path / "study")


def test_iterations_are_sorted(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, header(), render=render)
    recorder.network(graph())
    for worker in ("chengdu/worker1", "beijing/worker0"):
        for iteration in (1, 0):
            party = worker.split("/")[0]
            recorder.iteration(worker, party, iteration, 0.0, 1.0, 0.0, 1.0, None, 8)
    results = recorder.finish(1.0, 1, 0.1)
    with (tmp_path / "iterations.csv").open() as file:
        found = [(row["worker"], int(row["iteration"])) for row in csv.DictReader(file)]
    expected = [(name, i) for i in (0, 1) for name in ("beijing/worker0", "chengdu/worker1")]
    assert found == expected == [(row["worker"], row["iteration"]) for row in results.iterations]


def test_sums_and_percentiles(tmp_path: Path) -> None:
    results = run(tmp_path)
    took = [row["end_s"] - row["start_s"] for row in results.iterations]
    per_iteration = results.summary["seconds_per_iteration"]
    assert per_iteration["mean"] == pytest.approx(np.mean(took), abs=1e-9)
    assert per_iteration["p50"] == pytest.approx(np.percentile(took, 50), abs=1e-9)
    assert per_iteration["p95"] == pytest.approx(np.percentile(took, 95), abs=1e-9)
    samples = sum(row["samples"] for row in results.iterations)
    assert results.summary["samples_per_second"] == samples / results.summary["seconds"]
    total = sum(row["bytes"] + row["control_bytes"] for row in results.links)
    assert sum(results.summary["bytes"].values()) == total
    accuracies = [row["accuracy"] for row in results.evaluations]
    assert results.summary["accuracy"] == {"final": accuracies[-1], "best": max(accuracies)}


def test_directions_share_a_row_and_control_bytes_are_separate(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, header(), render=render)
    for direction, count in (("push", 100), ("pull", 20), ("control", 3)):
        recorder.link("a/server", "b/server", "wan", direction, count, 1, 0.25)
        recorder.link("a/worker0", "a/server", "lan", direction, count, 1, 0.25)
    results = recorder.finish(1.0, 1, 0.1)
    counts = ("bytes", "messages", "busy_s", "control_bytes")
    assert [tuple(row[count] for count in counts) for row in results.links] == [
        (120, 2, 0.75, 3),
        (120, 2, 0.75, 3),
    ]
    expected = {"wan_push": 100, "wan_pull": 20, "lan": 120, "control": 6}
    assert results.summary["bytes"] == expected


def edges_of(into_hub: dict[str, object], seconds: float | None) -> dict[tuple[str, str], Row]:
    """Return the edges' load of pushes of 1 and 2 MB, with attributes of the hub's downlink."""
    sites = graph()
    sites.edges[INTO_HUB].update(into_hub)
    links = [
        {"source": f"{party}/server", "target": "hub/global_server0", "bytes": sent, "busy_s": busy}
        for party, sent, busy in (("beijing", 1_000_000, 0.5), ("chengdu", 2_000_000, 0.75))
    ]
    rows = EdgeTraffic(to_cluster(sites, "drawn", Path()), seed=3).rows(links, seconds)
    return {(row["source"], row["target"]): row for row in rows}


def test_utilisation_uses_the_integral_of_the_bandwidth() -> None:
    slower = edges_of({"trace": [[0.0, 100.0], [3.0, 20.0]]}, 4.0)[INTO_HUB]
    assert (slower["bytes"], slower["busy_s"]) == (3_000_000, 0.75)
    assert slower["utilisation"] == pytest.approx(24 / (300 + 20))
    down = {"outages": [{"start_s": 1.0, "end_s": 3.0}], "bandwidth_mbps": 100.0}
    assert edges_of(down, 4.0)[INTO_HUB]["utilisation"] == pytest.approx(24 / 200)
    rows = edges_of({"bandwidth_mbps": float("inf")}, 4.0)
    assert rows[INTO_HUB]["utilisation"] is None
    assert rows["beijing", "beijing/wan"]["utilisation"] == pytest.approx(8 / (50 * 4))
    assert rows["beijing/wan", "beijing"]["utilisation"] == 0
    assert {row["bytes"] for row in rows.values()} == {0, 1_000_000, 2_000_000, 3_000_000}
    assert all(row["utilisation"] is None for row in edges_of({}, None).values())


def test_a_run_without_numerics_has_no_loss_and_no_accuracy(tmp_path: Path) -> None:
    results = run(tmp_path, numerics=False)
    assert results.summary["loss"] == {"final": None}
    assert results.summary["accuracy"] == {"final": None, "best": None}
    assert results.parameters() == {}
    assert results.iterations[0]["loss"] is None
    assert "accuracy" not in text(results.table())


def test_what_was_told_last_is_final(tmp_path: Path) -> None:
    """Scripts may report an accuracy and a loss apart."""
    recorder = Recorder(tmp_path, header(), render=render)
    recorder.iteration("a/worker0", "a", 0, 0.0, 1.0, 0.0, 1.0, None, 8)
    recorder.evaluation(1.0, 0, None, 0.5)
    recorder.evaluation(1.5, 0, 0.75, None)
    summary = recorder.finish(2.0, 1, 0.1).summary
    assert summary["loss"] == {"final": 0.5}
    assert summary["accuracy"] == {"final": 0.75, "best": 0.75}


def test_a_nan_loss_is_written_as_valid_json(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, header(), render=render)
    recorder.iteration("a/worker0", "a", 0, 0.0, 1.0, 0.0, 1.0, float("nan"), 8)
    recorder.finish(1.0, 1, 0.1)
    assert json.loads((tmp_path / "summary.json").read_text())["loss"]["final"] is None


def test_an_aborted_run_keeps_results_and_the_reason(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, header(), render=render)
    record(recorder, iterations=5)
    recorder.abort("node beijing/worker0 was lost")
    recorder.abort(KeyboardInterrupt())  # too late
    results = Results.load(tmp_path)
    assert len(results.iterations) == 20
    assert results.summary["aborted"] == "node beijing/worker0 was lost"
    assert results.summary["seconds"] == max(row["end_s"] for row in results.iterations)
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert "was lost" in text(results.table())


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("summary.json", b'{"schema": ', "is damaged: Expecting value"),
        ("summary.json", b"[1, 2]", "is damaged: it holds no object"),
        ("iterations.csv", b"\xb1\x00", "is damaged: 'utf-8' codec can't decode"),
        ("summary.json", b"{}", "is damaged: it has no schema, which"),
        ("summary.json", b'{"schema": 1}', "is damaged: it has no mode, which"),
        (
            "summary.json",
            b'{"schema": 2, "geomx": "9.1"}',
            f"has schema 2, and geomx {geomx.__version__} reads schema 1: read the run with "
            "geomx 9.1, or repeat it",
        ),
        ("iterations.csv", b"", "is damaged: its first line lacks the column worker;"),
        ("links.csv", b"source,target\n", "is damaged: its first line lacks the column kind;"),
        (
            "evaluations.csv",
            b"time_s,iteration,accuracy,loss\n1.0,3\n",
            "is damaged: line 2: 2 fields, and 4 columns; copy the run's folder anew, or repeat",
        ),
        (
            "evaluations.csv",
            b"time_s,iteration,accuracy,loss\n1.0,3,0.5,0.",
            "is damaged: it ends within line 2;",
        ),
        (
            "evaluations.csv",
            b"time_s,iteration,accuracy,loss\n1.0,3,0.5,x\n",
            "is damaged: line 2: could not convert string to float: 'x';",
        ),
    ],
)
def test_a_damaged_file_is_named(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, header(), render=render)
    record(recorder, iterations=1)
    recorder.finish(1.0, 1, 0.1)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(geomx.errors.GeomxError, match=re.escape(f"{tmp_path / name} {sentence}")):
        Results.load(tmp_path)


@pytest.mark.parametrize(("read", "what"), [(read_timeline, "timeline"), (read_network, "network")])
def test_json_of_something_else_is_damaged(read: Any, what: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    for content in ("{}", '{"traceEvents": [3], "nodes": 1, "edges": 2}'):
        path.write_text(content)
        wanted = re.escape(f"{path} is damaged: it holds no {what} (")
        with pytest.raises(geomx.errors.GeomxError, match=wanted):
            read(path)


def test_a_study_runs_a_variant_again_whose_results_cannot_be_read(tmp_path: Path) -> None:
    run(tmp_path)
    summary, file = Results.load(tmp_path).summary, tmp_path / "summary.json"
    file.write_text(json.dumps({**summary, "geomx": geomx.__version__, "words": ["seed=1"]}))
    variant = Variant(("seed=1",), (), tmp_path)
    assert finished(variant)
    (tmp_path / "iterations.csv").write_text("")
    assert not finished(variant)


def test_tables_of_older_versions_have_fewer_edges_columns(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "edges.csv").write_text("source,target,bytes,busy_s,utilisation\na,b,3,0.5,0.1\n")
    assert Results.load(tmp_path).edges[0]["bytes"] == 3


@pytest.mark.slow
def test_a_killed_process_has_written_its_rows(tmp_path: Path) -> None:
    script = (
        "import os, sys, pathlib\n"
        "from geomx.pages.page import render\n"
        "from geomx.results.recorder import Recorder\n"
        "header = {'schema': 1, 'mode': 'sim'}\n"
        "recorder = Recorder(pathlib.Path(sys.argv[1]), header, render=render)\n"
        "for i in range(7):\n"
        "    recorder.iteration('a/worker0', 'a', i, i, 0.5, 0.5, i + 1, 1.0, 32)\n"
        "recorder.evaluation(7.0, 6, 0.5, 1.0)\n"
        "os._exit(9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == 9
    results = Results.load(tmp_path)
    assert [row["iteration"] for row in results.iterations] == list(range(7))
    assert len(results.evaluations) == 1
    assert results.summary["aborted"] == UNFINISHED
    with (tmp_path / "iterations.csv").open("a") as file:
        file.write("a/worker0,a,7,7.")
    assert Results.load(tmp_path).iterations == results.iterations


def test_network_json_is_read_back(tmp_path: Path) -> None:
    Recorder(tmp_path, header(), render=render).network(graph())
    data = json.loads((tmp_path / "network.json").read_text())
    found = nx.node_link_graph(data, edges="edges")
    expected = graph()
    for _, _, edge in expected.edges(data=True):
        if edge["bandwidth_mbps"] == float("inf"):
            del edge["bandwidth_mbps"]
    assert nx.utils.graphs_equal(found, expected)
    assert "Infinity" not in (tmp_path / "network.json").read_text()


def test_parameters_are_readable_by_numpy(tmp_path: Path) -> None:
    arrays = {"a/weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(0)}
    Recorder(tmp_path, header(), render=render).parameters(arrays)
    with np.load(tmp_path / "parameters.npz") as archive:
        assert list(archive) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(archive[name], array)


def test_a_folder_that_is_deleted_during_its_run_is_an_error_of_one_sentence(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    table = Table(folder / "table.csv", ("iteration", "loss"))
    shutil.rmtree(folder)
    said = rf"^{folder} was deleted while its run wrote files there; run it again$"
    with pytest.raises(geomx.errors.GeomxError, match=said):
        table.close([{"iteration": 0, "loss": 1.0}])


def test_a_table_that_is_deleted_during_its_run_is_written_anew(tmp_path: Path) -> None:
    table = Table(tmp_path / "table.csv", ("iteration", "loss"))
    table.add({"iteration": 0, "loss": 1.0})
    table.path.unlink()
    table.add({"iteration": 1, "loss": 0.5})
    table.close()
    assert [row["loss"] for row in read_table(table.path)] == [1.0, 0.5]


def test_cells_are_read_back(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    values = (None, 0.0, 1e-9, 1e300, *random.normal(size=50))
    table = Table(tmp_path / "table.csv", ("iteration", "loss"))
    for number, value in enumerate(values):
        table.add({"iteration": number, "loss": value})
    table.close(table.rows[::-1])
    rows = [(row["iteration"], row["loss"]) for row in read_table(table.path)]
    assert rows[::-1] == list(enumerate(values)), "seed 7"
    assert plain({"a": np.float32(1.5), "b": (np.int64(2), float("inf"))}) == {
        "a": 1.5,
        "b": [2, None],
    }


def test_the_trace_is_valid_for_perfetto(tmp_path: Path) -> None:
    run(tmp_path)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {
        (event["name"], event["pid"], event["tid"]): event["args"]
        for event in events
        if event["ph"] == "M"
    }
    spans = [event for event in events if event["ph"] == "X"]
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in spans:
        assert event["dur"] >= 0
        assert ("process_name", event["pid"], 0) in names
        assert ("thread_name", event["pid"], event["tid"]) in names
        end = round(event["ts"] + event["dur"], 3)
        lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], end))
    for lane in lanes.values():  # Perfetto needs nested spans in a lane
        ends: list[float] = []
        for start, end in lane:
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or end <= ends[-1]
            ends.append(end)
    processes = [a["name"] for (kind, _, _), a in names.items() if kind == "process_name"]
    assert processes == ["hub", "beijing", "chengdu", "WAN links"]
    threads = {args["name"] for (kind, _, _), args in names.items() if kind == "thread_name"}
    assert {"beijing/worker0", "beijing/worker0 · send", "hub/global_server0"} <= threads
    assert any(event["ph"] == "C" for event in events)


def test_a_long_run_keeps_its_first_and_last_spans(tmp_path: Path) -> None:
    timeline = Timeline(max_spans=10)
    for index in range(100):
        timeline.add(Span("n", "p", str(index), "compute", float(index), 0.5, {}))
    kept = [*range(5), *range(95, 100)]
    assert [int(span.name) for span in timeline.spans] == kept
    assert timeline.dropped == 90
    timeline.write(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["otherData"]["dropped_spans"] == 90


def test_comparing_a_run_with_itself_has_no_differences(tmp_path: Path) -> None:
    results = run(tmp_path)
    comparison = compare(results, results)
    for group, entries in comparison.items():
        if group != "parameters":
            assert all(entry["relative_error"] == 0.0 for entry in entries.values()), group
    assert comparison["parameters"]["max_relative_difference"] == 0.0
    assert "equal" in text(comparison_table(comparison))


def test_comparisons_have_signed_errors_and_the_largest_difference(tmp_path: Path) -> None:
    runs = []
    for name, seconds, weight in (("sim", 0.9, 2.0), ("live", 1.0, 2.5)):
        recorder = Recorder(tmp_path / name, header(mode=name), render=render)
        recorder.iteration("a/worker0", "a", 0, 0.0, 0.5, 0.1, seconds, 1.0, 8)
        recorder.parameters({"w": np.array([weight, 0.0], np.float32), "b": np.zeros(2)})
        runs.append(recorder.finish(seconds, 1, 1.0))
    comparison = compare(*runs)
    mean = comparison["seconds_per_iteration"]["mean"]
    assert (mean["sim"], mean["live"]) == (0.9, 1.0)
    assert mean["relative_error"] == pytest.approx(-0.1)
    assert comparison["accuracy"]["final"]["relative_error"] is None
    assert comparison["parameters"]["max_relative_difference"] == pytest.approx(0.2)
    json.dumps(comparison, allow_nan=False)


@pytest.mark.parametrize("diverged", [math.nan, math.inf])
def test_what_has_diverged_has_no_error(diverged: float, tmp_path: Path) -> None:
    runs = []
    for name, weight in (("sim", diverged), ("live", 1.0)):
        recorder = Recorder(tmp_path / name, header(mode=name), render=render)
        recorder.iteration("a/worker0", "a", 0, 0.0, 0.5, 0.1, 1.0, diverged, 8)
        recorder.parameters({"a": np.ones(2), "w": np.array([weight, 0.0], np.float32)})
        runs.append(recorder.finish(1.0, 1, 1.0))
    comparison = compare(*runs)
    assert comparison["loss"]["final"]["relative_error"] is None
    assert comparison["parameters"]["max_relative_difference"] is None
    assert "nan" not in text(comparison_table(comparison))


def test_comparing_different_models_names_the_tensors(tmp_path: Path) -> None:
    runs = []
    for name, shape in (("sim", 2), ("live", 3)):
        recorder = Recorder(tmp_path / name, header(), render=render)
        recorder.parameters({"same": np.ones(1), "other": np.ones(shape)})
        runs.append(recorder.finish(1.0, 1, 1.0))
    parameters = compare(*runs)["parameters"]
    assert parameters == {"max_relative_difference": None, "mismatch": ["other"], "tensors": 2}


def test_the_table_shows_the_main_figures(tmp_path: Path) -> None:
    shown = text(run(tmp_path).table())
    for expected in ("hfa + dgt, p3", "time per iteration", "p95", "WAN push", "14.3 MB", "0.92"):
        assert expected in shown


def test_the_progress_bar_needs_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress.progress(3, "simulating") as advance:
        for i in range(3):
            advance(1, time_s=float(i), loss=None)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_long_work_in_a_pipe_reports_progress_periodically(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now_s)
    with progress.progress(1000, "training") as advance:
        for step in range(1000):
            now_s += 1.0
            advance(1, time_s=step / 10, loss=0.5)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "training: 15 of 1,000, at 1.40 s, loss 0.5000, about 985 s left"
    done = [int(line.split(": ")[1].split(" of")[0].replace(",", "")) for line in lines]
    pauses = [later - earlier for earlier, later in pairwise(done)]
    assert all(15 <= pause <= 300 for pause in pauses)
    assert pauses == sorted(pauses)
    assert len(lines) < 15


def test_the_progress_bar_shows_time_and_loss_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    with progress.progress(3, "simulating") as advance:
        advance(2, time_s=1.5, loss=0.25)
    shown = capsys.readouterr().err
    for expected in ("simulating", "2/3", "at 1.50 s", "loss 0.2500"):
        assert expected in shown


@pytest.mark.parametrize(("takes_s", "shown"), [(0.001, False), (0.1, True)])
def test_progress_of_a_long_setup_is_shown(
    takes_s: float,
    shown: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After two seconds on a terminal, after fifteen in a pipe."""
    now_s = 1000.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now_s)
    monkeypatch.setenv("TERM", "xterm")
    for terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda given=terminal: given, raising=False)
        seen = []
        for item in progress.stage(range(1000), "building nodes"):
            seen.append(item)
            now_s += takes_s
        assert seen == list(range(1000))
        assert ("building nodes" in capsys.readouterr().err) == shown


def test_arrays_are_read_as_numpy_reads_them(tmp_path: Path) -> None:
    names = ["b", "a.npy", "layer/weight", *map(str, range(50))]
    arrays = {name: np.arange(n, dtype="f4").reshape(n, 1) for n, name in enumerate(names)}
    write_arrays(tmp_path / "arrays.npz", arrays)
    found = read_arrays(tmp_path / "arrays.npz")
    assert list(found) == names
    with np.load(tmp_path / "arrays.npz") as expected:
        for name in names:
            np.testing.assert_array_equal(found[name], expected[name])
    np.savez(tmp_path / "objects.npz", object=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_arrays(tmp_path / "objects.npz")
