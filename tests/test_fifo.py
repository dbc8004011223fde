"""FIFO queues serve connections in proportion to the rates at which they send."""

from __future__ import annotations

import networkx as nx
import pytest

import geomx
from geomx import _core
from geomx.sim import transfer_times

MBPS = 125_000.0  # bytes/s
MS = 1_000_000


def finish(network: _core.FlowNetwork, until: int) -> None:
    """Let time pass."""
    while (event := network.next_event()) is not None and event <= until:
        network.advance(event)
    network.advance(until)
    network.next_event()


def burst(network: _core.FlowNetwork, sizes: dict[int, float], now: int) -> list[float]:
    """Send a message on each connection; return their rates 20 ms later, when they are paced."""
    for connection, size in sizes.items():
        network.start(connection, size, now)
    finish(network, now + 20 * MS)
    rates = [network.rate(connection) for connection in sizes]
    finish(network, now + 2000 * MS)
    return rates


@pytest.mark.parametrize("fifo", [True, False])
def test_bursts_share_by_their_pace(fifo: bool) -> None:
    """Of two connections that have only sent bursts, one of larger and one of smaller ones."""
    network = _core.FlowNetwork(fifo=fifo)
    hub = network.add_edge(1000 * MBPS)
    sizes = {network.add_connection([hub], rtt_ns=100 * MS): size for size in (90_000.0, 20_000.0)}
    for now in range(0, 80_000 * MS, 4000 * MS):  # until the estimates change no more
        paces = [
            *burst(network, {0: sizes[0]}, now),
            *burst(network, {1: sizes[1]}, now + 2000 * MS),
        ]
    capacity = 0.6 * sum(paces)
    network.set_capacity(hub, capacity * 1500 / 1448, 80_000 * MS)
    together = burst(network, sizes, 80_000 * MS)
    assert sum(together) == pytest.approx(capacity, rel=1e-6)
    if fifo:
        assert together == pytest.approx([0.6 * pace for pace in paces], rel=1e-3)
    else:
        assert together[1] == pytest.approx(min(paces[1], capacity / 2), rel=1e-3)


@pytest.mark.parametrize(("fifo", "expected"), [(True, [40, 30, 30]), (False, [100 / 3] * 3)])
def test_what_comes_over_a_narrow_edge_is_served_whole(fifo: bool, expected: list[float]) -> None:
    network = _core.FlowNetwork(fifo=fifo)
    hub = network.add_edge(100 * MBPS)
    sites = [network.add_edge(rate * MBPS) for rate in (40.0, 1000.0, 1000.0)]
    connections = [network.add_connection([site, hub], rtt_ns=20 * MS) for site in sites]
    for now in range(0, 24_000 * MS, 2000 * MS):  # their windows are not used up at 20 ms
        rates = burst(network, dict.fromkeys(connections, 2e5), now)
    rates = [rate * 1500 / 1448 / MBPS for rate in rates]
    assert rates == pytest.approx(expected, rel=1e-6)


def test_what_comes_over_a_narrow_edge_waits_once_windows_are_used_up() -> None:
    """Measured: 10 MB took 2.6 s over 40 Mbit/s to a hub of 100, and 2.4 s over 400 Mbit/s."""
    network = _core.FlowNetwork(fifo=True)
    hub = network.add_edge(100 * MBPS)
    sites = [network.add_edge(rate * MBPS) for rate in (40.0, 400.0, 400.0)]
    connections = [network.add_connection([site, hub], rtt_ns=20 * MS) for site in sites]
    for connection in connections:
        network.start(connection, 1e9, 0)
    finish(network, 5000 * MS)
    rates = [network.rate(each) * 1500 / 1448 / MBPS for each in connections]
    assert sum(rates) == pytest.approx(100, rel=1e-6)
    assert 100 / 3 < rates[0] < 39  # Mbit/s; served whole, it would have 40


def test_a_connection_that_cannot_send_makes_no_events() -> None:
    network = _core.FlowNetwork(fifo=True)
    edge = network.add_edge(0.0)
    network.start(network.add_connection([edge], rtt_ns=MS), 1e6, 0)
    assert network.next_event() is None


@pytest.mark.slow
def test_the_reference_shares_queues_alike(tmp_path) -> None:
    words = [
        "network=geomx_demo", "workload=synthetic", "numerics=false",
        "iterations=3", "emulate=netns",
    ]  # fmt: skip
    seconds = [
        geomx.run([*words, f"sim.wan={model}", f"hydra.run.dir={tmp_path / model}"]).summary[
            "seconds"
        ]
        for model in ("fluid", "reference")
    ]
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-6)


def test_connections_of_flows_that_have_ended_meet_no_others() -> None:
    graph = nx.DiGraph()
    for one, other, mbps in (("a", "m", 64), ("b", "m", 1e6), ("c", "m", 1e6), ("m", "hub", 80)):
        for edge in ((one, other), (other, one)):
            graph.add_edge(*edge, bandwidth_mbps=mbps, delay_ms=10)
    before = [("a", "m", 1e4, 0.0)] * 20
    flows = [(site, "hub", 1e7, 5.0) for site in "abc"]
    after = transfer_times(graph, [*before, *flows], fifo=True)[len(before) :]
    assert after == pytest.approx(transfer_times(graph, flows, fifo=True), rel=1e-9)
