"""Laws of simulated training: equal results, bytes, and durations."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import geomx
from geomx import _core
from geomx.cluster import Cluster
from geomx.errors import ConfigError
from geomx.experiment import wiring
from geomx.network.files import read_network
from geomx.options.costs import Costs
from geomx.options.schema import RuntimeOptions, SimOptions
from geomx.plugin.parts import Partitioner, cut_evenly
from geomx.plugin.registry import Registry
from geomx.plugin.sync import SyncPolicy
from geomx.results.results import Results
from geomx.workload import Workload
from tests.conftest import present
from tests.laws import (
    FRAME_BYTES,
    PARTIES,
    Build,
    Watch,
    by_hand,
    close,
    expected_bytes,
    on_all_batches,
    registry_with,
    sizes,
)

pytestmark = pytest.mark.interpreter  # the core as a module

EFFICIENCY = 1448 / 1500


# ---- reproducibility ----


@pytest.mark.parametrize(
    "words",
    [
        ["workload=tiny"],
        pytest.param(
            ["+sync=hfa", "sync.k1=2", "+accel=[dgt,p3]"],
            marks=[pytest.mark.slow, pytest.mark.needs("hfa", "dgt", "p3")],
        ),
    ],
)
def test_equal_seeds_have_equal_files(
    words: list[str], network_file: Build, tmp_path: Path, seed: int
) -> None:
    network = network_file(1, 2, loss=0.02)
    content = []
    for name, number in (("a", seed), ("b", seed), ("c", seed + 1)):
        directory = tmp_path / name
        run = [f"hydra.run.dir={directory}", f"network={network}", "iterations=4"]
        geomx.run([*words, *run, f"seed={number}"])
        files = "iterations.csv", "links.csv", "parameters.npz"
        content.append({file: (directory / file).read_bytes() for file in files})
    first, again, other = content
    assert first == again
    assert first["iterations.csv"] != other["iterations.csv"]
    assert first["parameters.npz"] != other["parameters.npz"]


def test_accelerators_are_recorded_in_order(
    network: Build, tiny: Workload, simulate: Build
) -> None:
    known = [plugin.name for plugin in Registry.discover().plugins("accel")]
    for accel in (known, known[::-1]):
        run = simulate(network(1), tiny, accel=accel, iterations=1)
        summary = json.loads((run.results.directory / "summary.json").read_text())
        assert [choice["name"] for choice in summary["accel"]] == accel


# ---- full synchrony ----


@pytest.mark.parametrize("counts", PARTIES)
def test_fsa_equals_one_worker_on_all_batches(
    counts: tuple[int, ...], network: Build, tiny: Any, simulate: Build, seed: int
) -> None:
    alone = on_all_batches(tiny, seed, sum(counts))
    run = simulate(network(*counts), tiny)
    assert close(run.parameters, alone, 1e-6)
    assert close(run.parameters, by_hand(tiny, seed, counts, tiny.iterations), 1e-6)
    assert run.results.summary["rounds"] == tiny.iterations


# ---- bytes ----


@pytest.mark.parametrize("counts", PARTIES)
def test_bytes_equal_the_expected_bytes(
    counts: tuple[int, ...], network: Build, sized: Build, simulate: Build
) -> None:
    workload = sized(1, 65_536, 65_537, 1_000_000, 5)
    run = simulate(network(*counts), workload, iterations=3)
    model = expected_bytes(workload)
    assert _core.HEADER_BYTES == 80
    assert run.bytes["wan_push"] == run.bytes["wan_pull"] == 3 * len(counts) * model
    assert run.bytes["lan"] == 3 * 2 * sum(counts) * model
    rows = run.results.links
    assert sum(row["control_bytes"] for row in rows) == run.bytes["control"]
    assert sum(row["bytes"] for row in rows) == sum(run.bytes.values()) - run.bytes["control"]
    assert len(rows) == 2 * (sum(counts) + len(counts))
    assert all(row["kind"] == ("wan" if "hub/" in str(row) else "lan") for row in rows)
    seconds = run.results.summary["seconds"]
    for row in rows:  # no link exceeds its bandwidth
        mbps = 100 if row["kind"] == "wan" else 10_000
        assert row["bytes"] * 8 / (mbps * 1e6 * EFFICIENCY) <= row["busy_s"] + 1e-3
        assert row["busy_s"] <= seconds


def drawn_graph(seed: int) -> dict[str, Any]:
    """Return parties and a hub on a random tree of routers, whose paths share edges."""
    draw = random.Random(seed)
    nodes: list[dict[str, Any]] = [{"id": "hub/gs", "kind": "global_server", "party": "hub"}]
    edges: list[dict[str, Any]] = []

    def join(one: str, other: str, mbps: float, delay_ms: float) -> None:
        edges.append({"source": one, "target": other, "bandwidth_mbps": mbps, "delay_ms": delay_ms})

    routers = [f"r{number}" for number in range(draw.randint(2, 5))]
    nodes += [{"id": name} for name in routers]
    for number, name in enumerate(routers[1:]):
        mbps, delay_ms = draw.uniform(20, 200), draw.uniform(1, 20)
        join(name, routers[draw.randint(0, number)], mbps, delay_ms)
    join("hub/gs", routers[0], 1000, 0.05)
    for number in range(draw.randint(2, 4)):
        party = f"p{number}"
        nodes.append({"id": f"{party}/switch"})
        join(f"{party}/switch", draw.choice(routers), draw.uniform(20, 200), draw.uniform(1, 20))
        for worker in range(draw.randint(1, 3)):
            name = f"{party}/worker{worker}"
            nodes.append({"id": name, "kind": "worker", "party": party})
            join(name, f"{party}/switch", 10_000, 0.05)
    return {"nodes": nodes, "edges": edges}


@pytest.mark.parametrize("draw", range(5))
@pytest.mark.parametrize("skip", [True, False])
def test_the_load_of_an_edge_is_the_sum_of_its_paths(
    draw: int, skip: bool, sized: Build, simulate: Build, seed: int
) -> None:
    cluster = read_network(drawn_graph(seed * 100 + draw))
    accel = [[], ["p3"], ["tsengine"]][draw % 3] if present("p3", "tsengine") else []
    workload = sized(50_000, 300_000, 7)
    options = {"iterations": 12, "sim": SimOptions(skip=skip)}
    results = simulate(cluster, workload, None, accel, **options).results
    rows = {(row["source"], row["target"]): row for row in results.edges}
    assert list(rows) == list(cluster.graph.edges)
    over: dict[tuple[str, str], list[dict[str, Any]]] = {edge: [] for edge in rows}
    for link in results.links:
        route = cluster.path(cluster.node(link["source"]), cluster.node(link["target"]))
        for edge in route.edges:
            over[edge].append(link)
    assert max(map(len, over.values())) > 1
    seconds = results.summary["seconds"]
    for edge, row in rows.items():
        busy = [link["busy_s"] for link in over[edge]]
        assert row["bytes"] == sum(link["bytes"] for link in over[edge])
        most = cluster.graph.edges[edge]["bandwidth_mbps"] * 125_000 * seconds
        assert row["utilisation"] == pytest.approx(row["bytes"] / most)
        assert row["utilisation"] <= EFFICIENCY + 0.01
        assert max(busy, default=0.0) - 1e-6 <= row["busy_s"]
        if not any(
            link["control_bytes"] for link in over[edge]
        ):  # links omit the time of control messages
            assert row["busy_s"] <= sum(busy) + 1e-6
        assert row["utilisation"] * seconds <= row["busy_s"] + 1e-3
    assert Results.load(results.directory) == results


# ---- time ----

LAN = {"mbps": 1e7, "delay_ms": 0.0}


@pytest.mark.parametrize("mbps", [20, 400])
@pytest.mark.parametrize("delay_ms", [2, 80])
@pytest.mark.parametrize("tensors", [1, 6])
def test_an_iteration_in_closed_form(
    mbps: float, delay_ms: float, tensors: int, network: Build, sized: Build, simulate: Build
) -> None:  # fmt: skip
    """One worker, one WAN link, equal tensors: pushes are sequential; answers overlap with them.

    The first layer is pushed and answered last, so an iteration takes the computing, all pushes,
    one answer, and a round trip.
    """
    from geomx.options.schema import TcpOptions

    elements, forward_s, backward_s = 1_000_000, 0.01, 0.05
    workload = sized(*[elements] * tensors, forward_s=forward_s, backward_s=0.0)
    layers = list(workload.layers)
    layers[-1] = type(layers[-1])("last", forward_s, backward_s)
    workload = type(workload)(**{**vars(workload), "layers": tuple(layers)})
    run = simulate(
        network(1, mbps=mbps, delay_ms=delay_ms, lan=LAN),
        workload,
        iterations=4,
        tcp=TcpOptions(window_bytes=2**40),
    )
    one_s = expected_bytes(workload) / tensors * 8 / (mbps * 1e6 * EFFICIENCY)
    expected_s = tensors * forward_s + backward_s + (tensors + 1) * one_s + 2 * delay_ms / 1e3
    last = run.results.iterations[-1]  # after slow start
    assert last["end_s"] - last["start_s"] == pytest.approx(expected_s, rel=0.01)
    assert last["compute_s"] == pytest.approx(tensors * forward_s + backward_s, abs=1e-8)


def test_all_workers_wait_for_the_slowest(network: Build, sized: Build, simulate: Build) -> None:
    workload = sized(1000, 1000, forward_s=0.1, backward_s=0.2)
    run = simulate(network(2, 1, speed=[(1.0, 0.5), (2.0,)]), workload, iterations=3)
    rows = run.results.iterations
    for iteration in range(3):
        compute = [row["compute_s"] for row in rows if row["iteration"] == iteration]
        assert compute == pytest.approx([0.6, 1.2, 0.3])
    for row in (row for row in rows if row["iteration"] > 0):
        assert row["end_s"] - row["start_s"] == pytest.approx(1.2, rel=0.1)
        assert row["wait_s"] == pytest.approx(row["end_s"] - row["start_s"] - row["compute_s"])


def test_iterations_are_contiguous(two_parties: Cluster, tiny: Workload, simulate: Build) -> None:
    run = simulate(two_parties, tiny)
    for worker in {row["worker"] for row in run.results.iterations}:
        rows = [row for row in run.results.iterations if row["worker"] == worker]
        assert [row["iteration"] for row in rows] == list(range(tiny.iterations))
        assert all(a["end_s"] == b["start_s"] for a, b in pairwise(rows))
    assert run.results.summary["seconds"] == max(row["end_s"] for row in run.results.iterations)


# ---- scaling ----


def lines_executed(call: Callable[[], Any]) -> int:
    """Return the number of Python lines that a call executes, as a measure of work."""
    counted = 0

    def count(frame: Any, event: str, argument: Any) -> Any:
        nonlocal counted
        counted += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(before)
    return counted


def star(content: dict[str, Any]) -> nx.Graph:
    """Return a graph in which every site's router has an edge to one central router."""
    graph = nx.Graph()
    graph.add_node("hub/global_server", kind="global_server", party="hub")
    graph.add_edge("hub/global_server", "core", bandwidth_mbps=10_000, delay_ms=0.05)
    for number, (party, about) in enumerate(content["parties"].items()):
        graph.add_edge(party, "core", bandwidth_mbps=100, delay_ms=5 + number % 7)
        for index in range(about["workers"]):
            name = f"{party}/worker{index}"
            graph.add_node(name, kind="worker", party=party)
            graph.add_edge(name, party, bandwidth_mbps=10_000, delay_ms=0.05)
    return graph


