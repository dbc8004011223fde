"""Laws of ``geomx explain``: known causes are found, and predicted changes have their effect."""

from __future__ import annotations

import json
import random
import shlex
from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from joblib.externals.loky import get_reusable_executor

import geomx
from geomx.cli import main as cli
from geomx.explaining import explain
from geomx.explaining.evidence import Evidence
from geomx.explaining.parts import edge_name, parts_of, sentence
from geomx.explaining.path import critical_path
from geomx.pages import wan
from geomx.plugin.registry import Registry
from geomx.plugin.tracking import TrackedRun
from geomx.results import trace
from geomx.runner import run
from tests.laws import registry_with

pytestmark = pytest.mark.slow

Content = dict[str, Any]

FAST = 10_000


def network(
    folder: Path, *, uplink: int = FAST, delay_ms: float = 1.0, speed: float = 1.0, workers: int = 2
) -> str:
    """Return two parties, east and west, with the given uplink and last worker of west."""
    path = folder / "net.yaml"
    others = f"uplink_mbps: {FAST}, downlink_mbps: {FAST}"
    path.write_text(
        f"""
central: {{name: hub, global_servers: 1, {others}}}
parties:
  east: {{workers: {workers}, {others}}}
  west:
    workers: {workers}
    uplink_mbps: {uplink}
    downlink_mbps: {FAST}
    speed: {[1.0] * (workers - 1) + [speed]}
delay_ms: {delay_ms}
lan: {{mbps: 100000, delay_ms: 0.01}}
""",
        encoding="utf-8",
    )
    return f"network={path}"


def words(
    folder: Path, elements: int, compute_ms: float, *more: str, iterations: int = 6
) -> list[str]:
    """Return the overrides of a run with four layers of so many elements."""
    return [
        f"hydra.run.dir={folder / 'run'}", "workload=synthetic", "numerics=false",
        f"workload.elements=[{','.join([str(elements)] * 4)}]", f"iterations={iterations}",
        f"workload.forward_ms={compute_ms / 3}", f"workload.backward_ms={2 * compute_ms / 3}",
        *more,
    ]  # fmt: skip


def explained(folder: Path, said: list[str]) -> Content:
    """Run and explain."""
    run(said)
    return explain(folder / "run").content


def change(content: Content, name: str) -> Content:
    """Return the effect of a change."""
    changes: list[Content] = content["what_if"]["changes"]
    return next(one for one in changes if name in one["name"])


# ---- known causes ----


def test_one_slow_uplink_is_named_with_its_share(tmp_path: Path) -> None:
    net = network(tmp_path, uplink=50)
    content = explained(tmp_path, words(tmp_path, 250_000, 30, net))
    told = content["runs"][0]
    first = told["parts"][0]
    assert (first["what"], first["party"], first["where"]) == ("push", "west", "wan")
    assert first["limits"][0]["limit"] == ["west", "west/wan"]
    assert "push of west, limited by its uplink (50 Mbit/s)" in told["said"]
    busy = first["limits"][0]["sending"] + first["limits"][0]["queueing"]
    # 4 MB at 50 Mbit/s, plus framing and slow start
    assert busy * told["seconds_per_iteration"] == pytest.approx(4e6 * 8 / 50e6, rel=0.1)
    assert busy > 0.8
    doubled = change(content, "uplink of west doubled")
    assert doubled["gain"] == pytest.approx(busy / 2, abs=0.03)
    assert doubled["command"].endswith("double_west_to_west_wan.json")


def test_one_slow_worker_is_named(tmp_path: Path) -> None:
    net = network(tmp_path, speed=0.2)
    content = explained(tmp_path, words(tmp_path, 1000, 50, net))
    first = content["runs"][0]["parts"][0]
    assert first["said"] == "computing at west/worker1 (speed 0.2)"
    assert first["seconds_per_iteration"] == pytest.approx(0.25, rel=0.01)
    faster = change(content, "west/worker1 at speed 1")
    assert faster["gain"] == pytest.approx(0.8 * first["share"], abs=0.01)
    assert content["what_if"]["changes"][0] == faster


