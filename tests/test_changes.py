"""Changing bandwidth: times of transfers, random draws, the edges of rules, and refusals.

The closed form is an integral: a transfer alone on its edge ends when the integral of the bandwidth
since its start equals its bytes.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geomx.cluster import Cluster
from geomx.errors import ConfigError, GeomxError
from geomx.network.files import read_network, to_node_link
from geomx.network.schedules import limited, schedule
from geomx.options.schema import TcpOptions
from geomx.sim import transfer_times
from tests.laws import Build, expected_bytes

BARE = {"efficiency": 1.0, "new_connections": False, "window_bytes": math.inf}
EFFICIENCY = 1448 / 1500
UP = ("party0", "party0/wan")
DOWN = UP[::-1]
LAN = {"mbps": 1e7, "delay_ms": 0.0}
REDRAW = {"every_s": 180, "low_mbps": 20, "high_mbps": 155}


def pipe(delay_ms: float = 0.0, **attributes: Any) -> nx.DiGraph:
    """Return a graph with an edge a -> b, and an edge back."""
    graph = nx.DiGraph()
    graph.add_edge("a", "b", delay_ms=delay_ms, **attributes)
    graph.add_edge("b", "a", delay_ms=delay_ms)
    return graph


A_BIT = 1e-6
"""In megabits."""


def seconds_for(trace: list[list[float]], megabits: float, start_s: float = 0.0) -> float:
    """Return when so many megabits have passed an edge with this trace."""
    ends = [row[0] for row in trace[1:]] + [math.inf]
    for (since_s, mbps), end_s in zip(trace, ends, strict=True):
        begin_s = max(since_s, start_s)
        if end_s <= begin_s:
            continue
        if mbps * (end_s - begin_s) >= megabits:
            return begin_s + megabits / mbps
        megabits -= mbps * (end_s - begin_s)
    raise AssertionError("a trace does not end")


# ---- the integral ----


@st.composite
def traces(draw: st.DrawFn) -> list[list[float]]:
    gaps = draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    rates = draw(st.lists(st.integers(0, 50), min_size=len(gaps), max_size=len(gaps)))
    times = np.cumsum([0, *gaps[1:]]) / 10
    rates[-1] = max(rates[-1], 1)
    return [[float(time), float(rate)] for time, rate in zip(times, rates, strict=True)]


@settings(max_examples=60)
@given(traces(), st.integers(1, 400), st.integers(0, 30))
def test_a_transfer_over_a_trace_takes_the_integrals_time(trace, megabits, tenths):
    graph = pipe(delay_ms=7.0, trace=trace)
    flow = ("a", "b", megabits * 125_000.0, tenths / 10)
    (end,) = transfer_times(graph, [flow], **BARE)
    assert end == pytest.approx(seconds_for(trace, megabits, tenths / 10) + 0.007, abs=1e-6)


@settings(max_examples=30)
@example([[0.0, 0.0], [0.1, 28.0], [1.6, 0.0], [1.9, 1.0]], [1, 1, 40])
@given(traces(), st.lists(st.integers(1, 100), min_size=2, max_size=6))
def test_flows_share_the_current_bandwidth(trace, sizes):
    flows = [("a", "b", size * 125_000.0, 0.0) for size in sizes]
    ends = transfer_times(pipe(trace=trace), flows, **{**BARE, "new_connections": True})
    for end, size in zip(ends, sizes, strict=True):
        passed = sum(min(size, other) for other in sizes)
        # Flows end at whole nanoseconds, so that others may lack a part of a bit when the bandwidth
        # falls to nothing at the very moment at which they would have ended.
        soonest, latest = seconds_for(trace, passed), seconds_for(trace, passed + A_BIT)
        assert soonest - 1e-6 <= end <= latest + 1e-6


def test_a_trace_may_be_a_file_and_affects_its_edge_only(tmp_path: Path) -> None:
    file = tmp_path / "up.csv"
    file.write_text("# measured by hand\ntime_s,bandwidth_mbps\n0,8\n1,0\n\n3,16\n")
    graph = pipe(trace=str(file))
    graph.add_edge("a", "c", bandwidth_mbps=8)
    graph.add_edge("c", "a", bandwidth_mbps=8)
    ends = transfer_times(graph, [("a", "b", 2e6, 0), ("a", "c", 2e6, 0)], **BARE)
    assert ends == pytest.approx([3.5, 2.0], abs=1e-6)


def test_an_outage_delays_without_loss() -> None:
    ends = {}
    for name, outages in {
        "none": [],
        "one": [{"start_s": 1, "end_s": 4}],
        "overlapping": [{"start_s": 1, "end_s": 4}, {"start_s": 3, "end_s": 5}],
        "periodic": [{"start_s": 0.5, "end_s": 1, "every_s": 1.5}],
        "over": [{"start_s": 2.5, "end_s": 9}],
    }.items():
        graph = pipe(bandwidth_mbps=8, outages=outages)
        (ends[name],) = transfer_times(graph, [("a", "b", 2e6, 0)], **BARE)
    expected = {"none": 2, "one": 5, "overlapping": 6, "periodic": 3, "over": 2}
    assert ends == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("down", [("a", "b"), ("b", "a")])
def test_an_outage_of_a_queue_stops_data_and_acknowledgements(down: tuple[str, str]) -> None:
    graph = pipe(bandwidth_mbps=8)
    graph.edges["b", "a"].update(bandwidth_mbps=8)
    graph.edges[down].update(outages=[{"start_s": 1, "end_s": 4}])
    acknowledged = {**BARE, "window_bytes": 1e6, "fifo": True, "reverse_share": 0.03}
    ends = transfer_times(graph, [("a", "b", 2e6, 0)], **acknowledged)
    assert ends == pytest.approx([5], abs=1e-6)


def by_turns(graph: nx.Graph, *edges: tuple[str, str]) -> nx.Graph:
    """Let one of two edges be down in every odd second, and the other one in every even."""
    for start_s, edge in enumerate(edges):
        outages = [{"start_s": start_s, "end_s": start_s + 1, "every_s": 2}]
        graph.edges[edge].update(outages=outages)
    return graph


def test_what_edges_that_are_down_by_turns_delay_does_not_arrive(
    network: Build, simulate: Build, tiny: Any
) -> None:
    graph = pipe(bandwidth_mbps=8)
    graph.add_edge("b", "c", bandwidth_mbps=8)
    graph.add_edge("c", "b", bandwidth_mbps=8)
    flows = [("a", "c", 1e5, 0.0), ("a", "b", 1e5, 0.0)]
    never, late_s = transfer_times(by_turns(graph, ("a", "b"), ("b", "c")), flows, **BARE)
    assert never == math.inf and 1 < late_s < 2
    cluster = read_network(network(1, 2))
    by_turns(cluster.graph, UP, ("hub/wan", "hub"))
    with pytest.raises(GeomxError, match=r"came to a standstill at .*party0/worker0"):
        simulate(cluster, tiny)


def test_a_trace_of_one_row_does_not_change() -> None:
    for model in ("tcp", "maxmin", "CM02"):
        ends = transfer_times(pipe(trace=[[0, 8]]), [("a", "b", 1e6, 0)], model=model, **BARE)
        assert ends == pytest.approx([1])


def test_static_models_refuse_changing_bandwidth() -> None:
    for model in ("maxmin", "CM02", "LV08"):
        with pytest.raises(ConfigError, match="the bandwidth of a -> b changes"):
            transfer_times(pipe(redraw=REDRAW), [("a", "b", 1, 0)], model=model)


# ---- draws ----


def draws(graph: nx.DiGraph, edge: tuple[str, str], seed: int, count: int = 6) -> list[float]:
    """Return the successive bandwidths of an edge in Mbit/s."""
    data = graph.edges[edge]
    made = schedule(data, f"{edge[0]} -> {edge[1]}", seed)
    return [made.at(number * data["redraw"]["every_s"]) / 125e3 for number in range(count)]


def test_draws_depend_on_seed_and_edge(network: Build) -> None:
    graph = read_network(network(1, 1) | {"redraw": REDRAW}).graph
    drawn = {edge for edge, data in graph.edges.items() if "redraw" in data}
    sites = ("hub", "party0", "party1")
    assert drawn == {(s, f"{s}/wan") for s in sites} | {(f"{s}/wan", s) for s in sites}
    rows = [draws(graph, edge, seed) for edge in sorted(drawn) for seed in (0, 1)]
    assert rows == [draws(graph, edge, seed) for edge in sorted(drawn) for seed in (0, 1)]
    flat = [mbps for row in rows for mbps in row]
    assert len(set(flat)) == len(flat)
    assert all(20 <= mbps < 155 for mbps in flat)


def test_a_rule_may_have_its_own_seed(network: Build) -> None:
    graph = read_network(network(1) | {"redraw": REDRAW | {"seed": 4}}).graph
    assert draws(graph, UP, 0) == draws(graph, UP, 1)
    assert draws(graph, UP, 0) != draws(graph, DOWN, 0)


def test_outages_of_the_same_name_are_simultaneous(network: Build) -> None:
    rule = {"site": "party0", "mean_up_s": 50, "mean_down_s": 10}
    graph = read_network(network(1, 1) | {"outages": [rule]}).graph
    edges = [edge for edge, data in graph.edges.items() if "outages" in data]
    assert len(edges) == 4  # to and from the hub and the other party
    made = [schedule(graph.edges[edge], f"{edge[0]} -> {edge[1]}", 3) for edge in edges]
    times_s = np.linspace(0, 2000, 4001)
    down = [[one.at(time_s) == 0 for time_s in times_s] for one in made]
    assert down[0] == down[1] == down[2] == down[3]
    assert 0.05 < np.mean(down[0]) < 0.35


# ---- the edges of a rule ----


def test_rules_of_a_network_select_their_edges(network: Build) -> None:
    def cut(**rule: Any) -> set[tuple[str, str]]:
        content = network(1, 1, 1) | {"outages": [{"start_s": 1, "end_s": 2, **rule}]}
        edges = read_network(content).graph.edges.items()
        return {edge for edge, data in edges if data.get("outages")}

    def both(*pairs: tuple[str, str]) -> set[tuple[str, str]]:
        return {
            way for a, b in pairs for way in ((f"{a}/wan", f"{b}/wan"), (f"{b}/wan", f"{a}/wan"))
        }

    assert cut(link=["party0", "hub"]) == both(("party0", "hub"))
    assert cut(link=["party0", "party0/wan"]) == {UP, DOWN}
    assert cut(site="party1") == both(*((s, "party1") for s in ("hub", "party0", "party2")))
    groups = [["hub", "party0"], ["party1"]]
    assert cut(partition=groups) == both(("hub", "party1"), ("party0", "party1"))
    with pytest.raises(ConfigError, match=r"outages\[0\].partition: there is no site or node 3"):
        cut(partition=[3, 4])


def test_a_redraw_may_name_links_or_belong_to_a_party(network: Build) -> None:
    content = network(1, 1) | {"redraw": REDRAW | {"links": [["party0", "party1"]]}}
    graph = read_network(content).graph
    drawn = {edge for edge, data in graph.edges.items() if "redraw" in data}
    assert drawn == {("party0/wan", "party1/wan"), ("party1/wan", "party0/wan")}
    assert graph.edges["party0/wan", "party1/wan"]["bandwidth_mbps"] == 87.5
    assert "unlimited" not in graph.edges["party0/wan", "party1/wan"]
    content = network(1, 1)
    content["parties"]["party0"] = {"workers": 1, "redraw": REDRAW}
    graph = read_network(content).graph
    assert {edge for edge, data in graph.edges.items() if "redraw" in data} == {UP, DOWN}


def test_written_networks_keep_their_changes(network: Build, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "up.csv").write_text("time_s,bandwidth_mbps\n0,8\n2,4\n")
    content = network(1, 1)
    content["parties"]["party1"] = {
        "workers": 1, "uplink_trace": "traces/up.csv", "downlink_mbps": 30,
    }  # fmt: skip
    content["redraw"] = REDRAW | {"links": [list(UP)]}
    content["outages"] = [
        {"site": "party1", "start_s": 1, "end_s": 3, "every_s": 10},
        {"link": ["party0", "hub"], "mean_up_s": 5, "mean_down_s": 1},
    ]
    cluster = read_network(content | {"folder": str(tmp_path)})
    assert cluster.graph.edges["party1", "party1/wan"]["trace"] == [[0.0, 8.0], [2.0, 4.0]]
    assert cluster.graph.edges["party1", "party1/wan"]["bandwidth_mbps"] == 8.0
    again = read_network(json.loads(json.dumps(to_node_link(cluster.graph))))
    assert dict(again.graph.adj) == dict(cluster.graph.adj)
    assert again.graph.graph == cluster.graph.graph


WRONG: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda c: c.update(redraw={"every_s": 1, "low_mbps": 2}), "redraw.high_mbps is missing"),
    (lambda c: c.update(redraw=REDRAW | {"low_mbps": 200}), "redraw.high_mbps is 155; it must be"),
    (lambda c: c.update(redraw=REDRAW | {"low_mbps": 0}), "redraw.low_mbps is 0; it must be more"),
    (lambda c: c.update(redraw=REDRAW | {"evry_s": 1}), "redraw.evry_s; did you mean every_s"),
    (lambda c: c.update(redraw=REDRAW | {"seed": -1}), "redraw.seed is -1"),
    (lambda c: c.update(redraw=REDRAW | {"links": [["party0", "x"]]}), "redraw.links[0]: there is"),
    (lambda c: c.update(redraw=3), "redraw must be a table or a list of them, not 3"),
    (
        lambda c: c.update(redraw=REDRAW | {"every_s": 1e-9}),
        "redraw.every_s is 1e-09; it must be 0.001 or more",
    ),
    (
        lambda c: c.update(outages=[{"site": "hub", "mean_up_s": 1, "mean_down_s": 1e-5}]),
        "outages[0].mean_down_s is 1e-05; it must be 0.001 or more",
    ),
    (lambda c: c.update(redraw=[REDRAW, REDRAW]), "redraw[1] means edge hub -> hub/wan, which is"),
    (lambda c: c.update(outages={"site": "hub"}), "outages must be a list"),
    (lambda c: c.update(outages=[{"start_s": 1, "end_s": 2}]), "outages[0] must select links by"),
    (lambda c: c.update(outages=[{"site": "party0"}]), "outages[0] needs either start_s and end_s"),
    (lambda c: c.update(outages=[{"site": "hub", "start_s": 1}]), "outages[0].end_s is missing"),
    (
        lambda c: c.update(outages=[{"site": "hub", "start_s": 2, "end_s": 2}]),
        "outages[0].end_s is 2; it must be after start_s",
    ),
    (
        lambda c: c.update(outages=[{"site": "hub", "start_s": 2, "end_s": 1e300}]),
        "outages[0].end_s is 1e+300; it must be 1e+09 or less",
    ),
    (
        lambda c: c.update(outages=[{"site": "hub", "start_s": 1, "end_s": 3, "every_s": 2}]),
        "outages[0].every_s is 2; it must be more than an outage lasts",
    ),
    (
        lambda c: c.update(
            outages=[
                {"site": site, "start_s": 1, "end_s": 2, "every_s": 3} for site in ("hub", "party0")
            ]
        ),
        "two of them have every_s",
    ),
    (
        lambda c: c.update(outages=[{"partition": ["hub"], "start_s": 1, "end_s": 2}]),
        "outages[0].partition must be a list of two groups",
    ),
    (
        lambda c: c["central"].update(uplink_trace="no.csv"),
        "trace of edge hub -> hub/wan is no.csv",
    ),
    (lambda c: c["central"].update(uplink_trace=[[0, 1], [0, 2]]), "time_s in row 2 of trace of"),
    (
        lambda c: c["central"].update(uplink_trace=[[0, 1], [1e-10, 2]]),
        "is 1e-10; it must be at least a nanosecond later than in the row before",
    ),
    (lambda c: c["central"].update(uplink_trace=[[0, 1], [2e9, 2]]), "must be 1e+09 or less"),
    (lambda c: c["central"].update(uplink_trace="a\0.csv"), "is a\\0.csv, which is no file"),
    (lambda c: c["central"].update(uplink_trace=[[0, 1], [2, 0]]), "ends with a bandwidth of 0"),
    (lambda c: c["central"].update(uplink_trace=[[0, -1]]), "bandwidth_mbps in row 1 of trace of"),
    (lambda c: c["central"].update(uplink_trace=[3]), "row 1 of trace of edge hub -> hub/wan must"),
    (
        lambda c: c["central"].update(uplink_trace=[[0, 5]], redraw=REDRAW),
        "edge hub -> hub/wan has a trace and is redrawn too",
    ),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG)
def test_refusals(change: Callable[[dict[str, Any]], Any], sentence: str, network: Build) -> None:
    content = copy.deepcopy(network(1, 1))
    change(content)
    with pytest.raises(ConfigError) as caught:
        read_network(content)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_edge_is_unlimited_until_a_trace_that_begins_later() -> None:
    graph = nx.Graph()
    hosts = {"g": ("global_server", "hub"), "s": ("server", "east"), "w": ("worker", "east")}
    for node, (kind, party) in hosts.items():
        graph.add_node(node, kind=kind, party=party)
        graph.add_edge(node, "router", unlimited=True)
    graph.edges["g", "router"]["trace"] = [[10, 8]]
    read = read_network(graph).graph
    for edge in (read.edges["g", "router"], read_network(read).graph.edges["g", "router"]):
        assert limited(edge)
        assert schedule(edge, "", 0).at(9.0) == math.inf
        assert schedule(edge, "", 0).at(10.0) == 1e6


@pytest.mark.parametrize("text", ["", "time_s,mbps\n0,1\n", "0,1\n1,2\n", "\xff"])
def test_a_trace_needs_its_header(text: str, tmp_path: Path, network: Build) -> None:
    (tmp_path / "up.csv").write_bytes(text.encode("latin-1"))
    content = network(1) | {"folder": str(tmp_path)}
    content["central"]["uplink_trace"] = "up.csv"
    with pytest.raises(ConfigError, match=r"trace of edge hub -> hub/wan is up\.csv, which"):
        read_network(content)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("\ufefftime_s, bandwidth_mbps\r\n # at first\r\n \r\n0, 10\r\n  ,\r\n5,20\r\n", None),
        ("time_s,bandwidth_mbps\n", "is up.csv, which has no rows after its first line"),
        (
            "time_s,bandwidth_mbps\n5,1\n1,2\n",
            "time_s in row 2 of trace of edge hub -> hub/wan is 1;",
        ),
        ("time_s,bandwidth_mbps\n0,10 Mbps\n", "is '10 Mbps'; it must be a number"),
    ],
)
def test_rows_of_a_trace(text: str, sentence: str | None, tmp_path: Path, network: Build) -> None:
    (tmp_path / "up.csv").write_bytes(text.encode())
    content = network(1) | {"folder": str(tmp_path)}
    content["central"]["uplink_trace"] = "up.csv"
    if sentence is None:
        graph = read_network(content).graph
        assert graph.edges["hub", "hub/wan"]["trace"] == [[0.0, 10.0], [5.0, 20.0]]
        return
    with pytest.raises(ConfigError) as caught:
        read_network(content)
    assert sentence in str(caught.value)


# ---- whole simulated runs ----


def test_an_iteration_over_a_trace_in_closed_form(
    network: Build, sized: Build, simulate: Build
) -> None:
    """One worker and one tensor: an iteration is a push over the traced uplink, and an answer."""
    trace = [[0.0, 40.0], [0.7, 0.0], [1.9, 5.0], [4.0, 80.0], [6.5, 20.0]]
    content = network(1, mbps=1000, delay_ms=0, lan=LAN)
    content["parties"]["party0"]["uplink_trace"] = trace
    workload = sized(1_000_000, forward_s=0.05, backward_s=0.0)
    run = simulate(content, workload, iterations=9, tcp=TcpOptions(window_bytes=2**40))
    megabits = expected_bytes(workload) * 8 / 1e6 / EFFICIENCY
    for row in run.results.iterations:
        pushed_s = seconds_for(trace, megabits, row["start_s"] + 0.05)
        assert row["end_s"] == pytest.approx(pushed_s + megabits / 1000, abs=2e-3)


def test_nine_trainers_over_redrawn_links(
    network: Build, sized: Build, simulate: Build, seed: int
) -> None:
    """The answer is sent to all parties at once; the currently slowest uplink decides."""
    content = network(*[1] * 9, mbps=1000, delay_ms=0, lan=LAN)
    for party in content["parties"].values():
        party["redraw"] = REDRAW | {"every_s": 2}
        del party["uplink_mbps"], party["downlink_mbps"]
    content["central"] |= {"uplink_mbps": math.inf, "downlink_mbps": math.inf}
    workload = sized(1_000_000, forward_s=0.1, backward_s=0.0)
    runs = [
        simulate(content, workload, iterations=6, tcp=TcpOptions(window_bytes=2**40), seed=number)
        for number in (seed, seed, seed + 1)
    ]
    rows = [run.results.iterations for run in runs]
    assert rows[0] == rows[1] != rows[2]
    graph = runs[0].simulation.experiment.cluster.graph
    ways = [(name, f"{name}/wan") for name in content["parties"]]
    uplinks = [schedule(graph.edges[way], f"{way[0]} -> {way[1]}", seed) for way in ways]
    downlinks = [schedule(graph.edges[way[::-1]], f"{way[1]} -> {way[0]}", seed) for way in ways]
    wire = expected_bytes(workload) / EFFICIENCY
    start_s = [row["start_s"] for row in rows[0] if row["iteration"] == 0]
    end_s = {(row["worker"], row["iteration"]): row["end_s"] for row in rows[0]}
    for iteration in range(6):
        begun = [start + 0.1 for start in start_s]
        summed = max(up.finish(at, wire) for up, at in zip(uplinks, begun, strict=True))
        start_s = [end_s[f"{name}/worker0", iteration] for name in content["parties"]]
        assert start_s == pytest.approx([down.finish(summed, wire) for down in downlinks], abs=5e-3)


def test_a_run_waits_for_a_disconnected_site_without_loss(
    two_parties: Cluster, network: Build, tiny: Any, simulate: Build
) -> None:
    calm = simulate(two_parties, tiny)
    away = {"site": "party1", "start_s": 0.05, "end_s": 30}
    stormy = simulate(network(2, 2) | {"outages": [away]}, tiny)
    for one, other in zip(calm.parameters, stormy.parameters, strict=True):
        assert np.array_equal(one, other)
    assert calm.bytes == stormy.bytes
    late = stormy.results.summary["seconds"] - calm.results.summary["seconds"]
    assert 29 < late < 30


@pytest.mark.needs("mixedsync")
def test_a_partition_does_not_affect_other_sites(
    network: Build, tiny: Any, simulate: Build
) -> None:
    cut = {"partition": [["hub", "party0"], ["party1"]], "start_s": 0.1, "end_s": 20}
    run = simulate(network(1, 1) | {"outages": [cut]}, tiny, sync=("mixedsync", {}))
    ends = {
        name: max(row["end_s"] for row in run.results.iterations if row["party"] == name)
        for name in ("party0", "party1")
    }
    assert ends["party0"] < 2
    assert ends["party1"] > 20


@pytest.mark.needs("dgt")
def test_queues_drop_datagrams_that_wait_out_an_outage(
    network: Build, sized: Build, simulate: Build
) -> None:
    """Reliable slices wait, and rounds end without the best-effort ones."""
    workload = sized(100_000, 100_000)
    content = network(1, 1, mbps=20) | {
        "outages": [
            {"site": "party1", "start_s": 0.3 * n, "end_s": 0.3 * n + 0.2} for n in range(9)
        ]
    }
    lost, ends = {}, {}
    for queue_ms in (None, 40):
        run = simulate(content | {"queue_ms": queue_ms}, workload, accel=["dgt"], iterations=12)
        lost[queue_ms] = run.simulation.fabric.lost_messages
        ends[queue_ms] = len(run.results.iterations)
    assert lost[None] == 0 < lost[40]
    assert ends == {None: 24, 40: 24}
