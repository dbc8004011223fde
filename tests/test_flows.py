"""The flow model compared with closed forms and with SimGrid, and its laws.

Closed forms of small networks must be met within 0.1 %, and SimGrid's results (data/simgrid) within
1e-6. The laws (no edge above its capacity, no idle edge while a flow waits, equal results of equal
calls) hold for any network, so hypothesis draws networks.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import random
import warnings
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geomx._core import FlowNetwork
from geomx.errors import ConfigError
from geomx.network.warnings import ModelWarning
from geomx.sim.transfer import PAYLOAD_SHARE, transfer_times

SIMGRID = Path(__file__).parent / "data" / "simgrid"
CASES = sorted(path.stem for path in SIMGRID.glob("*-*.csv"))
CLOSED_FORM = 1e-3
SEGMENT = 1448
INITIAL_WINDOW = 10 * SEGMENT
SECOND = 1_000_000_000


def link(graph: nx.DiGraph, source: str, target: str, mbps: float, delay_ms: float = 0) -> None:
    graph.add_edge(source, target, bandwidth_mbps=mbps, delay_ms=delay_ms)


def dumbbell(mbps: float, delay_ms: float) -> nx.Graph:
    graph = nx.Graph()
    graph.add_edge("a", "b", bandwidth_mbps=mbps, delay_ms=delay_ms)
    return graph


# Closed forms.


@pytest.mark.parametrize("mbps, delay_ms, size", [(100, 0, 1e6), (50, 40, 2e7), (1000, 5, 1e8)])
def test_one_flow(mbps, delay_ms, size):
    graph = dumbbell(mbps, delay_ms)
    (end,) = transfer_times(graph, [("a", "b", size, 3.0)], model="maxmin")
    assert end == pytest.approx(3 + size * 8 / (mbps * 1e6), rel=CLOSED_FORM)
    (end,) = transfer_times(graph, [("a", "b", size, 0.0)], model="CM02")
    assert end == pytest.approx(
        delay_ms / 1e3 + size / min(mbps * 125e3, 4194304 / max(2e-3 * delay_ms, 1e-9)),
        rel=CLOSED_FORM,
    )


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_equal_flows_on_one_link_share_it(count):
    flows = [("a", "b", 1e6, 0.0)] * count
    for model in ("maxmin", "tcp"):
        share = PAYLOAD_SHARE if model == "tcp" else 1.0
        ends = transfer_times(dumbbell(80, 0), flows, model=model)
        assert ends == pytest.approx([count * 0.1 / share] * count, rel=CLOSED_FORM)


def test_unequal_flows_on_one_link_end_in_order_of_size():
    sizes = [1e6, 2e6, 4e6]  # 10 MB/s: thirds, halves, all
    ends = transfer_times(
        dumbbell(80, 0), [("a", "b", size, 0.0) for size in sizes], model="maxmin"
    )
    assert ends == pytest.approx([0.3, 0.5, 0.7], rel=CLOSED_FORM)


def test_a_late_flow_halves_the_rate_from_then_on():
    flows = [("a", "b", 10e6, 0.0), ("a", "b", 2e6, 0.5)]
    ends = transfer_times(dumbbell(80, 0), flows, model="maxmin")
    assert ends == pytest.approx([1.2, 0.9], rel=CLOSED_FORM)


@pytest.mark.parametrize("model", ["maxmin", "tcp"])
def test_parking_lot(model):
    # One flow over three links, and one more on each; the second link is the slowest.
    graph = nx.DiGraph()
    for i, mbps in enumerate([80, 40, 160]):
        link(graph, f"n{i}", f"n{i + 1}", mbps)
    flows = [("n0", "n3", 1e6, 0.0)] + [(f"n{i}", f"n{i + 1}", 4e6, 0.0) for i in range(3)]
    ends = transfer_times(graph, flows, model=model, efficiency=1.0)
    # 2.5 MB/s for the long one until 0.4 s, while the others have 7.5, 2.5 and 17.5.
    expected = [0.4, 0.4 + 1e6 / 10e6, 0.4 + 3e6 / 5e6, 4e6 / 17.5e6]
    assert ends == pytest.approx(expected, rel=CLOSED_FORM)


@pytest.mark.parametrize("model", ["maxmin", "tcp"])
@pytest.mark.parametrize("inwards", [True, False])
def test_star(model, inwards):
    # Leaves of 10, 20 and 100 Mbit/s at a hub of 90: the fast leaf gets the hub's remaining 60.
    graph = nx.DiGraph()
    flows = []
    link(graph, "x", "hub", 90)
    link(graph, "hub", "x", 90)
    for i, mbps in enumerate([10, 20, 100]):
        link(graph, f"l{i}", "x", mbps)
        link(graph, "x", f"l{i}", mbps)
        pair = (f"l{i}", "hub") if inwards else ("hub", f"l{i}")
        flows.append((*pair, 6e6, 0.0))
    ends = transfer_times(graph, flows, model=model, efficiency=1.0)
    assert ends == pytest.approx([4.8, 2.4, 0.8], rel=CLOSED_FORM)


@pytest.mark.parametrize("model", ["maxmin", "tcp"])
def test_directions_do_not_share_bandwidth(model):
    ends = transfer_times(
        dumbbell(80, 0), [("a", "b", 1e7, 0.0), ("b", "a", 1e7, 0.0)], model=model, efficiency=1.0
    )
    assert ends == pytest.approx([1.0, 1.0], rel=CLOSED_FORM)


def test_acknowledgements_use_the_reverse_path():
    flows = [("a", "b", 1e7, 0.0), ("b", "a", 1e7, 0.0)]
    ends = transfer_times(dumbbell(80, 0), flows, efficiency=1.0, reverse_share=0.02)
    assert ends == pytest.approx([1.02, 1.02], rel=CLOSED_FORM)


@pytest.mark.parametrize("size", [1e4, 1e5, 1e6, 1e7])
@pytest.mark.parametrize("mbps, rtt", [(50, 0.04), (200, 0.16), (1000, 0.02)])
def test_slow_start_takes_rounds(size, mbps, rtt):
    graph = dumbbell(mbps, rtt * 500)
    rate = mbps * 125e3 * PAYLOAD_SHARE
    window, left, end = float(INITIAL_WINDOW), size, rtt
    while left > window and window < rate * rtt and window < 2.75e6:
        left, window, end = left - window, min(2 * window, 2.75e6), end + rtt
    end += left / min(rate, 2.75e6 / rtt if window == 2.75e6 else math.inf) + rtt / 2
    flow = [("a", "b", size, 0.0)]
    (got,) = transfer_times(graph, flow, congestion="cubic")
    assert got == pytest.approx(end, rel=CLOSED_FORM)
    (paced,) = transfer_times(graph, flow)  # all but the first ten segments, by bbr
    assert got - 1e-9 <= paced < got + 1.2 * rtt


MEASURED_MS = [
    # Mbit/s, round trip in ms; bytes of successive bursts, and the time to send each
    (100, 60, [(60_000, 139.4), (60_000, 39.8), (60_000, 32.9), (60_000, 30.8), (60_000, 30.1)]),
    (100, 60, [(40_000, 92.7), (40_000, 45.3), (40_000, 33.5), (40_000, 29.8), (40_000, 28.6)]),
    (100, 60, [(100, 0.3), (20_000, 61.2), (20_000, 20.0), (20_000, 20.1)]),
    (100, 60, [(14_000, 1.4), (14_000, 15.2), (14_000, 15.3), (60_000, 82.9), (60_000, 28.3)]),
    (300, 100, [(200_000, 416.2), (200_000, 73.4), (200_000, 60.1), (200_000, 55.6)]),
    (200, 150, [(100, 0.3), (30_000, 177.4), (30_000, 77.4), (30_000, 72.4), (30_000, 70.8)]),
]
"""Measured with Linux 6.18 and bbr, through a router between two network namespaces, with a pause
of 0.25 s plus half a round trip before each burst."""


@pytest.mark.parametrize("mbps, rtt_ms, bursts", MEASURED_MS)
def test_bursts_take_as_long_as_with_the_kernels_bbr(mbps, rtt_ms, bursts):
    graph = dumbbell(mbps, rtt_ms / 2)
    half_s, flows = rtt_ms / 2e3, []
    start_s, end_s = 0.0, 0.0
    for size, measured_ms in bursts:
        flows.append(("a", "b", size, start_s))
        end_s = transfer_times(graph, flows, new_connections=False)[-1]
        took_ms = (end_s - half_s - start_s) * 1e3
        assert took_ms == pytest.approx(measured_ms, rel=0.25, abs=0.5)
        start_s = end_s + half_s + 0.25


def test_unfilled_rounds_follow_the_logarithm():
    # On an infinitely fast link only rounds take time: ceil(log2(b / w0 + 1)) - 1 of them.
    graph = dumbbell(1e9, 50)
    for size in (INITIAL_WINDOW, 3 * INITIAL_WINDOW, 20 * INITIAL_WINDOW, 100 * INITIAL_WINDOW):
        rounds = math.ceil(math.log2(size / INITIAL_WINDOW + 1))
        (end,) = transfer_times(graph, [("a", "b", size, 0.0)], congestion="cubic")
        assert end == pytest.approx(0.1 + (rounds - 1) * 0.1 + 0.05, rel=CLOSED_FORM)
        (paced,) = transfer_times(graph, [("a", "b", size, 0.0)])  # by bbr, less than a round more
        assert end <= paced < end + 0.1


def test_window_bounds_a_long_flow():
    (end,) = transfer_times(
        dumbbell(10_000, 100), [("a", "b", 1e9, 0.0)], window_bytes=1e6, new_connections=False
    )
    assert end == pytest.approx(1e9 / (1e6 / 0.2), rel=0.01)


def test_idle_connections_lose_their_window_unless_bbr():
    graph = dumbbell(200, 80)
    flows = [("a", "b", 5e6, 0.0), ("a", "b", 1e6, 10.0)]
    bbr = transfer_times(graph, flows, new_connections=False)[1]
    cubic = transfer_times(graph, flows, new_connections=False, congestion="cubic")[1]
    # All bytes fit in the window that bbr has kept.
    assert bbr - 10 == pytest.approx(1e6 / (25e6 * PAYLOAD_SHARE) + 0.08, rel=CLOSED_FORM)
    # Back at ten segments: 1 MB ends in the seventh round.
    assert cubic - 10 == pytest.approx(
        6 * 0.16 + (1e6 - 63 * INITIAL_WINDOW) / (25e6 * PAYLOAD_SHARE) + 0.08, rel=CLOSED_FORM
    )


def test_loss_limits_reno_by_the_mathis_formula():
    graph = dumbbell(1000, 50)
    graph.edges["a", "b"]["loss"] = 1e-3
    (end,) = transfer_times(graph, [("a", "b", 1e8, 0.0)], congestion="reno")
    rate = 1.22 * 1448 / (0.1 * math.sqrt(1e-3))
    assert end == pytest.approx(1e8 / rate, rel=0.01)


def test_retransmissions_use_bandwidth():
    """Under any congestion control and number of flows, and on a link that has become faster."""
    graph = nx.DiGraph()
    graph.add_edge("a", "b", bandwidth_mbps=8, loss=0.1)
    graph.add_edge("b", "a", bandwidth_mbps=8)
    times = transfer_times(graph, [("a", "b", 9e5, 0)] * 3, efficiency=1.0)
    assert times == pytest.approx([3 * 9e5 / (1e6 * 0.9)] * 3, rel=CLOSED_FORM)
    graph.edges["a", "b"]["trace"] = [[0, 8], [1, 80]]
    (time,) = transfer_times(graph, [("a", "b", 9.9e6, 0)], efficiency=1.0, window_bytes=math.inf)
    assert time == pytest.approx(2.0, rel=CLOSED_FORM)


@pytest.mark.parametrize("streams", [1, 3, 8])
def test_parallel_streams_equal_as_many_connections(streams):
    size, window = 4e7, 2.5e5
    graph = dumbbell(1000, 50)
    (end,) = transfer_times(
        graph, [("a", "b", size, 0)], window_bytes=window, streams=streams, new_connections=False
    )
    limited_s = size / (streams * window / 0.1)
    rounds = math.log2(window / INITIAL_WINDOW)
    assert limited_s < end - 0.05 < limited_s + (rounds + 1) * 0.1
    # The same bytes as separate flows of one stream.
    flows = [("a", "b", size / streams, 0)] * streams
    others = transfer_times(graph, flows, window_bytes=window)
    assert others == pytest.approx([end + 0.1] * streams, rel=CLOSED_FORM)
    # Loss limits each stream separately.
    graph.edges["a", "b"]["loss"] = 1e-4
    one, many = (
        transfer_times(graph, [("a", "b", 1e9, 0)], congestion="reno", streams=n)[0]
        for n in (1, streams)
    )
    assert one / many == pytest.approx(streams, rel=0.02)


def test_warnings_of_different_round_trips():
    graph = nx.DiGraph()
    for site, delay_ms in (("near", 10), ("far", 30), ("middle", 19)):
        link(graph, site, "x", 100, delay_ms)
        link(graph, "x", site, 100, delay_ms)
    link(graph, "x", "hub", 100)
    link(graph, "hub", "x", 100)

    def told(*sources: str, congestion: str = "reno") -> int:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            transfer_times(graph, [(s, "hub", 1e6, 0) for s in sources], congestion=congestion)
        return len(caught)

    assert told("near", "far") == 1
    assert told("near", "far", congestion="bbr") == 0
    assert told("near", "middle") == told("middle", "far") == told("far") == 0
    graph.edges["x", "hub"].clear()  # without a limit, nothing is shared
    assert told("near", "far") == 0


def test_cubic_flows_share_by_round_trip_time():
    graph = nx.DiGraph()
    for name, delay_ms in (("near", 10), ("far", 30)):
        for ends in ((name, "x"), ("x", name)):
            link(graph, *ends, 1e5, delay_ms)
    link(graph, "x", "hub", 80)
    link(graph, "hub", "x", 80)
    flows = [("near", "hub", 3e7, 0.0), ("far", "hub", 3e7, 0.0)]
    with pytest.warns(
        ModelWarning, match="round trips from 20 to 60 ms share x -> hub under cubic"
    ):
        near, far = transfer_times(graph, flows, congestion="cubic", efficiency=1.0)
    assert near == pytest.approx(3e7 / 7.5e6, rel=0.03)
    assert far == pytest.approx(6.0, rel=0.05)


# SimGrid.


def simgrid_platform(name):
    """Return SimGrid's links as separate edges, which several routes can share."""
    platform = json.loads((SIMGRID / f"{name}.json").read_text())
    graph = nx.DiGraph()
    graph.add_nodes_from(platform["hosts"])
    for entry in platform["links"]:
        ends = ("in", entry["id"]), ("out", entry["id"])
        graph.add_edge(*ends, bandwidth_mbps=entry["bw"] / 125e3, delay_ms=entry["lat"] * 1e3)
    paths = {}
    for route in platform["routes"]:
        links = [node for name in route["links"] for node in (("in", name), ("out", name))]
        nodes = [route["src"], *links, route["dst"]]
        paths[route["src"], route["dst"]] = nodes
        graph.add_edges_from(hop for hop in itertools.pairwise(nodes) if hop not in graph.edges)
    return graph, paths


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("model", ["maxmin", "CM02", "LV08"])
def test_simgrid_agrees(case, model):
    graph, paths = simgrid_platform(case.split("-")[0])
    with (SIMGRID / f"{case}.csv").open() as file:
        rows = list(csv.DictReader(file))
    flows = [(row["src"], row["dst"], int(row["bytes"]), float(row["start_s"])) for row in rows]
    answer = json.loads((SIMGRID / f"{case}.{model}.json").read_text())["flows"]
    ends = transfer_times(graph, flows, model=model, paths=paths)
    for end, flow in zip(ends, answer, strict=True):
        duration = end - flow["start_s"]
        # SimGrid's files round to a nanosecond.
        assert duration == pytest.approx(flow["fct_s"], rel=1e-6, abs=1e-9), flow["id"]


