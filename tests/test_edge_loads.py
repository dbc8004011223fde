"""Loads of edges afterwards: the peaks of edges.csv, readings over time, and the report's plot."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from geomx import run
from geomx.errors import NodeLost
from geomx.network.files import read_network
from geomx.options.schema import SimOptions
from geomx.pages import loads
from geomx.results.results import Results
from geomx.results.trace import Span, Timeline
from geomx.scenario import read_scenario
from tests.laws import Build, short_form

PAYLOAD = 1448 / 1500


def rows_of(run: Any, name: str) -> list[dict[str, str]]:
    with (run.results.directory / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_readings_follow_closed_forms_and_change_nothing(simulate: Build, sized: Build) -> None:
    """Two sites push 20 MB each into a hub of 80 Mbit/s: 40 MB of queue, two flows."""
    wan = short_form(1, 1, mbps=8000, delay_ms=0)
    wan["central"] |= {"downlink_mbps": 80, "uplink_mbps": 1e6}
    runs = [
        simulate(wan, sized(5_000_000), iterations=1, numerics=False, sim=SimOptions(**options))
        for options in ({"edges_every_s": 0.05}, {"skip": False})
    ]
    assert runs[0].results.iterations == runs[1].results.iterations
    hub = {"source": "hub/wan", "target": "hub"}
    (peak,) = [row for row in runs[0].results.edges if hub.items() <= row.items()]
    (none,) = [row for row in runs[1].results.edges if hub.items() <= row.items()]
    assert peak["bytes"] == none["bytes"] and none["peak_mbps"] is None
    assert peak["mean_mbps"] == pytest.approx(
        8e-6 * peak["bytes"] / runs[0].results.summary["seconds"], abs=1e-6
    )
    assert peak["peak_mbps"] == pytest.approx(80)
    assert peak["peak_flows"] == 2
    assert 0.9 * 40e6 < peak["peak_queue_bytes"] <= 40.1e6
    over_time = [r for r in rows_of(runs[0], "edges_over_time.csv") if hub.items() <= r.items()]
    times = [float(row["time_s"]) for row in over_time]
    assert times == pytest.approx([0.05 * (number + 1) for number in range(len(times))])
    sent = [int(row["bytes"]) for row in over_time]
    assert sent == sorted(sent) and {row["mbps"] for row in over_time} == {"80.0"}
    assert not (runs[1].results.directory / "edges_over_time.csv").exists()


def test_an_edge_is_read_once_it_is_limited(simulate: Build, sized: Build) -> None:
    """Edges between sites are unlimited until a scenario sets one, and others stay so."""
    network = read_network(short_form(1, 1))
    events = [
        {"at_s": 0.2, "set": ["party0", "hub"], "mbps": 5},
        {"at_s": 0.8, "set": ["party0", "hub"], "mbps": 1000},
    ]
    run = simulate(
        network, sized(1_000_000), iterations=3, numerics=False,
        sim=SimOptions(edges_every_s=0.1), scenario=read_scenario(events, network),
    )  # fmt: skip
    between = {"source": "party0/wan", "target": "hub/wan"}
    rows = rows_of(run, "edges_over_time.csv")
    over_time = [row for row in rows if between.items() <= row.items()]
    times = [float(row["time_s"]) for row in over_time]
    assert times[0] == pytest.approx(0.2, abs=0.1 + 1e-6) and max(times) > 1
    assert {(row["mbps"], float(row["time_s"]) < 0.75) for row in over_time} >= {
        ("5.0", True), ("1000.0", False),
    }  # fmt: skip
    (peak,) = [row for row in run.results.edges if between.items() <= row.items()]
    assert peak["peak_mbps"] >= 4.9
    assert not [row for row in rows if row["source"] == "party1/wan" and row["target"] == "hub/wan"]


def test_messages_give_the_load_over_time() -> None:
    """Per bin, the bytes of all messages whose route crosses the edge."""
    graph = read_network(short_form(1, 1)).graph
    timeline, edge = Timeline(), ("party0", "party0/wan")
    for start_s, duration_s, size in (
        (0.0, 2.0, 1_000_000),
        (1.0, 3.0, 3_000_000),
        (4.0, 0.0, 125),
    ):
        name = "push to hub/global_server0"
        span = Span("party0/server", "party0", name, "send", start_s, duration_s, {"bytes": size})
        timeline.add(span)
    line = loads.of_messages(timeline, graph, [edge]).lines[edge]
    assert len(line) == loads.BINS
    width_s = 4.0 / loads.BINS
    assert sum(mbps for _, mbps in line) * width_s == pytest.approx(8 * 4.0, rel=1e-6)
    at = {round(time_s, 1): mbps for time_s, mbps in line}
    assert (at[0.5], at[1.5], at[3.0]) == pytest.approx((4.0, 12.0, 8.0))
    timeline.lost(5, 1.5, None)
    assert loads.of_messages(timeline, graph, [edge]).until_s == 1.5


@pytest.mark.parametrize("every_s", [None, 0.01])
def test_the_report_plots_loads(simulate: Build, sized: Build, every_s: float | None) -> None:
    from geomx.pages import page

    run = simulate(short_form(1, 2), sized(50_000), sim=SimOptions(edges_every_s=every_s))
    recorder = run.simulation.recorder
    html = page.render(run.results, recorder._timeline, run.simulation.experiment.cluster.graph)
    assert "<h2>Load of the edges</h2>" in html
    names = re.findall(r'class="key series-\d"></i>([^<]* → [^<]*)<', html)
    assert 1 <= len(names) <= loads.MOST_EDGES
    assert ("mean rate" in html) == (every_s is None)
    assert Path(run.results.directory / "edges_over_time.csv").exists() == (every_s is not None)


@pytest.mark.parametrize("killed_s", [15.0, 31.0])
def test_a_run_that_fails_has_the_loads_until_then(killed_s: float, tmp_path: Path) -> None:
    """It may be far beyond the end of the last step, or there was none."""
    place = tmp_path / "run"
    words = ["network=two_parties", "workload=synthetic", "workload.elements=[20000000]"]
    kill = f"scenario=[{{at_s: {killed_s}, kill: hub/global_server0}}]"
    with pytest.raises(NodeLost):
        run([*words, "iterations=2", kill, f"hydra.run.dir={place}"])
    results = Results.load(place)
    busiest = max(results.edges, key=lambda row: row["utilisation"] or 0.0)
    assert busiest["mean_mbps"] == pytest.approx(8e-6 * busiest["bytes"] / killed_s)
    mbps = read_network(place / "network.json").graph.edges[busiest["source"], busiest["target"]]
    assert busiest["utilisation"] == pytest.approx(busiest["mean_mbps"] / mbps["bandwidth_mbps"])
    assert results.summary["busiest_endpoint"]["share"] <= 1


def test_what_waits_for_a_standby_is_queued(tmp_path: Path) -> None:
    """A global server chooses messages ahead, as its standby has to know their order."""
    words = ["workload=synthetic", "workload.elements=[200000]", "iterations=2"]
    peaks = []
    for number, durable in enumerate(("none", "replica")):
        faults = [f"faults.durable={durable}", f"hydra.run.dir={tmp_path / str(number)}"]
        done = run([*words, *faults, "sim.edges_every_s=0.002"])
        hub = {"source": "hub", "target": "hub/wan"}
        (row,) = [row for row in done.edges if hub.items() <= row.items()]
        peaks.append(row["peak_queue_bytes"])
    assert peaks[1] == pytest.approx(peaks[0], rel=0.05) == pytest.approx(1.6e6, rel=0.05)
