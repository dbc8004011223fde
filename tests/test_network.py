"""Network files: expansion, refusals, and reading of written networks."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import yaml

import geomx
from geomx.cluster import Cluster
from geomx.cluster.routes import HOP_MS, Routes
from geomx.errors import ConfigError
from geomx.network.files import read_network, to_node_link
from geomx.network.short_form import MESH_SITES, MIDDLE

pytestmark = pytest.mark.interpreter  # networkx and YAML

SHORT: dict[str, Any] = {
    "name": "small",
    "central": {"name": "hub", "global_servers": 2, "uplink_mbps": 1000, "downlink_mbps": 800},
    "parties": {
        "beijing": {"workers": 2, "uplink_mbps": 100, "downlink_mbps": 200},
        "chengdu": {"workers": 3, "uplink_mbps": 50, "downlink_mbps": 60, "speed": [1, 1, 0.5]},
    },
    "delay_ms": {"beijing": {"chengdu": 18, "hub": 25}, "hub": {"chengdu": 30, "beijing": 27}},
    "loss": {"hub": {"beijing": 0.01}},
    "lan": {"mbps": 10000, "delay_ms": 0.05},
}


LAUGHS = "l0: &l0 [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(
    f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 8)
)


def short(**changes: Any) -> dict[str, Any]:
    """Return the network above with changed values; keys may be dotted, and None deletes."""
    content = copy.deepcopy(SHORT)
    for key, value in changes.items():
        table = content
        *above, last = key.split("__")
        for name in above:
            table = table[name]
        if value is None:
            del table[last]
        else:
            table[last] = value
    return content


def long() -> nx.DiGraph:
    return read_network(SHORT).graph.copy()


def same(one: Cluster, other: Cluster) -> None:
    assert one.name == other.name
    assert one.nodes == other.nodes
    assert one.parties == other.parties
    assert dict(one.graph.nodes(data=True)) == dict(other.graph.nodes(data=True))
    assert dict(one.graph.adj) == dict(other.graph.adj)


def test_short_form_expands() -> None:
    cluster = read_network(SHORT)
    assert cluster.name == "small"
    assert [node.name for node in cluster.nodes] == [
        "hub/scheduler", "hub/global_server0", "hub/global_server1",
        "beijing/server", "beijing/worker0", "beijing/worker1",
        "chengdu/server", "chengdu/worker0", "chengdu/worker1", "chengdu/worker2",
    ]  # fmt: skip
    assert [node.id for node in cluster.nodes] == list(range(10))
    assert [worker.speed for worker in cluster.workers] == [1.0, 1.0, 1.0, 1.0, 0.5]
    beijing, hub = cluster.parties[0].server, cluster.global_servers[1]
    up, down = cluster.path(beijing, hub), cluster.path(hub, beijing)
    assert up.edges == (
        ("beijing/server", "beijing"), ("beijing", "beijing/wan"), ("beijing/wan", "hub/wan"),
        ("hub/wan", "hub"), ("hub", "hub/global_server1"),
    )  # fmt: skip
    assert (up.bandwidth_bps, down.bandwidth_bps) == (100e6, 200e6)
    assert up.delay_s == pytest.approx(25.1e-3)
    assert down.delay_s == pytest.approx(27.1e-3)
    assert up.loss == down.loss == pytest.approx(0.01)
    assert cluster.path(cluster.parties[1].server, beijing).delay_s == pytest.approx(18.1e-3)
    assert cluster.link(beijing, hub, "push").kind == "wan"
    assert cluster.link(cluster.workers[0], beijing, "push").kind == "lan"


def test_coordinates_may_be_text_or_unknown() -> None:
    """As in files of other tools; coordinates without a value are left out."""
    graph = to_node_link(read_network(SHORT).graph)
    graph["nodes"][0] |= {"Latitude": "48.1", "Longitude": 11, "lat": None}
    node = graph["nodes"][0]["id"]
    data = read_network(graph).graph.nodes[node]
    assert (data["Latitude"], data["Longitude"]) == ("48.1", 11)
    assert "lat" not in data


def test_central_workers_are_an_ordinary_party_first_in_order() -> None:
    cluster = read_network(short(central__workers=2))
    assert [party.name for party in cluster.parties] == ["hub", "beijing", "chengdu"]
    hub = cluster.parties[0]
    assert [worker.name for worker in hub.workers] == ["hub/worker0", "hub/worker1"]
    assert cluster.link(hub.server, cluster.global_servers[0], "push").kind == "lan"


def test_defaults_of_the_short_form() -> None:
    cluster = read_network(
        {
            "central": {"uplink_mbps": 1, "downlink_mbps": 1},
            "parties": {1: {"workers": 1, "uplink_mbps": 1, "downlink_mbps": 1, "speed": 2}},
            "delay_ms": 0,
        }
    )
    assert [node.name for node in cluster.nodes] == [
        "hub/scheduler", "hub/global_server0", "1/server", "1/worker0",
    ]  # fmt: skip
    assert cluster.workers[0].speed == 2.0


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (short(central=None), "there is no global server: central is missing"),
        (short(central__global_servers=0), "central.global_servers is 0"),
        (short(central__workers=-1), "central.workers is -1"),
        (short(central__latitude="abc"), "latitude of node hub is 'abc'; it must be a number"),
        (short(central__latitude=91), "latitude of node hub is 91; it must be from -90 to 90 degr"),
        (short(central__longitude=-361), "longitude of node hub is -361; it must be from -360 to"),
        (short(central__longitude=".inf"), "longitude of node hub is .inf; it must be from -360"),
        (short(parties={}), "there is no party"),
        (short(partys={}), "unknown key partys; did you mean parties?"),
        (short(parties__beijing__worker=2), "unknown key parties.beijing.worker; did you mean"),
        (short(parties__beijing__workers=None), "parties.beijing.workers is missing"),
        (short(parties__beijing__workers=0), "parties.beijing.workers is 0"),
        (short(parties__beijing__workers=1.5), "parties.beijing.workers is 1.5"),
        (short(parties__beijing=3), "parties.beijing must be a table"),
        (short(parties__beijing__uplink_mbps=0), "parties.beijing.uplink_mbps is 0; it must be"),
        (short(parties__beijing__uplink_mbps="x"), "parties.beijing.uplink_mbps is 'x'"),
        (short(parties__beijing__uplink_mbps=float("nan")), "beijing.uplink_mbps is not a number"),
        (short(parties__beijing__downlink_mbps=None), "parties.beijing.downlink_mbps is missing"),
        (short(parties__chengdu__speed=[1, 1]), "chengdu.speed lists 2 speeds for 3 workers"),
        (short(parties__chengdu__speed=[1, 1, 0]), "parties.chengdu.speed[2] is 0"),
        (short(parties__beijing__speed=1e-300), "speed[0] is 1e-300; it must be at least 0.000001"),
        (short(parties__hub=SHORT["parties"]["beijing"]), "two sites are called hub"),
        (short(**{"parties__a/b": SHORT["parties"]["beijing"]}), "party 'a/b'"),
        (
            short() | {"parties": {False: SHORT["parties"]["beijing"]}},
            "a party is called False; YAML reads the name so unless it is in quotes",
        ),
        (short(central__name=True), "central.name is called True; YAML reads"),
        (short(delay_ms=-1), "delay_ms is -1; it must be 0 or more"),
        (short(delay_ms=None), "delay_ms is missing"),
        (short(delay_ms__hub__chengdu=None), "delay_ms between hub and chengdu is missing"),
        (short(delay_ms__hub__chendu=3), "delay_ms: there is no site chendu; did you mean chengdu"),
        (short(delay_ms__hub__hub=3), "delay_ms.hub.hub: a site has no link to itself"),
        (short(loss=1), "loss is 1; it must be at least 0 and below 1"),
        (short(loss__hub__beijing=-0.1), "loss.hub.beijing is -0.1"),
        (short(lan__mbps=-1), "lan.mbps is -1"),
        (short(lan__mbps=1e300), "lan.mbps is 1e+300; it must be at least 0.000001 and at most"),
        (short(mbps={"hub": {"beijing": 2e9}}), "mbps.hub.beijing is 2000000000.0; it must be"),
        (short(parties__beijing__uplink_mbps=1e-300), "parties.beijing.uplink_mbps is 1e-300"),
        (short(delay_ms=1e12), "delay_ms is 1000000000000.0; it must be at most 3,600,000 ms"),
        (short(jitter_ms=1e12), "jitter_ms is 1000000000000.0; it must be at most 3,600,000 ms"),
        (short(queue_ms=1e12), "queue_ms is 1000000000000.0; it must be at most 3,600,000 ms"),
        (short(lan__speed=1), "unknown key lan.speed"),
    ],
)
def test_short_form_refusals(content: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_network(content)
    assert str(caught.value).startswith("network=small: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def drop(*edge: str) -> Callable[[nx.DiGraph], None]:
    return lambda graph: graph.remove_edge(*edge)


def node(name: str, **data: Any) -> Callable[[nx.DiGraph], None]:
    return lambda graph: graph.nodes[name].update(data)


def edge(source: str, target: str, **data: Any) -> Callable[[nx.DiGraph], None]:
    return lambda graph: graph.edges[source, target].update(data)


def latency(graph: nx.DiGraph, source: str, target: str) -> None:
    data = graph.edges[source, target]
    data["latency_ms"] = data.pop("delay_ms")


def without_bandwidth(*ends: str) -> Callable[[nx.DiGraph], None]:
    return lambda graph: graph.edges[ends].pop("bandwidth_mbps")


def no_nodes(*kinds: str) -> Callable[[nx.DiGraph], None]:
    def change(graph: nx.DiGraph) -> None:
        gone = [name for name, data in graph.nodes(data=True) if data["kind"] in kinds]
        graph.remove_nodes_from(gone)

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (without_bandwidth("chengdu", "chengdu/wan"), "edge chengdu -> chengdu/wan has no band"),
        (without_bandwidth("chengdu/server", "chengdu"), "edge chengdu/server -> chengdu has no"),
        (edge("hub", "hub/wan", bandwidth_mbps=-3), "bandwidth_mbps of edge hub -> hub/wan is -3"),
        (edge("hub", "hub/wan", unlimited=True), "edge hub -> hub/wan is unlimited and has"),
        (edge("hub", "hub/wan", delay_ms=-3), "delay_ms of edge hub -> hub/wan is -3"),
        (edge("hub", "hub/wan", loss=1.0), "loss of edge hub -> hub/wan is 1.0"),
        (edge("hub", "hub/wan", jitter_ms="x"), "jitter_ms of edge hub -> hub/wan is 'x'"),
        (edge("hub", "hub/wan", delay=3), "unknown attribute delay; did you mean delay_ms?"),
        (
            node("hub", transit="sometimes"),
            "transit of node hub is 'sometimes'; it must be true or",
        ),
        (edge("hub", "hub/wan", loss=10**400), "it must be at least 0 and below 1"),
        (edge("hub", "hub/wan", delay_ms=10**400), "it must be 0 or more"),
        (
            lambda graph: latency(graph, "hub", "hub/wan"),
            "edge hub -> hub/wan has an unknown attribute latency_ms; did you mean delay_ms?",
        ),
        (edge("hub", "hub/wan", trace="no.csv"), "trace of edge hub -> hub/wan is no.csv, which"),
        (node("beijing/worker0", kind="wroker"), "kind wroker; did you mean worker?"),
        (node("beijing/worker0", party=""), "worker beijing/worker0 has no party"),
        (node("beijing/worker0", speed=0), "speed of node beijing/worker0 is 0"),
        (node("beijing/worker0", kind="server"), "party beijing has several local servers"),
        (node("beijing/worker0", kind="scheduler"), "there are several schedulers"),
        (node("beijing/server", party="wuhan"), "party wuhan has no worker"),
        (no_nodes("global_server"), "there is no global server"),
        (no_nodes("server", "worker"), "there is no party"),
        (drop("beijing/wan", "beijing"), "hub/global_server0 cannot reach beijing/server"),
        (drop("beijing", "beijing/worker1"), "cannot reach beijing/worker1"),
        (drop("beijing/worker1", "beijing"), "beijing/worker1 cannot reach"),
        (drop("hub", "hub/global_server1"), "cannot reach hub/global_server1"),
        (lambda graph: graph.add_edge("hub", "hub", bandwidth_mbps=1), "hub has an edge to itself"),
    ],
)
def test_long_form_refusals(change: Callable[[nx.DiGraph], None], sentence: str) -> None:
    graph = long()
    change(graph)
    with pytest.raises(ConfigError) as caught:
        read_network(nx.node_link_data(graph))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_attributes_are_derived() -> None:
    graph = long()
    no_nodes("scheduler", "server")(graph)
    cluster = read_network(to_node_link(graph))
    assert [n.name for n in cluster.nodes] == [n.name for n in read_network(SHORT).nodes]
    same(read_network(to_node_link(cluster.graph)), cluster)
    graph.edges["beijing/worker0", "beijing"]["delay_ms"] = 5
    with pytest.raises(ConfigError, match="party beijing has no local server, and its workers"):
        read_network(to_node_link(graph))


@pytest.mark.parametrize("seed", range(5))
def test_written_networks_are_read_back(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    parties = {
        f"p{index}": {
            "workers": draw.randint(1, 4),
            "uplink_mbps": draw.uniform(1, 500),
            "downlink_mbps": draw.uniform(1, 500),
            "speed": draw.uniform(0.1, 2),
        }
        for index in range(draw.randint(1, 6))
    }
    central = {"global_servers": draw.randint(1, 3), "workers": draw.randint(0, 2)}
    content = {
        "name": "drawn",
        "central": central | {"uplink_mbps": 1000, "downlink_mbps": 1000},
        "parties": parties,
        "delay_ms": draw.uniform(0, 200),
        "loss": draw.uniform(0, 0.1),
    }
    cluster = read_network(content)
    path = tmp_path / "network.json"
    path.write_text(json.dumps(to_node_link(cluster.graph)))
    again = read_network(path)
    same(again, cluster)
    path.write_text(json.dumps(nx.node_link_data(again.graph)))  # plain networkx
    same(read_network(str(path)), cluster)


@pytest.mark.slow
def test_a_mesh_of_equal_sites_equals_a_star(tmp_path: Path, seed: int) -> None:
    """A run over one central router equals a run over an edge between each pair of sites."""
    party = {"workers": 1, "uplink_mbps": 50, "downlink_mbps": 80}
    content = {
        "name": "alike",
        "central": {"name": "hub", "uplink_mbps": 400, "downlink_mbps": 400},
        "parties": {f"p{index}": party for index in range(MESH_SITES)},
        "delay_ms": 30,
        "loss": 0.001,
        "jitter_ms": 2,
        "queue_ms": 40,
        "redraw": {"every_s": 0.2, "low_mbps": 20, "high_mbps": 90},
        "outages": [{"site": "p3", "start_s": 0.2, "end_s": 0.5}],
    }
    # A rule for the link of two sites keeps all edges; this one has no effect during the run.
    apart = {"link": ["p1", "p2"], "start_s": 1e6, "end_s": 2e6}
    files = {name: tmp_path / f"{name}.yaml" for name in ("middle", "mesh")}
    files["middle"].write_text(yaml.safe_dump(content))
    rules = [*content["outages"], apart]
    files["mesh"].write_text(yaml.safe_dump(content | {"outages": rules}))
    files["again"] = tmp_path / "middle" / "network.json"
    edges = {}
    for name, file in files.items():
        words = [f"network={file}", "workload=synthetic", "workload.elements=[40000,2000]"]
        words += ["numerics=false", "iterations=3", f"seed={seed}", "runtime.frame_bytes=16384"]
        geomx.run([*words, "+accel=[dgt]", f"hydra.run.dir={tmp_path / name}"])
        edges[name] = len(json.loads((tmp_path / name / "network.json").read_text())["edges"])
    for left in ("iterations.csv", "links.csv", "trace.json"):
        assert len({(tmp_path / name / left).read_bytes() for name in files}) == 1, left
    assert edges["middle"] == edges["again"] < edges["mesh"] / 4
    mesh = read_network(tmp_path / "middle.yaml").graph
    options = {"outages": [apart]}
    assert MIDDLE in mesh
    assert MIDDLE not in read_network({"file": tmp_path / "middle.yaml", **options}).graph
    assert MIDDLE not in read_network(content | {"loss": {"hub": {"p1": 0.1}}}).graph


@pytest.mark.parametrize(
    ("suffix", "write"),
    [
        ("graphml", nx.write_graphml),
        ("gml", nx.write_gml),
        ("yaml", lambda graph, path: path.write_text(yaml.safe_dump(to_node_link(graph)))),
        ("json", lambda graph, path: path.write_text(json.dumps(nx.node_link_data(graph)))),
    ],
)
def test_all_formats_of_graphs_are_read(suffix: str, write: Any, tmp_path: Path) -> None:
    path = tmp_path / f"wan.{suffix}"
    write(long(), path)
    cluster = read_network(path)
    assert cluster.nodes == read_network(SHORT).nodes
    for source in cluster.nodes:
        for target in (cluster.scheduler, cluster.global_servers[0]):
            expected = read_network(SHORT).path(source, target)
            assert cluster.path(source, target) == expected


def test_keys_of_graphs_are_checked_and_parties_reach_each_other() -> None:
    content = to_node_link(long())
    with pytest.raises(ConfigError, match="unknown key outage; did you mean outages"):
        read_network(content | {"outage": []})
    astray = next(each for each in content["nodes"] if each["id"] == "chengdu/worker2")
    astray["party"] = "mars"
    with pytest.raises(ConfigError, match=r"mars.* on the way are routers of other parties"):
        read_network(content)
    assert read_network(short(central__uplink_mbps=".inf")).graph.edges["hub", "hub/wan"]


def test_undirected_edges_are_bidirectional(tmp_path: Path) -> None:
    graph = nx.Graph()
    graph.add_node("g", kind="global_server", party="hub")
    graph.add_node(1, kind="worker", party="a")
    graph.add_node(2, kind="worker", party="a")
    graph.add_node("site")
    for host, delay in ((1, 0.1), (2, 0.1), ("g", 20)):
        graph.add_edge(host, "site", bandwidth_mbps=10, delay_ms=delay, queue_ms=4)
    path = tmp_path / "triangle.json"
    path.write_text(json.dumps(nx.node_link_data(graph)))
    cluster = read_network(path)
    assert cluster.name == "triangle"
    assert [n.name for n in cluster.nodes] == ["hub/scheduler", "g", "a/server", "1", "2"]
    there = cluster.path(cluster.workers[0], cluster.global_servers[0])
    back = cluster.path(cluster.global_servers[0], cluster.workers[0])
    assert there.delay_s == back.delay_s == pytest.approx(20.1e-3)
    assert cluster.graph.edges["site", "a/server"]["queue_ms"] == 4.0
    several = nx.MultiGraph(graph)
    several.add_edge("g", "site", bandwidth_mbps=1)
    path.write_text(json.dumps(nx.node_link_data(several)))
    with pytest.raises(ConfigError, match="there are two edges"):
        read_network(path)


def test_traces_are_relative_to_the_network_file(tmp_path: Path) -> None:
    (tmp_path / "up.csv").write_text("time_s,bandwidth_mbps\n0,10\n")
    graph = long()
    graph.edges["beijing", "beijing/wan"]["trace"] = "up.csv"
    path = tmp_path / "wan.json"
    path.write_text(json.dumps(to_node_link(graph)))
    cluster = read_network(path)
    assert cluster.graph.edges["beijing", "beijing/wan"]["trace"] == [[0.0, 10.0]]
    (tmp_path / "up.csv").unlink()  # the network already contains it
    same(read_network(to_node_link(cluster.graph)), cluster)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.yaml", None, "there is no such file"),
        ("a.graphml", None, "there is no such file"),
        ("a.json", "{", "is not JSON: "),
        ("a.yaml", "a: [", "is not YAML: "),
        ("a.yaml", "- 1", "must hold a table of keys"),
        ("a.yaml", "", "must hold a table of keys"),
        ("a.yaml", "parties:\n  a: {}\n  a: {}\n", "a comes twice at line 2"),
        ("a.yaml", b"\xff\xfe\x00", "it is not a text file"),
        ("a.yaml", LAUGHS, "its aliases stand for 5.45e+07 values, more than 20000; use fewer"),
        ("a.yaml", "parties: &a {b: *a}", "contains itself by an alias at line 1"),
        ("a.yaml", "name: 2026-13-45", "2026-13-45 at line 1 is no timestamp; quote it if it is"),
        ("a.yaml", "- !!bool maybe", "maybe at line 1 is no bool"),
        ("a.yaml", "[" * 5000, "is not YAML: exceeded maximum nesting depth"),
        ("a.json", "[" * 5000, "is not JSON: its lists and tables are nested too deeply"),
        ("a.json", "9" * 5000, "is not JSON: Exceeds the limit"),
        ("a.graphml", "<", "is not GRAPHML"),
        (
            "a.graphml",
            '<graphml><graph><node id="a"/><edge source="b" target="a"/></graph></graphml>',
            "has an edge between a and b, and b is not a node",
        ),
        ("a.gml", "}{", "is not GML"),
        ("a.json", '{"nodes": 3}', "needs two lists"),
        ("a.json", '{"nodes": [{}], "links": []}', "nodes[0] has no id"),
        ("a.json", '{"nodes": [{"id": 1}, {"id": "1"}], "links": []}', "two nodes are called 1"),
        (
            "a.json",
            '{"nodes": [{"id": 1}], "links": [{"source": 1, "target": 2}]}',
            "links[0] has target 2, which is not a node",
        ),
        (
            "a.json",
            '{"directed": "no", "nodes": [], "links": []}',
            "directed is 'no'; it must be tr",
        ),
        ("a.txt", "x", "unknown suffix .txt"),
    ],
)
def test_unreadable_files(
    name: str, content: str | bytes | None, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        read_network(path)
    assert str(caught.value).startswith(f"network={path}: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_random_bytes_are_refused_in_one_line(tmp_path: Path) -> None:
    draw = random.Random(0)
    text = json.dumps(to_node_link(long()))
    for suffix in ("json", "yaml", "graphml", "gml"):
        for attempt in range(25):
            at = draw.randrange(len(text))
            path = tmp_path / f"garbage.{suffix}"
            path.write_text(text[:at] + draw.choice('"{}[]:,x\0\n') + text[at + 3 :])
            try:
                read_network(path)
            except ConfigError as error:
                assert "\n" not in str(error), f"seed 0, attempt {attempt}"


def test_paths_do_not_cross_other_sites() -> None:
    """Measured delays may violate the triangle inequality, but only a node could relay."""
    delays = {"hub": {"beijing": 100, "chengdu": 10}, "beijing": {"chengdu": 10}}
    cluster = read_network(short(delay_ms=delays))
    server, hub = cluster.parties[0].server, cluster.global_servers[0]
    for there, back in ((server, hub), (hub, server)):
        assert cluster.path(there, back).delay_s == pytest.approx(100.1e-3)
    graph = cluster.graph.copy()
    for node in graph:
        graph.nodes[node].pop("transit", None)
    relayed = read_network(to_node_link(graph))
    assert relayed.path(server, hub).delay_s == pytest.approx(20.1e-3)


def test_links_between_sites_may_have_their_own_bandwidth() -> None:
    graph = read_network(short(mbps={"hub": {"beijing": 70}})).graph
    assert graph.edges["beijing/wan", "hub/wan"]["bandwidth_mbps"] == 70
    assert graph.edges["hub/wan", "beijing/wan"]["bandwidth_mbps"] == 70
    assert graph.edges["hub/wan", "chengdu/wan"]["unlimited"] is True


def test_jitter_is_between_sites_and_queues_are_at_access_links() -> None:
    graph = read_network(short(jitter_ms={"hub": {"beijing": 3}}, queue_ms=50)).graph
    assert {edge for edge, data in graph.edges.items() if data.get("jitter_ms")} == {
        ("hub/wan", "beijing/wan"), ("beijing/wan", "hub/wan"),
    }  # fmt: skip
    queues = {edge for edge, data in graph.edges.items() if data.get("queue_ms") == 50}
    sites = ("hub", "beijing", "chengdu")
    assert queues == {way for s in sites for way in ((s, f"{s}/wan"), (f"{s}/wan", s))}


def searched(graph: nx.DiGraph, source: str, target: str) -> list[str] | None:
    """Return a route by networkx over the complete graph; None if there is none."""
    nodes = graph.nodes(data=True)
    party = {node: data.get("party") for node, data in nodes}
    closed = {node for node, data in nodes if data.get("transit") is False}

    def weight(here: str, there: str, data: dict[str, float]) -> float | None:
        if here in closed and party[here] not in (party[start], party[there]):
            return None
        return data["delay_ms"] + HOP_MS

    start, before = source, []
    if source != target and graph.out_degree(source) == 1:
        before, start = [source], next(iter(graph.successors(source)))
    try:
        return [*before, *nx.dijkstra_path(graph, start, target, weight)]
    except nx.NetworkXNoPath:
        return None


@pytest.mark.slow
def test_routes_equal_a_search_over_the_complete_graph(seed: int) -> None:
    """With ties, one-way edges, attached trees, and sites without transit."""
    draw = random.Random(seed)
    for _ in range(150):
        names = [f"n{index}" for index in range(draw.randint(2, 12))]
        graph = nx.DiGraph()
        for name in names:
            closed = {"transit": False} if draw.random() < 0.3 else {}
            graph.add_node(name, party=draw.choice("abc"), **closed)
        pairs = [(name, draw.choice(names[:index])) for index, name in enumerate(names) if index]
        pairs += [draw.sample(names, 2) for _ in range(draw.choice([0, 1, len(names)]))]
        for one, other in pairs:
            for way in ((one, other), (other, one)):
                if draw.random() < 0.95:
                    graph.add_edge(*way, delay_ms=draw.choice([0, 0.05, 0.3, 1, 2, 10.1]))
        routes = Routes(graph)
        for source in names:
            for target in names:
                expected = searched(graph, source, target)
                if expected is None:
                    with pytest.raises(KeyError):
                        routes(source, target)
                else:
                    assert routes(source, target) == expected, (seed, graph.edges(data=True))


def test_given_paths_take_precedence_over_the_shortest() -> None:
    graph = nx.Graph()
    graph.add_node("hub/g", kind="global_server", party="hub")
    graph.add_node("a/w", kind="worker", party="a")
    for edge in (
        ("hub/g", "h"),
        ("h", "x"),
        ("h", "y"),
        ("y", "z"),
        ("x", "r"),
        ("z", "r"),
        ("r", "a/w"),
    ):
        graph.add_edge(*edge, bandwidth_mbps=10, delay_ms=1)

    def way(cluster: Cluster, back: bool = False) -> str:
        ends = cluster.workers[0], cluster.global_servers[0]
        edges = cluster.path(*(ends[::-1] if back else ends)).edges
        return " ".join(edge[1] for edge in edges[:-1])

    content = to_node_link(graph.to_directed())
    assert way(read_network(content)) == "r x h"
    detour = read_network({**content, "paths": [["r", "z", "y", "h"]]})
    assert way(detour) == "r z y h"
    assert way(detour, back=True) == "h y z r"
    assert way(read_network(to_node_link(detour.graph))) == "r z y h"
    one_way = read_network({**content, "paths": [["r", "z", "y", "h"], ["h", "x", "r"]]})
    assert way(one_way, back=True) == "h x r"
    whole = read_network({**content, "paths": [["a/w", "r", "z", "y", "h", "hub/g"]]})
    assert way(whole) == "r z y h" and way(whole, back=True) == "h y z r"
    for paths, sentence in (
        ([["r", "h"]], "there is no edge r -> h"),
        ([["r"]], "must join two different nodes"),
        ([["r", "x", "h"], ["r", "z", "y", "h"]], "be the only such path"),
        ("r x h", "must be a list of lists"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            read_network({**content, "paths": paths})


def test_parties_may_have_numbers_for_names() -> None:
    """As in graphs that a program numbers; routers without transit pass their own party on."""
    content = to_node_link(read_network(SHORT).graph)
    number = {"hub": 0, "beijing": 1, "chengdu": 2}
    for node in content["nodes"]:
        node["party"] = number[node["party"]]
    assert [party.name for party in read_network(content).parties] == ["1", "2"]