def test_with_small_tensors_the_cause_is_the_delay(tmp_path: Path) -> None:
    content = explained(tmp_path, words(tmp_path, 10, 5, network(tmp_path, delay_ms=100)))
    parts = [part for part in content["runs"][0]["parts"] if part["where"] == "wan"]
    delay = sum(part["delay"] for part in parts)
    # the rest is pacing of bursts over a part of the round trip
    paced = sum(
        way["sending"] + way["queueing"]
        for part in parts
        for way in part["limits"]
        if way["limit"] == "round trips"
    )
    assert delay > 0.5 and delay + paced > 0.95
    assert "mostly propagation delay" in content["runs"][0]["said"]
    halved = change(content, "delays between sites halved")
    assert halved["gain"] == pytest.approx((delay + paced) / 2, abs=0.05)
    assert not [one for one in content["what_if"]["changes"] if "doubled" in one["name"]]


def test_without_communication_no_change_gains(tmp_path: Path) -> None:
    content = explained(tmp_path, words(tmp_path, 10, 500, network(tmp_path, delay_ms=0.1)))
    parts = content["runs"][0]["parts"]
    assert parts[0]["what"] == "compute" and parts[0]["share"] > 0.99
    assert not [one for one in content["what_if"]["changes"] if (one["gain"] or 0.0) > 0.01]