# Laws.

mesh = st.fixed_dictionaries(
    {
        "capacities": st.lists(st.integers(1, 1000), min_size=1, max_size=6),
        "seed": st.integers(0, 2**32),
        "connections": st.integers(1, 12),
        "messages": st.integers(1, 40),
    }
)


def drive(network, draw, start, messages):
    """Start messages at random times; yield (now, completed) after every event."""
    arrivals = sorted(draw.randrange(0, 2 * SECOND) for _ in range(messages))
    idle = set(start)
    while True:
        event = network.next_event()
        arrival = arrivals[0] if arrivals else None
        if event is None and arrival is None:
            return
        now = min(moment for moment in (event, arrival) if moment is not None)
        completed = network.advance(now)
        idle.update(completed)
        while arrivals and arrivals[0] == now:
            arrivals.pop(0)
            if idle:
                connection = draw.choice(sorted(idle))
                idle.discard(connection)
                network.start(connection, draw.randrange(0, 10**6), now)
        yield now, completed


def random_network(case):
    draw = random.Random(case["seed"])
    network = FlowNetwork(fifo=draw.random() < 0.5)
    edges = [
        network.add_edge(1e4 * mbps, draw.randrange(20_000_000)) for mbps in case["capacities"]
    ]
    connections = [
        network.add_connection(
            draw.sample(edges, draw.randint(1, len(edges))),
            weight=draw.choice([1.0, 0.5, 3.0]),
            priority_class=draw.choice([0, 0, 0, 1]),
            congestion=draw.choice(["bbr", "cubic"]),
            window_bytes=draw.choice([2e4, 2.75e6]),
        )
        for _ in range(case["connections"])
    ]
    return network, draw, edges, connections


