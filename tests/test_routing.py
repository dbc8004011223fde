"""Rules of routing, against all simple paths of random networks."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from geomx.cluster import Cluster
from geomx.config.compose import compose
from geomx.errors import ConfigError
from geomx.network.files import read_network, to_node_link


def drawn(draws: random.Random) -> nx.DiGraph:
    """Draw a connected network of eight routers with two sites, with few different bandwidths."""
    routers = nx.gnp_random_graph(8, 0.45, seed=draws.randrange(2**31))
    nx.add_path(routers, draws.sample(range(8), 8))
    graph = nx.DiGraph()
    graph.add_nodes_from((f"r{router}", {"kind": "router"}) for router in routers)
    for one, other in routers.edges:
        for edge in ((one, other), (other, one)):
            mbps, delay = draws.choice([10, 20, 50, 100]), draws.uniform(1, 20)
            graph.add_edge(*(f"r{end}" for end in edge), bandwidth_mbps=mbps, delay_ms=delay)
    for name, kind, party in (("g", "global_server", "hub"), ("w", "worker", "a")):
        graph.add_node(name, kind=kind, party=party)
        for edge in ((name, f"r{len(name + kind) % 8}"), (f"r{len(name + kind) % 8}", name)):
            graph.add_edge(*edge, bandwidth_mbps=1000, delay_ms=0.1)
    return graph


def ways(cluster: Cluster) -> list[tuple[float, float]]:
    """Return (narrowest bandwidth, delay) of all routes without loops, shortest first."""
    graph = cluster.graph
    found = []
    for way in nx.all_simple_paths(graph, "w", "g"):
        edges = [graph.edges[edge] for edge in pairwise(way)]
        delay = sum(edge["delay_ms"] for edge in edges)
        found.append((min(edge["bandwidth_mbps"] for edge in edges), delay))
    return sorted(found, key=lambda pair: pair[1])


def chosen(content: dict[str, Any], routing: Any) -> tuple[Cluster, tuple[float, float]]:
    cluster = read_network({**content, "routing": routing})
    path = cluster.path(cluster.node("w"), cluster.node("g"))
    return cluster, (path.bandwidth_bps / 1e6, path.delay_s * 1e3)


@pytest.mark.parametrize("number", range(12))
def test_routes_obey_their_rule(number: int, seed: int) -> None:
    content = to_node_link(drawn(random.Random(f"{seed}/{number}")))
    cluster, shortest = chosen(content, None)
    every = ways(cluster)
    assert shortest[1] == pytest.approx(every[0][1])
    _, widest = chosen(content, "widest")
    width = max(mbps for mbps, _ in every)
    assert widest[0] == width
    assert widest[1] == pytest.approx(min(delay for mbps, delay in every if mbps == width))
    for most in (1, 3):
        _, one_of = chosen(content, {"widest_of": most})
        among = every[:most]
        assert one_of[0] == max(mbps for mbps, _ in among)
        wide = [delay for mbps, delay in among if mbps == one_of[0]]
        assert one_of[1] == pytest.approx(min(wide))


def test_a_written_network_keeps_its_rule(seed: int) -> None:
    content = to_node_link(drawn(random.Random(seed)))
    cluster, way = chosen(content, "widest")
    again = read_network(to_node_link(cluster.graph))
    path = again.path(again.node("w"), again.node("g"))
    assert (path.bandwidth_bps / 1e6, path.delay_s * 1e3) == pytest.approx(way)
    assert "routing" not in chosen(content, "shortest")[0].graph.graph


@pytest.mark.parametrize(
    "rule", ["wide", {"widest_of": 0}, {"widest_of": 2, "more": 1}, ["widest"]]
)
def test_other_rules_are_refused(rule: Any) -> None:
    with pytest.raises(ConfigError, match=r"routing must be shortest, widest or \{widest_of: K\}"):
        chosen(to_node_link(drawn(random.Random(0))), rule)


@pytest.mark.slow
def test_a_rule_is_given_beside_a_file() -> None:
    ring = Path(__file__).resolve().parents[1] / "examples" / "world" / "ring.json"
    words = [f"network={ring}", "workload=tiny"]
    for text, rule in (("widest", "widest"), ("{widest_of: 2}", {"widest_of": 2})):
        cluster = compose([*words, f"+network.routing={text}"])[0].cluster
        assert cluster.graph.graph["routing"] == rule


def around(**beside: Any) -> dict[str, Any]:
    """Return routers r0 - r1 - r2, with `beside` as attributes of r1, and a longer way by r3."""
    graph = nx.Graph()
    graph.add_node("g", kind="global_server", party="hub")
    graph.add_node("w", kind="worker", party="a")
    for router, delay_ms in ("r1", 1), ("r3", 9):
        for edge in ("r0", router), (router, "r2"):
            graph.add_edge(*edge, bandwidth_mbps=10, delay_ms=delay_ms)
    for edge in ("g", "r0"), ("w", "r2"):
        graph.add_edge(*edge, bandwidth_mbps=10)
    graph.nodes["r1"].update(beside)
    return to_node_link(graph.to_directed())


@pytest.mark.parametrize("party", [{}, {"party": "b"}])
def test_a_router_without_transit_carries_nothing_of_strangers(party: dict[str, str]) -> None:
    content = around(transit=False, **party)
    cluster = read_network(content)
    for ends in ("w", "g"), ("g", "w"):
        path = cluster.path(*(cluster.node(end) for end in ends))
        assert ("r3" in str(path.edges), path.delay_s) == (True, pytest.approx(18e-3))
    content["links"] = [link for link in content["links"] if "r3" not in link.values()]
    with pytest.raises(ConfigError, match=r"cannot reach .* transit: false"):
        read_network(content)


def test_a_router_without_transit_and_party_carries_what_its_hosts_send() -> None:
    content = around()
    for node in content["nodes"]:
        node.update({"transit": False} if node["id"] in ("r0", "r2") else {})
    cluster = read_network(content)
    assert cluster.path(cluster.node("w"), cluster.node("g")).delay_s == pytest.approx(2e-3)