def test_all_work_of_an_interval_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many spans it has, and if one of them began long before."""
    timeline = trace.Timeline()
    timeline.add(trace.Span("hub/server", "hub", "encode", "encode", 0.01, 0.98, {}))
    for number in range(1000):
        span = trace.Span("hub/server", "hub", "sum", "aggregate", number / 1000, 0.001, {})
        timeline.add(span)
    directory = run(words(tmp_path, 10, 5, network(tmp_path))).directory
    monkeypatch.setattr("geomx.explaining.evidence.read", lambda path: timeline)
    spent = Evidence(directory).handling("hub/server", 0.8, 1.0)
    assert spent["aggregate"] == pytest.approx(0.2)
    assert spent["encode"] == pytest.approx(0.19)


# ---- laws ----


def drawn(folder: Path, seed: int) -> list[str]:
    """Return the overrides of a random experiment on uneven links."""
    draw = random.Random(seed)
    registry = Registry.discover()
    sync = draw.choice([plugin.name for plugin in registry.plugins("sync")])
    accel = draw.choice([[], [draw.choice(registry.plugins("accel")).name]])
    net = network(
        folder, uplink=draw.choice([20, 200, FAST]), delay_ms=draw.choice([0, 1, 40]),
        speed=draw.choice([1.0, 0.4]), workers=draw.choice([1, 3]),
    )  # fmt: skip
    chosen = (net, f"sync={sync}", f"accel=[{','.join(accel)}]", f"seed={seed}")
    return words(folder, draw.choice([100, 50_000]), draw.choice([3, 60]), *chosen, iterations=20)


@pytest.mark.parametrize("seed", range(5))
def test_every_time_has_exactly_one_cause(tmp_path: Path, seed: int) -> None:
    said = drawn(tmp_path, seed)
    evidence = Evidence(run(said).directory)
    rows = evidence.stretch()
    steps = critical_path(evidence, rows)
    assert steps[0].end_s == rows[-1]["end_s"], said
    assert steps[-1].start_s == rows[0]["start_s"], said
    assert [step.start_s for step in steps[:-1]] == [step.end_s for step in steps[1:]], said
    parts = parts_of(evidence, steps)
    whole = rows[-1]["end_s"] - rows[0]["start_s"]
    assert sum(part.seconds for part in parts) == pytest.approx(whole)
    assert not [part for part in parts if part.what == "unknown"], (said, parts)
    assert sentence(evidence, parts)


def test_dropped_spans_are_excluded(tmp_path: Path) -> None:
    said = words(tmp_path, 250_000, 30, network(tmp_path, uplink=50), iterations=20)
    said += ["sim.max_spans=1500", "sim.skip=false"]
    evidence = Evidence(run(said).directory)
    assert evidence.timeline.dropped > 600
    rows = evidence.stretch()
    assert 1 < len(rows) < 10
    parts = parts_of(evidence, critical_path(evidence, rows))
    assert max(parts[0].sending) == ("west", "west/wan")
    assert not [part for part in parts if part.what == "unknown"]


# ---- both modes ----


def test_both_modes_have_the_same_spans_and_causes(tmp_path: Path) -> None:
    said = words(
        tmp_path, 25_000, 20, network(tmp_path, uplink=20, workers=1), "mode=both", iterations=4
    )
    content = explained(tmp_path, said)
    timelines = [trace.read(tmp_path / "run" / mode / "trace.json") for mode in ("sim", "live")]
    sim, live = (
        Counter((span.node, span.category, span.name, *sorted(span.args)) for span in one.spans)
        for one in timelines
    )
    sent = [key for key in sim if key[1] == "send"]
    assert {key: sim[key] for key in sent} == {key: live[key] for key in live if key[1] == "send"}
    assert sim.keys() == live.keys()
    for one in content["runs"]:
        assert one["parts"][0]["limits"][0]["limit"] == ["west", "west/wan"], one
        assert sum(part["share"] for part in one["parts"]) == pytest.approx(1.0)
    assert [one["mode"] for one in content["runs"]] == ["sim", "live"]


def as_live(directory: Path, emulate: str, seed: int) -> None:
    """Rewrite the files of a simulated run as those of a live one, whose notes are less exact.

    Messages are noted up to half a millisecond late. In the kernel's network, a buffer takes what
    a link sends in the next 40 ms.
    """
    draw = random.Random(seed)
    (directory / "summary.json").write_text(
        json.dumps(
            json.loads((directory / "summary.json").read_text())
            | {"mode": "live", "emulate": emulate}
        )
    )
    content = json.loads((directory / "trace.json").read_text())
    sends = [event for event in content["traceEvents"] if event.get("cat") == "send"]
    idle: dict[
        tuple[int, str], tuple[float, float]
    ] = {}  # since when a link is busy, and the end so far
    for event in sorted(sends, key=itemgetter("ts")):
        start, end = event["ts"], event["ts"] + event["dur"]
        link = event["pid"], event["name"]
        busy, until = idle.get(link, (start, start))
        busy = start if start > until + 1 else busy
        idle[link] = busy, end
        early = 40_000 if emulate == "netns" else 0
        event["ts"] = max(busy, start - early) + draw.uniform(0, 250)
        event["dur"] = max(0, max(busy, end - early) - event["ts"]) + draw.uniform(0, 250)
    (directory / "trace.json").write_text(json.dumps(content))


@pytest.mark.parametrize("emulate", ["shaper", "netns"])
def test_inexact_times_of_live_runs_change_no_cause(
    tmp_path: Path, emulate: str, seed: int
) -> None:
    directory = run(words(tmp_path, 250_000, 30, network(tmp_path, uplink=50))).directory
    found = []
    for live in (False, True):
        if live:
            as_live(directory, emulate, seed)
        evidence = Evidence(directory)
        rows = evidence.stretch()
        parts = parts_of(evidence, critical_path(evidence, rows))
        assert (parts[0].what, parts[0].party) == ("push", "west")
        limits = parts[0].limits
        assert max(limits, key=lambda edge: limits[edge]) == ("west", "west/wan")
        assert not [part for part in parts if part.what == "unknown"]
        found.append(parts[0].seconds / (rows[-1]["end_s"] - rows[0]["start_s"]))
    assert found[1] == pytest.approx(found[0], abs=0.05)


# ---- the command ----


def test_the_command_prints_and_stores_the_explanation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    run(words(tmp_path, 250_000, 30, network(tmp_path, uplink=50)))
    before = (folder / "report.html").read_text(encoding="utf-8")
    assert cli.main(["explain", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "waiting for the push of west" in said and "switched on" in said
    content = json.loads((folder / "explain.json").read_text(encoding="utf-8"))
    best = content["what_if"]["changes"][0]
    assert f"to see {best['name']}: {best['command']}" in " ".join(said.split())
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "What an iteration waits for" not in before and "What an iteration waits for" in page
    assert before.count("<section") + 1 == page.count("<section")


def test_a_sweeps_run_of_a_network_file_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By jobs in other processes, which is the default."""
    monkeypatch.chdir(tmp_path)
    network(tmp_path, uplink=50)
    get_reusable_executor().shutdown()  # its processes work in an earlier test's folder
    chosen = ["network=net.yaml", "workload=tiny"]
    assert cli.main(["-m", *chosen, "iterations=5,6", "hydra.sweep.dir=swept"]) == 0
    content = explain("swept/1").content
    assert content["words"] == [*chosen, "iterations=6"]
    assert content["what_if"]["reason"] == "" and content["what_if"]["changes"]