@settings(max_examples=60)
@given(case=mesh)
def test_no_edge_exceeds_its_capacity(case):
    network, draw, edges, connections = random_network(case)
    for _ in drive(network, draw, connections, case["messages"]):
        network.next_event()
        for edge in edges:
            assert network.load(edge) <= network.capacity(edge) * (1 + 1e-9), case


@settings(max_examples=60)
@given(case=mesh)
def test_equal_calls_have_equal_results(case):
    first, second = (
        list(drive(network, draw, connections, case["messages"]))
        for network, draw, _, connections in (random_network(case), random_network(case))
    )
    assert first == second, case
    assert all(completed == sorted(completed) for _, completed in first), case


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 10**7), min_size=1, max_size=20),
    starts=st.lists(st.floats(0, 0.5), min_size=20, max_size=20),
)
def test_a_link_is_never_idle_while_a_flow_waits(sizes, starts):
    rate = 12.5e6
    flows = [("a", "b", size, start) for size, start in zip(sizes, starts, strict=False)]
    busy_until = 0.0
    for _, _, size, start in sorted(flows, key=lambda flow: flow[3]):
        busy_until = max(busy_until, start) + size / rate
    ends = transfer_times(dumbbell(100, 0), flows, model="maxmin")
    assert max(ends) == pytest.approx(busy_until, rel=1e-9, abs=1e-9)
    tcp = transfer_times(dumbbell(100, 0), flows, efficiency=1.0)
    assert tcp == pytest.approx(ends, rel=1e-6, abs=1e-7)