@pytest.mark.slow
@pytest.mark.parametrize("form", [dict, star])
def test_the_work_of_a_run_is_linear_in_its_parties(
    form: Callable[[Any], Any], network: Build, simulate: Build
) -> None:
    """From reading the network to the last file: five times the parties cause about five times
    the work; a search per party would cause twenty times the work."""
    workload = sizes(1000)
    simulate(network(1), workload, iterations=1)  # imports modules before counting
    work = {}
    for parties in (40, 200):
        content = form(network(*[2] * parties))
        work[parties] = lines_executed(lambda given=content: simulate(given, workload))
    assert work[200] < 7 * work[40], work


# ---- tensors of any size ----


@pytest.mark.slow
def test_a_tensor_above_the_limit_of_a_shard_is_divided(network: Build, simulate: Build) -> None:
    """More than 2^32 elements: all bytes are sent, with the headers of their frames."""
    elements = 4_400_000_000
    run = simulate(network(1), sizes(elements), iterations=2)
    pieces = [piece[1] for piece in run.simulation.shards[0]]
    assert sum(pieces) == elements
    assert max(pieces) <= _core.MAX_SHARD_ELEMENTS < elements / 4
    headers = sum(80 * -(-4 * piece // FRAME_BYTES) for piece in pieces)
    crossed = [row["bytes"] for row in run.results.links if row["bytes"]]
    assert crossed == [2 * (4 * elements + headers)] * 4
    offsets = [piece[0] for piece in run.simulation.shards[0]]
    assert max(offsets) > 2**31


def test_a_tensor_above_the_limit_is_refused(network: Build, simulate: Build) -> None:
    with pytest.raises(
        ConfigError, match="workload=t0: has 10000000000000 elements; the limit is 4,398,046"
    ):
        simulate(network(1), sizes(10**13), iterations=1)


def test_dividing_large_tensors_does_not_change_results(
    network: Build, tiny: Workload, simulate: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = simulate(network(1, 2), tiny)
    monkeypatch.setattr(wiring, "MOST_SHARD_ELEMENTS", 100)
    cut = simulate(network(1, 2), tiny)
    assert max(len(pieces) for pieces in cut.simulation.shards) > 1
    before, after = whole.results.parameters(), cut.results.parameters()
    assert all((after[name] == value).all() for name, value in before.items())


@pytest.mark.slow
def test_frames_of_a_large_tensor_are_bundled(network: Build, simulate: Build) -> None:
    """Bytes and messages equal those of frames, and times differ by at most 0.4 %."""
    workload = sizes(100_000_000, 1000)
    apart, together = (
        simulate(network(1, 2), workload, iterations=3, costs=Costs(), sim=SimOptions(bundle=how))
        for how in (False, True)
    )
    assert together.simulation.fabric.messages < apart.simulation.fabric.messages / 3
    for one, other in zip(apart.results.links, together.results.links, strict=True):
        assert other | {"busy_s": one["busy_s"]} == one
    for one, other in zip(apart.results.iterations, together.results.iterations, strict=True):
        assert other["end_s"] == pytest.approx(one["end_s"], rel=0.004)


@pytest.mark.parametrize(
    "changes",
    [
        {"runtime": RuntimeOptions(frame_bytes=1 << 19)},
        {"network": {"jitter_ms": 1}},
        pytest.param({"accel": ["p3"]}, marks=pytest.mark.needs("p3")),
        pytest.param({"accel": ["dgt"]}, marks=[pytest.mark.needs("dgt"), pytest.mark.slow]),
        pytest.param({"accel": ["tsengine"]}, marks=pytest.mark.needs("tsengine")),
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_frames_are_not_bundled_if_messages_could_interleave(
    changes: dict[str, Any], network: Build, simulate: Build
) -> None:
    workload = sizes(40_000_000)
    content = network(1, 2) | changes.pop("network", {})
    apart, default = (
        simulate(content, workload, iterations=1, **changes, sim=SimOptions(bundle=how))
        for how in (False, True)
    )
    for name in ("links", "iterations"):
        assert getattr(default.results, name) == getattr(apart.results, name)


# ---- third-party plugins ----


class EveryOther(SyncPolicy):
    """A third-party policy that discards every other gradient."""

    def after_step(self, step: int, steps: int) -> bool:
        return step % 2 == 1


class Rival:
    @geomx.hookimpl
    def geomx_sync_policy(self, cluster: Any) -> SyncPolicy:
        return EveryOther()


class Halves(Partitioner):
    def cut(self, tensor: Any, priority: int, shards: Any) -> Any:
        return [piece for s in shards for piece in cut_evenly(s, max(1, -(-s.elements // 2)))]


class Halver:
    @geomx.hookimpl
    def geomx_partitioner(self, cluster: Any) -> Partitioner:
        return Halves()


def test_third_party_plugins_take_part(
    network: Build, tiny: Any, simulate: Build, seed: int
) -> None:
    watch = Watch()
    registry = registry_with(
        every_other=("sync", Rival()), halver=("accel", Halver()), watch=("accel", watch)
    )
    run = simulate(
        network(1, 2), tiny, ("every_other", {}), ["halver", "watch"], registry, iterations=4
    )
    plain = simulate(network(1, 2), tiny, iterations=2).bytes
    slices = 2 * 3  # three tensors in two shards each
    assert run.bytes["wan_push"] == plain["wan_push"] + 2 * 2 * (slices - 3) * 80
    assert run.results.summary["sync"] == {"name": "every_other"}
    steps = [event for event in watch.seen if event.kind == "iteration"]
    assert len(steps) == 3 * 4
    assert sorted(watch.arrivals("party1/worker1", 1)) == [0, 1, 2]
    assert all(a.time_s <= b.time_s for a, b in pairwise(steps))