def test_a_run_is_explained_with_its_own_network_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    for folder in (there, here):
        folder.mkdir()
    monkeypatch.chdir(there)
    network(there, uplink=50)
    more = ("network=net.yaml", "network.delay_ms=5")
    before = explained(there, words(there, 250_000, 30, *more))
    monkeypatch.chdir(here)
    assert explain(there / "run").content == before
    network(here, delay_ms=500)  # another one of that name
    assert explain(Path("../there/run")).content == before
    now_s = before["what_if"]["seconds_per_iteration"]
    assert now_s == pytest.approx(before["runs"][0]["seconds_per_iteration"], rel=0.05)
    said = shlex.split(change(before, "switched on")["command"])
    assert f"network={there / 'run' / 'network.json'}" in said
    assert "network.delay_ms=5" not in said


def test_a_variant_of_a_study_in_a_file_is_explained(tmp_path: Path) -> None:
    more = ("experiment=accelerators", "study=null")
    content = explained(tmp_path, words(tmp_path, 1000, 5, network(tmp_path), *more))
    assert content["what_if"]["reason"] == ""
    assert "study=null" in change(content, "switched on")["command"]


def test_a_preset_that_sets_values_of_its_network_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of changed networks contain them already."""
    monkeypatch.chdir(tmp_path)
    chosen = ["experiment=slow_wan", "accel=[]", "workload=tiny", "workload.learning_rate=0.1"]
    content = explained(tmp_path, [*chosen, "iterations=6", "hydra.run.dir=run"])
    assert content["what_if"]["reason"] == ""
    others = [one for one in content["what_if"]["changes"] if "switched on" not in one["name"]]
    assert others and not any(one["reason"] for one in others)
    halved = shlex.split(change(content, "halved")["command"])[3:]
    again = run([*halved, "hydra.run.dir=again"]).summary["seconds_per_iteration"]["mean"]
    now_s = content["what_if"]["seconds_per_iteration"]
    assert again == pytest.approx(change(content, "halved")["seconds_per_iteration"], rel=0.2)
    assert again < now_s


def test_a_run_that_began_with_the_state_of_another_is_explained(tmp_path: Path) -> None:
    """Simulations begin anew, and sizes and times do not depend on it."""
    run(words(tmp_path, 1000, 5, network(tmp_path)))
    file = tmp_path / "run/summary.json"
    summary = json.loads(file.read_text())
    summary["words"] += ["mode=live", "resume=before"]
    file.write_text(json.dumps(summary))
    what_if = explain(tmp_path / "run").content["what_if"]
    assert what_if["reason"] == "" and what_if["changes"]
    assert not any("resume" in one["command"] for one in what_if["changes"])


def test_trackers_do_not_follow_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But they do follow the printed commands, which are the user's."""
    followed: list[Path] = []

    class Counted:
        """Notes which runs it is asked to follow."""

        @geomx.hookimpl
        def geomx_track(self, run: TrackedRun) -> None:
            followed.append(run.directory)

    registry = registry_with(counted=("track", Counted()))
    monkeypatch.setattr(Registry, "discover", classmethod(lambda cls: registry))
    said = words(tmp_path, 1000, 5, network(tmp_path), "+track=[counted]")
    content = explained(tmp_path, said)
    assert followed == [tmp_path / "run"]
    assert content["what_if"]["reason"] == ""
    assert "track=[counted]" in change(content, "switched on")["command"]