def test_consecutive_messages_need_no_new_solution():
    network = FlowNetwork()
    edge = network.add_edge(1e6)
    connection = network.add_connection([edge], efficiency=1.0)
    network.start(connection, 1000, 0)
    for message in range(1, 1000):
        now = network.next_event()
        assert now == message * 1_000_000
        assert network.advance(now) == [connection]
        network.start(connection, 1000, now)
    assert network.solves == 1


# Invalid requests.


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"model": "ns3"}, "model=ns3: one of tcp, maxmin, LV08, CM02"),
        ({"congestion": "vegas"}, "congestion=vegas: one of bbr, cubic, reno"),
        ({"flows": [("a", "nowhere", 1, 0)]}, "flows=nowhere: no such node in the graph"),
        ({"flows": [("b", "a", 1, 0)]}, "flows=b->a: there is no path between the two"),
        ({"flows": [("a", "b", -1, 0)]}, r"flows\[0\].bytes=-1: must be 0 or more"),
        ({"flows": [("a", "b", 1)]}, r"flows\[0\]=\('a', 'b', 1\): must be \(source.*"),
        ({"flows": [("a", "b", "big", 0)]}, r"flows\[0\]=.*start_s\): could not convert .*"),
        ({"flows": [("a", "b", 1, -2)]}, r"flows\[0\].start_s=-2: must be 0 or more"),
        (
            {"flows": [("a", "b", 1, 2e9)]},
            r"flows\[0\].start_s=2000000000.0: must be at most 1000000000",
        ),
        ({"paths": {("a", "b"): ["a", "c", "b"]}}, "paths=a->b: no edge a->c"),
        ({"window_bytes": 0}, "window_bytes=0: must be more than 0"),
    ],
)
def test_refusals_are_one_sentence(arguments, sentence):
    graph = nx.DiGraph()
    link(graph, "a", "b", 10)
    with pytest.raises(ConfigError, match=f"^{sentence}$"):
        transfer_times(graph, **{"flows": [("a", "b", 1, 0)], **arguments})


