"""Programs that act on the simulated world: closed forms, reading and changing it, and errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import geomx
from geomx.errors import ConfigError, GeomxError, PluginError
from geomx.events import EdgeChanged, NodeActed, StepEnded, TransferEnded, ValueArrived
from geomx.network.files import read_network
from geomx.options.schema import FaultOptions, TcpOptions
from geomx.scenario import read_scenario
from geomx.sim import Transfer, World
from tests.laws import Build, registry_with, short_form

Process = Iterator[Any]
PAYLOAD = 1448 / 1500


def nothing(world: World) -> None:
    """Do nothing."""


# ---- closed forms ----


def test_a_transfer_alone_takes_its_closed_form(act: Build) -> None:
    """Handshake, payload at the narrowest edge, delay; at a constant rate no handshake."""
    ends: list[Transfer] = []

    def program(world: World) -> None:
        for mbps in (None, 40.0):
            transfer = world.wan.transfer("hub", "party0", 1e6, mbps=mbps, priority=1)
            transfer.callbacks.append(lambda event: ends.append(event.value))
            world.wan.set("hub", "party0", delay_ms=0, both=True)

    act(program, elements=10)
    tcp, paced = sorted(ends, key=lambda transfer: transfer.mbps is not None)
    assert paced.ended_s == pytest.approx(1e6 / PAYLOAD * 8 / 40e6, rel=1e-6)
    # What the pace leaves of 80 Mbit/s, then all of it; the handshake was 20 ms at the start.
    left = 1e6 / PAYLOAD * 8 - 40e6 * (paced.ended_s - 0.02)
    assert tcp.ended_s == pytest.approx(paced.ended_s + left / 80e6, rel=0.01)


@pytest.mark.parametrize("cut_at", [20e6, 5e6])
def test_a_cut_delays_a_push_by_its_duration(act: Build, cut_at: float) -> None:
    """A process cuts the link when so many bytes of the push have been sent."""
    cuts: list[float] = []

    def cut(world: World) -> Process:
        uplink = "party0", "party0/wan"
        yield world.when(lambda: world.wan.carried(*uplink) >= cut_at, every_s=0.001)
        cuts.append(world.now_s)
        world.wan.set("party0", "hub", mbps=0)
        yield world.env.timeout(world.seconds(1.7))
        world.wan.set("party0", "hub", mbps=math.inf)

    plain = act(nothing, elements=10_000_000, iterations=1)
    disturbed = act(lambda world: world.process(cut(world)) and None, 10_000_000, iterations=1)
    assert cuts
    longer = disturbed.results.summary["seconds"] - plain.results.summary["seconds"]
    assert longer == pytest.approx(1.7, rel=0.01)


@pytest.mark.parametrize(
    ("weight", "control", "share"), [(1.0, None, 0.5), (3.0, None, 0.25), (1.0, "cubic", 0.5)]
)
def test_background_traffic_slows_training_as_max_min_says(
    act: Build, weight: float, control: str | None, share: float
) -> None:
    def background(world: World) -> Process:
        while True:
            yield world.wan.transfer("party0", "hub", 1e9, weight=weight, congestion=control)

    only = short_form(1, mbps=80, delay_ms=0)
    push = 10_000_000
    alone = act(nothing, push, iterations=1, network=only)
    shared = act(
        lambda world: world.process(background(world)) and None, push, iterations=1, network=only
    )
    sending = 2 * 4 * push / PAYLOAD * 8 / 80e6  # the initial values and one push
    longer = shared.results.summary["seconds"] - alone.results.summary["seconds"]
    assert longer == pytest.approx(sending / share - sending, rel=0.01)


@pytest.mark.parametrize(("emulate", "share"), [("shaper", 0.0), ("netns", 52 / 3000)])
def test_acknowledgements_take_their_share_of_the_way_back(
    act: Build, emulate: str, share: float
) -> None:
    """Two transfers against each other; the way back of the faster one is ten times as slow."""
    ended: list[float] = []

    def program(world: World) -> None:
        world.wan.set("party0", "hub", mbps=8)
        for ends, size in ((("party0", "hub"), 1e6), (("hub", "party0"), 2e7)):
            transfer = world.wan.transfer(*ends, size * PAYLOAD)
            transfer.callbacks.append(lambda _: ended.append(world.now_s))

    only = short_form(1, mbps=80, delay_ms=0)
    equal = TcpOptions(congestion="cubic")  # under bbr, queues do not give equal shares
    act(program, 1, iterations=400, network=only, emulate=emulate, tcp=equal)
    rate = 1e6 / (1 + share)  # of each, if acknowledgements and data share the slow edge evenly
    slow = 1e6 / rate
    fast = slow + (2e7 - rate * slow) / 1e7 if share else 2.0
    assert ended == pytest.approx([slow, fast], rel=0.01)


@pytest.mark.parametrize(("priority", "longer_by"), [(1, 4.0), (-1, 0.0)])
def test_priority_is_strict(act: Build, priority: int, longer_by: float) -> None:
    """A transfer of four seconds goes before or after the whole push."""
    size = 4 * 80e6 / 8 * PAYLOAD
    ends: list[float] = []

    def program(world: World) -> None:
        transfer = world.wan.transfer("party0", "hub", size, priority=priority)
        transfer.callbacks.append(lambda _: ends.append(world.now_s))

    only = short_form(1, mbps=80, delay_ms=0)
    alone = act(nothing, 10_000_000, iterations=2, network=only)
    shared = act(program, 10_000_000, iterations=2, network=only)
    longer = shared.results.summary["seconds"] - alone.results.summary["seconds"]
    assert longer == pytest.approx(longer_by, abs=0.05)
    assert ends if priority > 0 else True


def test_a_new_delay_counts_for_what_leaves_afterwards(act: Build) -> None:
    def program(world: World) -> None:
        world.wan.set("party0", "hub", delay_ms=110, both=True)
        world.wan.set("party1", "hub", delay_ms=110, both=True)

    far = act(nothing, 10, network=short_form(1, 1, mbps=80, delay_ms=110))
    assert act(program, 10).results.summary["seconds"] == pytest.approx(
        far.results.summary["seconds"], rel=1e-6
    )


def test_a_new_loss_takes_its_share(act: Build) -> None:
    def program(world: World) -> None:
        world.wan.edges["party0/wan", "hub/wan"]["loss"] = 0.2

    only = short_form(1, mbps=80, delay_ms=0)
    alone = act(nothing, 10_000_000, iterations=1, network=only)
    lossy = act(program, 10_000_000, iterations=1, network=only)
    sending = 2 * 4e7 / PAYLOAD * 8 / 80e6  # the initial values and one push
    longer = lossy.results.summary["seconds"] - alone.results.summary["seconds"]
    assert longer == pytest.approx(sending / 0.8 - sending, rel=0.01)


# ---- ways ----


def triangle() -> nx.DiGraph:
    """Two sites with a short way and a longer one through a router."""
    graph = nx.DiGraph(name="triangle")
    graph.add_node("hub/scheduler", kind="scheduler", party="hub")
    graph.add_node("hub/gs", kind="global_server", party="hub")
    graph.add_node("far/server", kind="server", party="far")
    graph.add_node("far/worker", kind="worker", party="far")
    for router in ("H", "F", "X"):
        graph.add_node(router, kind="router")
    hosts = {"hub/scheduler": "H", "hub/gs": "H", "far/server": "F", "far/worker": "F"}
    ends = [(host, router, 10_000, 0.0) for host, router in hosts.items()]
    for one, other, mbps, delay in [*ends, ("H", "F", 80, 5), ("H", "X", 80, 5), ("X", "F", 80, 5)]:
        for edge in ((one, other), (other, one)):
            graph.add_edge(*edge, bandwidth_mbps=mbps, delay_ms=delay)
    return graph


@pytest.mark.parametrize("how", ["reroute", "set_path"])
def test_what_is_rerouted_goes_on_over_the_other_way(act: Build, how: str) -> None:
    moved: list[Any] = []

    def fail(world: World) -> Process:
        yield world.env.timeout(world.seconds(11))  # in the push that follows the initial values
        world.wan.set("F", "H", up=False, both=True)
        yield world.env.timeout(world.seconds(1))
        if how == "reroute":
            moved.append(world.wan.reroute())
        else:
            world.wan.set_path(["F", "X", "H"])
            world.wan.set_path(["H", "X", "F"])
        moved.append(world.wan.path("far/server", "hub/gs"))

    network = geomx_network(triangle())
    plain = act(nothing, 10_000_000, iterations=1, network=network)
    failed = act(
        lambda world: world.process(fail(world)) and None, 10_000_000, iterations=1,
        network=network,
    )  # fmt: skip
    assert moved[-1] == ["far/server", "F", "X", "H", "hub/gs"]
    longer = failed.results.summary["seconds"] - plain.results.summary["seconds"]
    assert longer == pytest.approx(1.0, abs=0.1)
    rows = {(row["source"], row["target"]): row["bytes"] for row in failed.results.edges}
    straight = {(row["source"], row["target"]): row["bytes"] for row in plain.results.edges}
    assert rows["F", "X"] == rows["X", "H"] > 0 < rows["F", "H"]
    assert rows["F", "H"] + rows["F", "X"] == straight["F", "H"]
    assert straight["F", "X"] == 0


def geomx_network(graph: nx.DiGraph) -> dict[str, Any]:
    """Return the content of a network file."""
    data: dict[str, Any] = nx.node_link_data(graph, edges="edges")
    return data


# ---- what is counted and seen ----


def test_edges_count_transfers_and_present_bandwidths(act: Build) -> None:
    seen: dict[str, Any] = {}

    def program(world: World) -> None:
        world.process(watch(world))

    def watch(world: World) -> Process:
        wan = world.wan
        transfer = wan.transfer("party0", "hub", 1e6, mbps=8)
        yield world.env.timeout(world.seconds(0.5))
        seen["rate"] = transfer.rate_mbps
        seen["left"] = transfer.left_bytes
        seen["flows"] = [flow for flow in wan.flows() if flow.kind == "transfer"]
        seen["load"] = wan.load("party0/wan", "hub/wan")
        wan.edges["party0", "party0/wan"]["bandwidth_mbps"] = 20
        assert transfer.cancel() == pytest.approx(1e6 - seen["left"])
        assert (yield transfer).cancelled

    run = act(program, 300_000, network=short_form(1, 1, mbps=80, delay_ms=0), iterations=5)
    calm = act(nothing, 300_000, network=short_form(1, 1, mbps=80, delay_ms=0), iterations=5)
    assert seen["rate"] == pytest.approx(8 * PAYLOAD)
    assert seen["left"] == pytest.approx(1e6 - 0.5e6 * PAYLOAD, rel=1e-6)
    (flow,) = seen["flows"]
    assert flow.edges[0] == ("party0", "party0/wan") and flow.transfer.priority == 0
    assert seen["load"] >= 8 - 1e-6
    rows, before = (
        {(r["source"], r["target"]): r for r in one.results.edges} for one in (run, calm)
    )
    uplink = "party0", "party0/wan"
    sent = rows[uplink]["bytes"] - before[uplink]["bytes"]
    assert sent == pytest.approx(0.5e6 * PAYLOAD, abs=1)
    seconds = run.results.summary["seconds"]
    could = (80e6 * 0.5 + 20e6 * (seconds - 0.5)) / 8
    assert rows[uplink]["utilisation"] == pytest.approx(rows[uplink]["bytes"] / could, rel=1e-6)


def test_a_program_that_only_looks_changes_nothing(act: Build) -> None:
    def look(world: World) -> Process:
        while True:
            yield world.env.timeout(world.seconds(0.003))
            world.wan.flows()
            world.wan.load("hub/wan", "party0/wan")
            world.wan.queue("party0", "party0/wan")
            world.wan.mbps("party0", "party0/wan")

    bare, calm = act(None), act(nothing)
    watched = act(lambda world: world.process(look(world)) and None)
    for name in ("iterations.csv", "links.csv", "edges.csv"):
        files = [(run.results.directory / name).read_bytes() for run in (bare, calm, watched)]
        assert files[0] == files[1] == files[2]


def test_sites_stand_for_their_routers(act: Build) -> None:
    """Also among the edges, as networkx shows them."""
    seen: list[Any] = []

    def program(world: World) -> None:
        edges = world.wan.edges
        edges["party0", "hub"]["delay_ms"] = 7
        seen.extend((edges["party0/wan", "hub/wan"]["delay_ms"], len(edges), len(list(edges))))
        with pytest.raises(KeyError, match="there is no node hob; did you mean hub"):
            edges["party0", "hob"]

    act(program)
    assert seen == [7, len(read_network(short_form(1, 1)).graph.edges), seen[1]]


def test_attributes_of_an_edge_may_be_merged(act: Build) -> None:
    seen: list[float] = []

    def program(world: World) -> None:
        world.wan.edges["party0", "party0/wan"] |= {"bandwidth_mbps": 7, "delay_ms": 3}
        data = world.wan.edges["party0", "party0/wan"]
        seen.extend((world.wan.mbps("party0", "party0/wan"), data["delay_ms"]))
        with pytest.raises(TypeError, match="can be set, not replaced"):
            world.wan.edges["party0", "party0/wan"] = {"bandwidth_mbps": 8}  # type: ignore[assignment]

    act(program)
    assert seen == [7, 3]


def test_what_the_world_does_not_know_is_refused(act: Build) -> None:
    def program(world: World) -> None:
        with pytest.raises(ValueError, match=r"every_s=0: must be 0\.001 or more"):
            world.when(lambda: False, every_s=0)
        with pytest.raises(ValueError, match=r"kind='StepEnded'.*geomx\.events: StepEnded, Value"):
            world.events.next("StepEnded")
        with pytest.raises(ValueError, match=r"up='no' of edge .* must be True or False"):
            world.wan.set("party0", "hub", up="no")

    act(program)


def test_events_and_conditions(act: Build) -> None:
    heard: list[Any] = []
    waited: list[Any] = []

    def program(world: World) -> None:
        for kind in (StepEnded, ValueArrived, EdgeChanged, TransferEnded, NodeActed):
            world.events.subscribe(kind, heard.append)
        world.process(wait(world))

    def wait(world: World) -> Process:
        event = yield world.events.next(StepEnded, lambda step: step.worker == "party1/worker0")
        waited.append(event)
        assert world.nodes["party1/worker0"].step == 2
        yield world.when(lambda: world.round("t0") >= 2)
        waited.append((world.now_s, world.round(), world.nodes["party0/worker0"].round("t0")))
        world.nodes["party0/server"].pause(0.2)
        yield world.wan.transfer("hub", "party1", 1e4)
        world.wan.set("party0", "hub", loss=0.1)

    act(program, iterations=5)
    assert waited[0].step == 0 and waited[1][1] == 2 <= waited[1][2]
    kinds = {type(event) for event in heard}
    assert kinds == {StepEnded, ValueArrived, EdgeChanged, TransferEnded, NodeActed}
    times = [event.time_s for event in heard]
    assert times == sorted(times)
    values = [event for event in heard if isinstance(event, ValueArrived)]
    assert any(event.time_s == waited[1][0] and event.round == 2 for event in values)


DONE = [
    (0.01, "party0/worker0", "pause"), (0.03, "party1/worker0", "slow"),
    (0.05, "party0/worker0", "kill"), (0.08, "party0/worker0", "restart"),
]  # fmt: skip
EVENTS = [
    {"at_s": 0.01, "pause": "party0/worker0", "for_s": 0.01},
    {"at_s": 0.03, "slow": "party1/worker0", "times": 2, "for_s": 0.01},
    {"at_s": 0.05, "kill": "party0/worker0", "restart_s": 0.03},
]


@pytest.mark.parametrize("by_program", [True, False], ids=["program", "scenario"])
def test_what_is_done_to_nodes_is_published(act: Build, by_program: bool) -> None:
    """The same of programs and scenarios; the ends of pauses and of slow times are no events."""
    heard: list[NodeActed] = []

    def acts(world: World) -> Process:
        yield world.env.timeout(world.seconds(0.01))
        world.nodes["party0/worker0"].pause(0.01)
        yield world.env.timeout(world.seconds(0.02))
        world.compute.slow("party1/worker0", 2)
        yield world.env.timeout(world.seconds(0.02))
        world.nodes["party0/worker0"].kill(restart_s=0.03)
        yield world.events.next(NodeActed, lambda event: event.what == "restart")
        assert world.now_s == pytest.approx(0.08)

    def program(world: World) -> None:
        world.events.subscribe(NodeActed, heard.append)
        if by_program:
            world.process(acts(world))

    events = () if by_program else read_scenario(EVENTS, read_network(short_form(1, 1)))
    act(program, iterations=5, faults=FaultOptions(on_loss="continue"), scenario=events)
    assert [(round(each.time_s, 9), each.node, each.what) for each in heard] == DONE


def test_compute_follows_functions_sequences_and_slow_nodes(act: Build) -> None:
    def program(world: World) -> None:
        world.compute.set("party0/worker0", lambda step: 1 + step)
        world.compute.set("party1/worker0", [2, 5])
        world.compute.slow("party1/worker0", 3)

    run = act(program, 10, iterations=4)
    took = {(row["worker"], row["iteration"]): row["compute_s"] for row in run.results.iterations}
    for step in range(4):
        assert took["party0/worker0", step] == pytest.approx(0.02 * (1 + step))
        assert took["party1/worker0", step] == pytest.approx(0.02 * 3 * (2, 5)[step % 2])
    whole = sum(0.02 * max(1 + step, 3 * (2, 5)[step % 2]) for step in range(4))
    assert run.results.summary["seconds"] > whole


def test_random_numbers_come_from_the_seed(act: Build) -> None:
    drawn: list[float] = []
    for seed in (1, 1, 2):
        act(lambda world: drawn.append(world.random.random()), seed=seed)
    assert drawn[0] == drawn[1] != drawn[2]


# ---- where programs come from ----


@pytest.mark.slow
def test_a_file_is_a_scenario(tmp_path: Path) -> None:
    file = tmp_path / "my_world.py"
    file.write_text(
        "def slow(world):\n"
        "    yield world.env.timeout(world.seconds(0.01))\n"
        "    for worker in world.experiment.cluster.workers:\n"
        "        world.compute.slow(worker.name, 20)\n"
        "def world(world):\n"
        "    world.process(slow(world))\n"
    )
    words = ["workload=tiny", "iterations=4"]
    slow = geomx.run([*words, f"scenario={file}", f"hydra.run.dir={tmp_path / 'slow'}"])
    calm = geomx.run([*words, f"hydra.run.dir={tmp_path / 'calm'}"])
    assert slow.summary["seconds"] > calm.summary["seconds"]
    assert (slow.directory / "parameters.npz").read_bytes() == (
        calm.directory / "parameters.npz"
    ).read_bytes()
    with pytest.raises(ConfigError, match=rf"mode=live: scenario={file}: world acts on the sim"):
        geomx.run(*words, f"scenario={file}", "mode=live")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1", r"has no function world\(world\)"),
        ("import nowhere_at_all", "cannot be imported: ModuleNotFoundError: No module named"),
        (None, "there is no such file"),
    ],
)
def test_files_without_a_program_are_refused(
    tmp_path: Path, text: str | None, sentence: str
) -> None:
    file = tmp_path / "bad.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=rf"scenario={file}: {sentence}"):
        geomx.run(f"scenario={file}", "workload=tiny")


def test_a_plugin_acts_by_its_hook(simulate: Build, tiny: Any, network: Build) -> None:
    class Slow:
        @geomx.hookimpl
        def geomx_scenario(self, world: World) -> None:
            world.process(self.slow(world))

        def slow(self, world: World) -> Process:
            yield world.env.timeout(0)
            world.wan.set("party0", "nowhere", mbps=1)

    registry = registry_with(slow=("accel", Slow()))
    with pytest.raises(
        PluginError,
        match=r"Slow.slow \(test_world.py:\d+\) failed: .* no node now",
    ):
        simulate(network(1, 1), tiny, accel=["slow"], registry=registry)


# ---- errors ----


def attempts() -> dict[str, tuple[Callable[[World], object], str]]:
    """Return mistakes of programs, with what the error says."""
    return {
        "edge": (lambda w: w.wan.set("party0", "party0/server1", mbps=1), "there is no node"),
        "no edge": (lambda w: w.wan.set("party0", "party1/server", mbps=1), "no edge party0 -> p"),
        "negative": (
            lambda w: w.wan.set_bandwidth("party0", "hub", -5),
            "bandwidth_mbps=-5 of edge party0/wan -> hub/wan: must be 0 or more",
        ),
        "nan": (lambda w: w.wan.set("party0", "hub", delay_ms=math.nan), "delay_ms=nan of edge"),
        "loss": (lambda w: w.wan.set("party0", "hub", loss=1), "loss=1 of edge"),
        "attribute": (
            lambda w: w.wan.edges["party0", "party0/wan"].update(bandwith_mbps=1),
            "bandwith_mbps=1 of edge party0 -> party0/wan: did you mean bandwidth_mbps",
        ),
        "removed": (lambda w: w.wan.edges["party0", "party0/wan"].pop("loss"), "set, not removed"),
        "frozen": (lambda w: w.wan.add_edge("a", "b"), "Frozen graph"),
        "size": (lambda w: w.wan.transfer("party0", "hub", -1), "size_bytes=-1: must be"),
        "weight": (lambda w: w.wan.transfer("party0", "hub", 1, weight=0), "weight=0: must be"),
        "rate": (lambda w: w.wan.transfer("party0", "hub", 1, mbps=0), "mbps=0: must be"),
        "control": (
            lambda w: w.wan.transfer("party0", "hub", 1, congestion="vegas"), "one of bbr, cubic"
        ),
        "path": (lambda w: w.wan.set_path(["party0"]), "two nodes or more"),
        "loop": (
            lambda w: w.wan.set_path(["party0", "party0/wan", "party0"]),
            "passes no node twice, unlike party0 - party0/wan - party0",
        ),
        "delay": (lambda w: w.wan.set("party0", "hub", delay_ms=4e6), "must be 0 to 3,600,000 ms"),
        "seconds": (lambda w: w.seconds(-1), "seconds=-1: must be 0 or more"),
        "process": (lambda w: w.process(attempts), "call the function"),  # type: ignore[arg-type]
        "node": (lambda w: w.nodes["party0/worker9"], "there is no node party0/worker9"),
        "server": (lambda w: w.nodes["party0/server"].step, "is a server and not a worker"),
        "tensor": (lambda w: w.round("t7"), "there is no tensor t7; did you mean t0"),
        "worker": (lambda w: w.compute.set("party0", 2), "there is no worker party0"),
        "truth": (
            lambda w: w.wan.set("party0", "hub", mbps=True),
            "bandwidth_mbps=True of edge party0/wan -> hub/wan: must be 0 or more Mbit/s",
        ),
        "text": (lambda w: w.wan.set_bandwidth("party0", "hub", "5"), "bandwidth_mbps='5' of edge"),
        "true size": (lambda w: w.wan.transfer("party0", "hub", True), "size_bytes=True: must be"),
        "text rate": (lambda w: w.wan.transfer("party0", "hub", 1, mbps="5"), "mbps='5': must be"),
        "priority": (
            lambda w: w.wan.transfer("party0", "hub", 1, priority=math.nan),
            "priority=nan: must be a whole number from -100 to 100",
        ),
        "both": (lambda w: w.wan.set("party0", "hub", mbps=1, both="x"), "both='x': must be True"),
        "listed": (lambda w: w.wan.set("party0", ["hub"], mbps=1), "there is no node ['hub']"),
        "read": (lambda w: w.wan.mbps("hub", ["hub"]), "there is no node ['hub']"),
        "array": (lambda w: w.wan.path(np.array(["hub"]), "hub"), "there is no node ['hub']"),
        "nodes": (lambda w: w.wan.set_path(3), "nodes=3: must be a list of names"),
        "true times": (lambda w: w.compute.slow("party0/worker0", True), "times=True: must be"),
        "pause": (lambda w: w.nodes["party0/worker0"].pause("1"), "for_s='1': must be above 0"),
        "text seconds": (lambda w: w.seconds("1"), "seconds='1': must be 0 or more"),
        "condition": (lambda w: w.when(True), "predicate=True: must be a function"),
        "observer": (
            lambda w: w.events.subscribe(StepEnded, None), "observer=None: must be a function"
        ),
        "times": (lambda w: w.compute.slow("party0/worker0", 0), "times=0: must be"),
        "restart": (lambda w: w.nodes["party0/worker0"].restart(), "needs faults.on_loss=continue"),
    }  # fmt: skip


def test_scalars_and_arrays_of_numpy_are_numbers(act: Build) -> None:
    two, one = np.float32(2), np.int64(1)

    def ours(world: World) -> None:
        world.wan.set("party0", "hub", mbps=two, delay_ms=one)
        assert world.wan.edges["party0", "hub"]["bandwidth_mbps"] == 2.0
        sent = world.wan.transfer("party0", "hub", one, weight=two, priority=one, mbps=two)
        assert (sent.size_bytes, sent.weight, sent.priority, sent.mbps) == (1, 2, 1, 2)
        world.compute.set("party0/worker0", np.array([2.0, 1.0], np.float32))
        world.compute.set("party1/worker0", lambda step: two)
        world.compute.slow("party0/server", two)
        world.nodes["party0/worker0"].pause(np.float32(1e-3))
        assert world.seconds(two) == 2_000_000_000

    act(ours)


@pytest.mark.parametrize("mistake", attempts())
def test_mistakes_name_the_process_and_the_value(act: Build, mistake: str) -> None:
    do, sentence = attempts()[mistake]

    def erring(world: World) -> Process:
        yield world.env.timeout(1)
        do(world)

    with pytest.raises(GeomxError) as caught:
        act(lambda world: world.process(erring(world)) and None)
    assert "SimPy process" in str(caught.value) and "erring (test_world.py:" in str(caught.value)
    assert sentence in str(caught.value)


def test_a_program_that_fails_or_yields_is_named(act: Build) -> None:
    def generator(world: World) -> Any:
        yield world.env.timeout(1)

    with pytest.raises(PluginError, match=r"program returned <generator .* must return None"):
        act(generator)
    with pytest.raises(PluginError, match="program failed: ZeroDivisionError"):
        act(lambda world: 1 / 0)
    with pytest.raises(ConfigError, match="world='f': must be a function of one argument"):
        geomx.run("workload=tiny", world="f")  # type: ignore[arg-type]


# ---- the page ----


@pytest.mark.slow
def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[1] / "docs" / "world.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    examples = page.split("```python\n")[1:]
    assert len(examples) >= 2
    for example in examples:
        exec(compile(example.split("```")[0], "world.md", "exec"), {})
