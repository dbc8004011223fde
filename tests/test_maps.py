"""Maps of networks: rules for missing attributes, refusals, and placement of nodes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from geomx.cli import main as cli
from geomx.cluster import Cluster
from geomx.config.compose import compose
from geomx.errors import ConfigError
from geomx.network.files import read_network, to_node_link
from geomx.network.fill import DETOUR, FIBRE_KM_PER_MS, great_circle_km
from geomx.network.named import named_networks

GIGABIT = {"mbps": 1000}

ZOO_GML = """
Creator "somebody"
Version 1
graph [
  Network "Valleys"
  DateYear "2011"
  node [ id 0 label "Upton" Country "Here" Longitude 10.0 Latitude 50.0 Internal 1 ]
  node [ id 1 label "Lowton" Country "Here" Longitude 11.0 Latitude 50.0 Internal 1 ]
  node [ id 2 label "None" hyperedge 1 ]
  node [ id 3 label "None" Longitude 10.0 Latitude 51.0 ]
  node [ id 4 label "A/B" Longitude 12.0 Latitude 51.0 ]
  node [ id 5 label "Alone" Longitude 0.0 Latitude 0.0 ]
  edge [ source 0 target 1 LinkSpeed "10" LinkSpeedUnits "G" LinkSpeedRaw 10000000000.0 ]
  edge [ source 0 target 1 LinkLabel "second" LinkSpeedRaw 155000000.0 ]
  edge [ source 0 target 2 LinkType "Fibre" ]
  edge [ source 1 target 2 ]
  edge [ source 2 target 3 ]
  edge [ source 3 target 3 ]
  edge [ source 3 target 4 ]
]
"""


def zoo(tmp_path: Path) -> Path:
    path = tmp_path / "Valleys.gml"
    path.write_text(ZOO_GML)
    return path


def ring(count: int, **attributes: Any) -> nx.Graph:
    """Return routers in a ring, ten degrees apart on the equator."""
    graph = nx.cycle_graph(count)
    for node in graph:
        graph.nodes[node].update(latitude=0.0, longitude=10.0 * node)
    nx.set_edge_attributes(graph, {edge: dict(attributes) for edge in graph.edges})
    return graph


def labelled(**attributes: Any) -> nx.Graph:
    """Return a ring whose first node has these attributes."""
    graph = ring(4)
    graph.nodes[0].update(attributes)
    return graph


def parallel(**attributes: Any) -> nx.MultiGraph:
    """Return a ring that lists one link twice, once with these attributes."""
    graph = nx.MultiGraph(ring(4))
    graph.add_edge(0, 1, **attributes)
    return graph


def read(graph: nx.Graph, **options: Any) -> Cluster:
    return read_network({**nx.node_link_data(graph, edges="links"), **options})


def test_great_circles() -> None:
    quarter = math.pi / 2 * 6371
    assert great_circle_km((0, 0), (0, 90)) == pytest.approx(quarter)
    assert great_circle_km((90, 0), (0, 123)) == pytest.approx(quarter)
    assert great_circle_km((10, 20), (-10, -160)) == pytest.approx(2 * quarter)
    paris, new_york = (48.857, 2.352), (40.713, -74.006)
    assert great_circle_km(paris, new_york) == pytest.approx(5837, rel=2e-3)


def test_a_file_of_the_topology_zoo(tmp_path: Path) -> None:
    everyone = {"parties": "all", "workers": 1, "central": "Upton"}
    source = {"file": str(zoo(tmp_path)), "fill": GIGABIT, "attach": everyone}
    cluster = read_network(source)
    graph = cluster.graph
    assert [party.name for party in cluster.parties] == [
        "Upton", "Lowton", "None 2", "None 3", "A-B",
    ]  # fmt: skip
    assert "Alone" not in graph
    assert cluster.name == "Valleys"
    # Parallel links have the sum of their bandwidths; missing attributes are filled.
    assert graph.edges["Upton", "Lowton"]["bandwidth_mbps"] == pytest.approx(10_155)
    assert graph.edges["Lowton", "None 2"]["bandwidth_mbps"] == 1000
    # A node without coordinates is placed at the mean of its neighbours.
    amid = [graph.nodes["None 2"][key] for key in ("latitude", "longitude")]
    assert amid == pytest.approx([50.34, 10.33], abs=0.02)
    km = great_circle_km((51, 10), (51, 12))
    assert graph.edges["None 3", "A-B"]["delay_ms"] == pytest.approx(km * DETOUR / FIBRE_KM_PER_MS)
    assert graph.edges["A-B", "None 3"] == graph.edges["None 3", "A-B"]
    # A written network is read back unchanged.
    again = read_network(json.loads(json.dumps(to_node_link(graph))))
    assert dict(again.graph.adj) == dict(graph.adj)
    assert again.nodes == cluster.nodes


def test_cities_keep_apart_by_name() -> None:
    """Also where one is called as another would be with its number."""
    graph = ring(4)
    nx.set_node_attributes(graph, dict(enumerate(["A", "A", "A 1", "B"])), "label")
    cluster = read(graph, fill=GIGABIT | {"delay_ms": 5}, attach={"parties": "all"})
    assert [party.name for party in cluster.parties] == ["A 0", "A 1_", "A 1", "B"]


def test_the_same_map_in_graphml(tmp_path: Path) -> None:
    plain = nx.parse_gml(ZOO_GML.replace("graph [", "graph [ multigraph 1"), label="id")
    for _, data in plain.nodes(data=True):
        assert "label" in data
    path = tmp_path / "Valleys.graphml"
    nx.write_graphml(plain, path)
    options = {"fill": GIGABIT, "attach": {"parties": "all", "workers": 1, "central": "Upton"}}
    one = read_network({"file": str(path), **options})
    other = read_network({"file": str(zoo(tmp_path)), **options})
    assert one.nodes == other.nodes
    assert dict(one.graph.adj) == dict(other.graph.adj)


def test_a_directed_link_without_a_reverse_link_is_bidirectional() -> None:
    drawn = nx.DiGraph([(0, 1), (1, 2), (2, 1)])
    nx.set_edge_attributes(drawn, {(0, 1): 10, (1, 2): 20, (2, 1): 30}, "bandwidth_mbps")
    graph = read(drawn, fill={"delay_ms": 5}, attach={"parties": "all"}).graph
    edges = [("0", "1", 10), ("1", "0", 10), ("1", "2", 20), ("2", "1", 30)]
    for source, target, mbps in edges:
        assert graph.edges[source, target]["bandwidth_mbps"] == mbps


def test_given_lengths_take_precedence_over_great_circles() -> None:
    graph = ring(4, bandwidth_mbps=10)
    graph.edges[0, 1]["dist"] = 300.0
    graph.edges[1, 2]["delay_ms"] = 4.0
    delays = {
        edge: data["delay_ms"]
        for edge, data in read(graph, fill={"detour": 1.0}).graph.edges.items()
        if "/" not in "".join(edge)
    }
    assert delays["0", "1"] == pytest.approx(300 * 1.468 / 299.792458)
    assert delays["1", "2"] == 4.0
    km = great_circle_km((0, 20), (0, 30))
    assert delays["2", "3"] == delays["3", "2"] == pytest.approx(km / FIBRE_KM_PER_MS)


def test_by_default_four_distant_places_train_around_the_centre() -> None:
    graph = nx.path_graph(9)
    nx.set_edge_attributes(graph, 10.0, "bandwidth_mbps")
    nx.set_edge_attributes(graph, 1.0, "delay_ms")
    cluster = read(graph)
    assert [node.party for node in cluster.global_servers] == ["4"]
    assert [party.name for party in cluster.parties] == ["0", "2", "6", "8"]
    assert all(len(party.workers) == 2 for party in cluster.parties)
    assert [party.name for party in read(graph, attach={"parties": 2}).parties] == ["0", "8"]
    small = read(nx.path_graph(3), fill={"mbps": 5, "delay_ms": 2})
    assert [party.name for party in small.parties] == ["0", "2"]


def test_nodes_are_placed_as_requested() -> None:
    cluster = read(
        ring(5, bandwidth_mbps=10),
        attach={
            "central": 3,
            "global_servers": 2,
            "parties": [3, 0],
            "workers": 2,
            "speed": [1, 0.5],
            "lan": {"mbps": 77},
        },
    )
    assert [node.name for node in cluster.nodes] == [
        "3/scheduler", "3/global_server0", "3/global_server1",
        "3/server", "3/worker0", "3/worker1", "0/server", "0/worker0", "0/worker1",
    ]  # fmt: skip
    assert [worker.speed for worker in cluster.workers] == [1.0, 0.5, 1.0, 0.5]
    assert cluster.graph.edges["0/worker0", "0"] == {
        "bandwidth_mbps": 77.0, "delay_ms": 0.05, "loss": 0.0,
    }  # fmt: skip
    assert cluster.link(cluster.workers[0], cluster.global_servers[0], "push").kind == "lan"
    assert cluster.link(cluster.workers[2], cluster.global_servers[0], "push").kind == "wan"


def test_rules_of_changing_bandwidth_apply_to_maps() -> None:
    rule = {"every_s": 60, "low_mbps": 1, "high_mbps": 2}
    outage = {"site": "0", "start_s": 5, "end_s": 6}
    graph = read(ring(5, bandwidth_mbps=10), redraw=rule, outages=[outage]).graph
    drawn = [edge for edge, data in graph.edges.items() if "redraw" in data]
    assert len(drawn) == 10
    cut = {edge for edge, data in graph.edges.items() if "outages" in data}
    assert cut == {("0", "1"), ("1", "0"), ("0", "4"), ("4", "0")}


@pytest.mark.parametrize(
    ("graph", "options", "sentence"),
    [
        (ring(4), {}, "link 0 - 1 has no bandwidth_mbps; set one for such links: network.fill"),
        (nx.path_graph(3), {"fill": GIGABIT}, "link 0 - 1 has neither delay_ms nor a length"),
        (ring(4, bandwith_mbps=3), {"fill": GIGABIT}, "unknown attribute bandwith_mbps; did you"),
        (ring(4, bandwidth_mbps=0), {}, "bandwidth_mbps of edge 0 -> 1 is 0; it must be more"),
        (ring(4, bandwidth_mbps=5), {"attach": {"central": "x"}}, "attach.central: there is no no"),
        (ring(4, bandwidth_mbps=5), {"attach": {"parties": ["1", 1]}}, "must be different nodes"),
        (
            ring(4, bandwidth_mbps=5),
            {"attach": {"parties": "some"}},
            "attach.parties is 'some'; it",
        ),
        (ring(4, bandwidth_mbps=5), {"attach": {"parties": 0}}, "attach.parties is 0; it must be"),
        (
            ring(4, bandwidth_mbps=5),
            {"attach": {"parties": 4}},
            "attach.parties is 4; it must be at",
        ),
        (
            ring(4, bandwidth_mbps=5),
            {"attach": {"worker": 2}},
            "unknown key attach.worker; did you",
        ),
        (ring(4), {"fill": {"mbps": -1}}, "fill.mbps is -1"),
        (ring(4), {"fill": {"speed": 1}}, "unknown key fill.speed"),
        (ring(4), {"fill": 3}, "fill must be a table of keys"),
        (
            ring(4, bandwidth_mbps=5, delay_ms="5 ms"),
            {},
            "delay_ms of link 0 - 1 is '5 ms'; it must be a number",
        ),
        (ring(4, bandwidth_mbps=5, delay_ms=-1), {}, "delay_ms of link 0 - 1 is -1; it must be 0"),
        (labelled(latitude="inf"), {"fill": GIGABIT}, "latitude of node 0 is inf; it must be in d"),
        (labelled(longitude=481), {"fill": GIGABIT}, "longitude of node 0 is 481; it must be in"),
        (
            labelled(kind="pop"),
            {"fill": GIGABIT, "attach": {"workers": 1}},
            "0 has kind pop; allow",
        ),
        (parallel(loss="x"), {"fill": GIGABIT}, "loss of link 0 - 1 is 'x'; it must be a number"),
        (nx.empty_graph(3), {"fill": GIGABIT}, "the graph has no link between two nodes"),
        (nx.DiGraph(), {}, "has no nodes"),
    ],
)
def test_invalid_options_are_refused(
    graph: nx.Graph, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(graph, **options)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_graph_in_memory_is_read_like_a_file() -> None:
    """A link without a bandwidth is no unlimited link."""
    with pytest.raises(ConfigError, match="link 0 - 1 has no bandwidth_mbps"):
        read_network(ring(4))
    assert read_network(ring(4, LinkSpeedRaw=1e9)).graph.edges["0", "1"]["bandwidth_mbps"] == 1000
    filled = ring(4)
    filled.graph["fill"] = {"mbps": 70}
    assert read_network(filled).graph.edges["1", "0"]["bandwidth_mbps"] == 70
    complete = read_network(filled).graph
    assert dict(read_network(complete).graph.adj) == dict(complete.adj)
    del complete.edges["0", "1"]["bandwidth_mbps"]
    with pytest.raises(ConfigError, match="edge 0 -> 1 has no bandwidth_mbps"):
        read_network(complete)


def test_parallel_links_have_the_larger_jitter_and_the_shorter_queue() -> None:
    graph = ring(4, bandwidth_mbps=5, delay_ms=1, jitter_ms=3, queue_ms=40)
    both = nx.MultiGraph(graph)
    both.add_edge(0, 1, bandwidth_mbps=5, delay_ms=2, jitter_ms=7, queue_ms=20)
    both.add_edge(1, 2, bandwidth_mbps=5, delay_ms=2)
    edges = read(both).graph.edges
    found = [[edges[edge].get(key) for key in ("jitter_ms", "queue_ms")] for edge in edges]
    assert found.count([7, 20]) == 2
    assert [edges["1", "2"][key] for key in ("jitter_ms", "queue_ms")] == [3, 40]
    assert edges["0", "1"]["jitter_ms"] == 7


def test_odd_labels_become_names_of_one_line() -> None:
    names = [("", "node 0"), ("A\nB ", "A B")]
    graph = ring(4, bandwidth_mbps=5)
    graph = nx.relabel_nodes(graph, {number: label for number, (label, _) in enumerate(names)})
    found = read_network(graph).graph
    assert all(name in found for _, name in names)


def test_maps_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = zoo(tmp_path)
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert "Upton" in read_network({"file": path, "fill": GIGABIT}).graph


def test_attach_and_fill_are_for_graphs_of_routers_only(two_parties: Cluster) -> None:
    content = to_node_link(two_parties.graph)
    for key, options in (("attach", {"workers": 3}), ("fill", GIGABIT)):
        with pytest.raises(ConfigError, match=f"{key} is for graphs of routers alone"):
            read_network({**content, key: options})


def test_options_of_maps_can_be_overridden(tmp_path: Path) -> None:
    path = zoo(tmp_path)
    words = [f"network={path}", "network.fill.mbps=500", "network.attach.parties=[A-B,Lowton]"]
    words += ["network.attach.workers=3", "network.attach.lan.mbps=200"]
    redraw = "network.redraw={every_s: 60, low_mbps: 20, high_mbps: 155}"
    experiment, _ = compose([*words, redraw])
    assert [party.name for party in experiment.cluster.parties] == ["A-B", "Lowton"]
    assert len(experiment.cluster.workers) == 6
    graph = experiment.cluster.graph
    assert graph.edges["A-B", "None 3"]["redraw"]["high_mbps"] == 155
    assert graph.edges["A-B/server", "A-B"]["bandwidth_mbps"] == 200
    with pytest.raises(ConfigError, match="attach"):
        compose([f"network={path}", "network.atach.workers=3"])


# ---- networks that come with geomx ----


@pytest.mark.parametrize("network", list(named_networks()), ids=lambda network: network.name)
def test_named_networks_are_complete_and_have_a_source(network: Any) -> None:
    cluster = network.cluster()
    assert cluster.name == network.name
    assert len(network.summary.split()) > 6
    assert network.summary.endswith(".")
    assert network.source
    centre = cluster.global_servers[0]
    for party in cluster.parties:
        for path in (cluster.path(party.server, centre), cluster.path(centre, party.server)):
            assert 20e6 <= path.bandwidth_bps <= 100e9
            assert path.delay_s < 0.2


def test_measured_networks_keep_measured_delays() -> None:
    """The delay between two sites is the published one, even if another path is shorter."""
    content = next(network for network in named_networks() if network.name == "azure_world").content
    cluster = read_network(content)
    for party in cluster.parties:
        path = cluster.path(party.server, cluster.global_servers[0])
        measured_ms = content["delay_ms"]["west_europe"][party.name]
        assert path.delay_s * 1e3 == pytest.approx(measured_ms + 0.1)
    servers = {party.name: party.server for party in cluster.parties}
    path = cluster.path(servers["south_africa"], servers["australia_east"])
    assert path.delay_s * 1e3 == pytest.approx(174.1)


def test_the_netstorm_network_equals_the_papers() -> None:
    networks = {network.name: network.cluster() for network in named_networks()}
    still, drawn = networks["netstorm_static"], networks["netstorm_dynamic"]
    assert len(still.workers) == len(still.parties) == 9
    links = {edge for edge in drawn.graph.edges if "/" not in "".join(edge)}
    assert len(links) == 26
    assert {edge for edge, data in drawn.graph.edges.items() if "redraw" in data} == links
    assert not any("redraw" in data for data in still.graph.edges.values())
    hops = still.path(still.parties[8].server, still.global_servers[0]).edges
    assert len(hops) == 2 + 4  # h9, h6, h4, h3 and h1, and a LAN at each end


def test_networks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["networks"]) == 0
    printed = capsys.readouterr().out
    for network in named_networks():
        assert network.name in printed


def test_defaults_of_graphml_count(tmp_path: Path) -> None:
    """For nodes and edges that do not say otherwise."""
    graph = nx.Graph(node_default={"kind": "router"}, edge_default={"bandwidth_mbps": 40.0})
    graph.add_node("hub", kind="global_server", party="middle")
    graph.add_node("east", kind="worker", party="a")
    graph.add_edge("hub", "router")
    graph.add_edge("router", "east", bandwidth_mbps=5.0)
    nx.write_graphml(graph, tmp_path / "wan.graphml")
    assert "<default>40.0</default>" in (tmp_path / "wan.graphml").read_text()
    read = read_network(tmp_path / "wan.graphml").graph
    assert read.nodes["router"]["kind"] == "router"
    assert read.edges["hub", "router"]["bandwidth_mbps"] == 40
    assert read.edges["router", "east"]["bandwidth_mbps"] == 5
    assert "edge_default" not in read.graph