def test_a_file_that_is_not_there_is_named_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "events.yaml").write_text("- {at_s: 0.01, set: [hub, west], mbps: 10}\n")
    monkeypatch.chdir(tmp_path)
    said = ["workload=tiny", "iterations=4", "scenario=events.yaml", "hydra.run.dir=run"]
    content = explained(tmp_path, [network(tmp_path), *said])
    assert content["what_if"]["reason"] == ""
    (tmp_path / "events.yaml").unlink()
    reason = explain("run").content["what_if"]["reason"]
    assert reason.startswith("changes cannot be simulated: scenario=events.yaml: cannot be read")
    assert reason.endswith("or call geomx explain in the folder where the run was started")


def test_a_folder_without_a_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("b", "a"):
        (tmp_path / "study" / name).mkdir(parents=True)
        (tmp_path / "study" / name / "summary.json").write_text("{}")
    for place, reason in (
        (tmp_path, "no summary.json"),
        (tmp_path / "study", "name one of them: a, b"),
    ):
        assert cli.main(["explain", str(place)]) == 2
        said = capsys.readouterr().err
        assert reason in said and said.count("\n") == 1


# ---- names and maps ----


def test_edges_have_names() -> None:
    assert edge_name(("a", "a/wan"), "a") == "its uplink"
    assert edge_name(("a/wan", "a")) == "the downlink of a"
    assert edge_name(("a", "b")) == "the link a → b"


def test_names_of_nodes_may_contain_the_word_before_a_receiver() -> None:
    for name in ("west/server", "way to go/server"):
        span = trace.Span("hub/server", "hub", f"value to {name}", "send", 0.0, 1.0, {})
        assert span.receiver == name


def test_sites_are_drawn_at_their_coordinates() -> None:
    places = {
        "hub": (10.0, 50.0),
        "north": (10.0, 60.0),
        "east": (20.0, 50.0),
        "rome": (12.5, 42.0),
    }
    graph = nx.DiGraph()
    for site, (longitude, latitude) in places.items():
        graph.add_node(site, kind="router", party=site, longitude=longitude, latitude=latitude)
        graph.add_node(f"{site}/server", kind="server", party=site)
    drawn, _, grid = wan._places(list(places), [], graph)
    (x0, y0), (xn, yn), (xe, ye) = drawn["hub"], drawn["north"], drawn["east"]
    assert xn == x0 and ye == y0 and yn < y0 and xe > x0
    per_degree = (y0 - yn) / 10
    assert drawn["rome"][1] == pytest.approx(y0 + 8 * per_degree)
    assert drawn["rome"][0] == pytest.approx(x0 + (xe - x0) / 4)
    assert (xe - x0) / 10 == pytest.approx(per_degree * 0.629, rel=1e-3)  # cos of the middle, 51°
    assert "50°N" in "".join(grid) and "10°E" in "".join(grid)
    del graph.nodes["rome"]["latitude"]
    links = [wan.Flow("hub", site) for site in places if site != "hub"]
    assert wan._places(list(places), links, graph)[2] == []