def test_edge_attributes_are_checked():
    graph = nx.DiGraph()
    link(graph, "a", "b", -10)
    with pytest.raises(ConfigError, match=r"bandwidth_mbps of a -> b=-10: out of range"):
        transfer_times(graph, [("a", "b", 1, 0)])


def test_a_link_without_bandwidth_never_delivers_and_local_transfers_are_instantaneous():
    graph = nx.DiGraph()
    link(graph, "a", "b", 0)
    for model in ("tcp", "maxmin", "CM02", "LV08"):
        ends = transfer_times(graph, [("a", "b", 1, 0), ("a", "a", 1e9, 2.0)], model=model)
        assert ends == [math.inf, 2.0]


@pytest.mark.parametrize(
    "changes",
    [
        {"redraw": {"every_s": 0.01, "low_mbps": 1, "high_mbps": 2}},
        {"outages": [{"mean_up_s": 1, "mean_down_s": 1}], "bandwidth_mbps": 2},
    ],
)
def test_bandwidths_of_other_edges_do_not_keep_a_dead_flow_waiting(changes):
    graph = nx.DiGraph()
    link(graph, "a", "b", 0)
    graph.add_edge("a", "c", **changes)
    graph.add_edge("c", "b", **changes)
    paths = {("a", "c"): ["a", "c"], ("c", "b"): ["c", "b"]}
    ends = transfer_times(graph, [("a", "b", 1e6, 0), ("a", "c", 1e6, 0)], paths=paths)
    assert ends[0] == math.inf and 4 < ends[1] < 100


@pytest.mark.parametrize(("text", "nothing"), [("20", "0"), (20, None)])
def test_delays_may_be_text_or_none(text, nothing):
    """As they are in some files of graphs; the way by x takes no time."""
    graph = nx.Graph()
    for one, other, delay_ms in (("a", "b", text), ("a", "x", nothing), ("x", "b", nothing)):
        graph.add_edge(one, other, bandwidth_mbps="8", delay_ms=delay_ms)
    ends = transfer_times(graph, [("a", "b", 1e6, 0.0)], efficiency=1.0, new_connections=False)
    assert ends == pytest.approx([1.0])
