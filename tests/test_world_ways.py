"""Ways and edges of the simulated world that fail and come back, and copies of its graph."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import networkx as nx
import pytest

from geomx.events import EdgeChanged
from geomx.sim import World
from tests.laws import Build
from tests.test_world import geomx_network, nothing, triangle

Process = Iterator[Any]
STRAIGHT, AROUND = ["F", "H"], ["F", "X", "H"]


@pytest.fixture
def on_triangle(act: Build) -> Callable[..., Any]:
    """Run a process of the world on `triangle`, whose edges F -> H and H -> F have attributes."""

    def run(process: Callable[[World], Process], **attributes: Any) -> Any:
        graph = triangle()
        for edge in (("F", "H"), ("H", "F")):
            graph.edges[edge].update(attributes)

        def program(world: World) -> None:
            world.process(process(world))

        return act(program, 4_000_000, iterations=2, network=geomx_network(graph))

    return run


def cut(world: World, *others: str) -> None:
    """Cut the edges between F and other routers, and reroute."""
    for other in others:
        world.wan.set("F", other, up=False, both=True)
    world.wan.reroute()


@pytest.mark.parametrize("before", [STRAIGHT, AROUND])
def test_a_way_stays_where_there_is_no_other(on_triangle: Build, before: list[str]) -> None:
    """Of links and transfers under way, and of what was never asked for; then all goes on."""
    seen: dict[str, Any] = {}

    def process(world: World) -> Process:
        wan = world.wan
        if before == AROUND:
            cut(world, "H")
        transfer = wan.transfer("F", "H", 5e6)
        yield world.env.timeout(world.seconds(0.3))
        cut(world, "H", "X")
        seen["moved"], seen["way"] = wan.reroute(), wan.path("F", "H")
        seen["flows"] = {flow.kind: flow.edges for flow in wan.flows()}
        seen["never asked for"] = wan.path("X", "F")
        late = wan.transfer("far/worker", "hub/gs", 1e5)
        with pytest.raises(ValueError, match="there is no node Z; allowed: F"):
            wan.path("F", "Z")
        yield world.env.timeout(world.seconds(1))
        seen["early"] = transfer.triggered or late.triggered
        for other in ("H", "X"):
            wan.set("F", other, up=True, both=True)
        yield transfer & late
        seen["end"] = world.now_s

    on_triangle(process)
    assert seen["moved"] == 0 and seen["way"] == before
    assert seen["flows"]["transfer"] == tuple(pairwise(before))
    assert seen["flows"]["training"][0] == ("far/worker", "F") or len(seen["flows"]) > 1
    assert seen["never asked for"] == ["X", "F"]
    assert not seen["early"] and seen["end"] > 1.3


def test_a_planned_outage_is_no_way(on_triangle: Build) -> None:
    ways = []

    def process(world: World) -> Process:
        for until_s in (2, 6):
            yield world.env.timeout(world.seconds(until_s - world.now_s))
            world.wan.reroute()
            ways.append(world.wan.path("F", "H"))

    on_triangle(process, outages=[{"start_s": 1, "end_s": 5}])
    assert ways == [AROUND, STRAIGHT]


@pytest.mark.parametrize("routing", ["shortest", "widest"])
def test_ways_are_chosen_by_the_routing_of_the_network(act: Build, routing: str) -> None:
    """By the bandwidths at present: 50 Mbit/s from 1 s to 5 s, where the way around has 60."""
    graph, ways = triangle(), []
    for edge in (("F", "H"), ("H", "F")):
        graph.edges[edge]["trace"] = [[0, 80], [1, 50], [5, 70]]
    for edge in (("F", "X"), ("X", "F"), ("X", "H"), ("H", "X")):
        graph.edges[edge]["bandwidth_mbps"] = 60
    graph.graph["routing"] = routing

    def process(world: World) -> Process:
        for until_s in (0, 2, 6):
            yield world.env.timeout(world.seconds(until_s - world.now_s))
            world.wan.reroute()
            ways.append(world.wan.path("F", "H"))

    program = lambda world: world.process(process(world)) and None  # noqa: E731
    act(program, 4_000_000, iterations=2, network=geomx_network(graph))
    assert ways == [STRAIGHT, AROUND if routing == "widest" else STRAIGHT, STRAIGHT]


def test_an_edge_that_was_down_follows_its_trace_again(on_triangle: Build) -> None:
    """It has gone on meanwhile; what is up or down already does not change."""
    mbps, heard = [], []

    def process(world: World) -> Process:
        world.events.subscribe(EdgeChanged, heard.append)
        wan = world.wan
        for at_s, up in ((0.5, True), (1, False), (1.5, False), (3, True), (4.5, None)):
            yield world.env.timeout(world.seconds(at_s) - world.env.now)
            if up is not None:
                wan.set("F", "H", up=up)
            mbps.append(wan.mbps("F", "H"))
        assert wan.edges["F", "H"]["trace"] and wan.edges["F", "H"]["bandwidth_mbps"] == 80

    run = on_triangle(process, trace=[[0, 80], [0.75, 60], [2, 20], [4, 40]])
    assert mbps == pytest.approx([80, 0, 0, 20, 40])
    assert [(event.time_s, dict(event.changes)) for event in heard] == [
        (1, {"up": False}), (3, {"up": True}),
    ]  # fmt: skip
    (row,) = (row for row in run.results.edges if (row["source"], row["target"]) == ("F", "H"))
    seconds = run.results.summary["seconds"]
    could = (0.75 * 80 + 0.25 * 60 + 1 * 20 + 40 * (seconds - 4)) * 1e6 / 8
    assert row["utilisation"] == pytest.approx(row["bytes"] / could, rel=1e-6)


@pytest.mark.parametrize(("trace", "expected"), [(None, 10), ([[0, 80], [2, 20]], 10)])
def test_a_bandwidth_that_is_set_while_an_edge_is_down_counts_when_it_is_up(
    on_triangle: Build, trace: Any, expected: float
) -> None:
    mbps = []

    def process(world: World) -> Process:
        for at_s, values in ((1, {"up": False}), (2, {"mbps": 10}), (3, {"up": True})):
            yield world.env.timeout(world.seconds(at_s) - world.env.now)
            world.wan.set("F", "H", **values)
            mbps.append(world.wan.mbps("F", "H"))

    on_triangle(process, **({"trace": trace} if trace else {}))
    assert mbps == pytest.approx([0, 0, expected])


def test_functions_of_networkx_copy_the_graph(act: Build) -> None:
    """Also those that reverse it or copy its attributes; copies act on nothing."""
    heard: list[EdgeChanged] = []

    def program(world: World) -> None:
        world.events.subscribe(EdgeChanged, heard.append)
        wan, edge = world.wan, ("F", "H")
        copies = [wan.reverse(), wan.to_undirected(), wan.copy(), nx.DiGraph(wan)]
        copies.append(wan.subgraph(["F", "H"]).copy())
        for graph in copies:
            data = graph.get_edge_data(*edge)
            assert data["bandwidth_mbps"] == 80
            data["bandwidth_mbps"] = 1
        copy.deepcopy(wan.edges[edge])["delay_ms"] = 1
        closeness = nx.closeness_centrality(wan, distance="delay_ms")
        assert closeness == pytest.approx(nx.closeness_centrality(triangle(), distance="delay_ms"))
        assert nx.betweenness_centrality(wan) and nx.is_strongly_connected(wan)
        assert wan.edges[edge]["bandwidth_mbps"] == 80 and wan.mbps(*edge) == 80

    run = act(program, 10, network=geomx_network(triangle()))
    calm = act(nothing, 10, network=geomx_network(triangle()))
    assert not heard and run.results.summary["seconds"] == calm.results.summary["seconds"]


@pytest.mark.parametrize("what", ["bandwidth_mbps", "delay_ms", "path", "transfer", "cancel"])
def test_programs_act_while_everything_waits_for_an_outage(act: Build, what: str) -> None:
    """Meanwhile an edge that nothing waits for has had other bandwidths."""
    graph = triangle()
    graph.edges["F", "H"]["outages"] = [{"start_s": 1, "end_s": 50}]
    graph.edges["X", "F"]["redraw"] = {"every_s": 0.5, "low_mbps": 70, "high_mbps": 90}
    seen: list[float] = []

    def process(world: World) -> Process:
        wan = world.wan
        yield wan.transfer("F", "H", 1e3)
        waiting = wan.transfer("F", "H", 1e7)
        yield world.env.timeout(world.seconds(20) - world.env.now)
        if what == "path":
            wan.set_path(AROUND)
        elif what == "transfer":  # over the connection of the one that has ended
            yield wan.transfer("F", "X", 1e3)
        elif what == "cancel":
            waiting.cancel()
        else:
            wan.edges["F", "H"][what] = 80
        seen.append(world.now_s)

    def program(world: World) -> None:
        world.process(process(world))

    run = act(program, 4_000_000, iterations=2, network=geomx_network(graph))
    assert seen == [pytest.approx(20, abs=0.1)]
    assert (run.results.summary["seconds"] < 50) == (what in ("bandwidth_mbps", "path"))
