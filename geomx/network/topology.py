"""Conversion of a networkx graph to a `Cluster`, with the rules that a network must follow.

Every form of network file ends up here as a graph. This module makes it directed, checks every
attribute, adds what can be inferred (a scheduler beside the global server, a local server beside
workers that have none) and checks that all nodes that communicate can reach each other. A violated
rule is reported in one sentence that names the node, the edge or the pair.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import networkx as nx

from geomx.cluster import Cluster, NodeSpec, Party, Role
from geomx.cluster.routes import SHORTEST, WIDEST, WIDEST_OF
from geomx.errors import ConfigError, near
from geomx.network.reach import check_reach
from geomx.network.schedules import EDGE_CHANGES, check_changes, spread
from geomx.network.sharing import check_sharing
from geomx.network.steps import STEPS, spread_steps
from geomx.network.validators import (
    bandwidth,
    check_place,
    milliseconds,
    passes_twice,
    probability,
    refuse,
    spelt,
    worker_speed,
)
from geomx.terminal.progress import stage

ROLES: tuple[Role, ...] = get_args(Role)
KINDS = (*ROLES, "router")
MOST_WAYS = 100
"""Most routes among which the widest is chosen."""

NODE_ATTRIBUTES = ("kind", "party", "speed", "transit", STEPS)
# `unlimited` marks an edge that has no bandwidth_mbps on purpose; see `to_node_link`.
_OF_EDGES = ("bandwidth_mbps", "delay_ms", "loss", "jitter_ms", "queue_ms", "unlimited")
EDGE_ATTRIBUTES = (*_OF_EDGES, *EDGE_CHANGES)


def to_cluster(graph: nx.Graph, name: str, folder: Path) -> Cluster:
    """Check and complete `graph`, and derive the tree of nodes from it.

    Args:
        graph: Any networkx graph in the long form of network files.
        name: Name of the network if the graph has none.
        folder: Base of relative paths of bandwidth traces.

    Returns:
        The cluster, with a directed copy of `graph`.

    Raises:
        NetworkError: The graph violates a rule.
    """
    directed = _directed(graph)
    directed.graph = {**directed.graph, "name": str(directed.graph.get("name") or name)}
    for node, data in directed.nodes(data=True):
        _check_node(node, data)
    spread(directed)
    spread_steps(directed, folder)
    for source, target, data in stage(directed.edges(data=True), "reading the network"):
        _check_edge(f"edge {source} -> {target}", data, folder)
    _check_paths(directed)
    _check_routing(directed)
    check_sharing(directed)
    _add_scheduler(directed)
    hosts = _hosts(directed)
    for party in _parties(directed):
        _add_server(directed, party, hosts["server", party], hosts["worker", party])
    cluster = _cluster(directed)
    check_reach(cluster)
    return cluster


def with_global_servers(cluster: Cluster, count: int) -> Cluster:
    """Add global servers beside the first one.

    Args:
        cluster: Left unchanged.
        count: Required number of global servers.

    Returns:
        `cluster` itself if it has enough of them, else a copy with `count`.
    """
    missing = count - len(cluster.global_servers)
    if missing <= 0:
        return cluster
    graph = cluster.graph.copy()
    first = cluster.global_servers[0]
    for index in range(missing):
        number = len(cluster.global_servers) + index
        name = _free_name(graph, f"{first.party}/global_server{number}")
        _add_beside(graph, first.name, name, "global_server")
    return _cluster(graph)


def with_global_servers_at(cluster: Cluster, places: Sequence[str]) -> Cluster:
    """Place the global servers anew.

    Args:
        cluster: Left unchanged.
        places: Names of nodes, at least one. A global server stays; beside another node, one is
            added with the same connections. Global servers that are not named are left out.

    Returns:
        `cluster` itself if nothing changes, else a copy.
    """
    servers = {server.name for server in cluster.global_servers}
    if servers == set(places):
        return cluster
    graph = cluster.graph.copy()
    for number, place in enumerate(places):
        if place not in servers:
            party = cluster.node(place).party
            name = _free_name(graph, f"{party}/global_server{number}")
            _add_beside(graph, place, name, "global_server")
    graph.remove_nodes_from(servers - set(places))
    return _cluster(graph)


def may_be_narrow(cluster: Cluster, edge: tuple[str, str]) -> bool:
    """Return whether transfers between sites may have to share an edge.

    Args:
        cluster: All nodes.
        edge: The edge.

    Returns:
        Whether it is limited, and not a host's own.
    """
    ends = [cluster.graph.nodes[node] for node in edge]
    routers = all(end["kind"] == "router" for end in ends)
    between = routers or ends[0].get("party") != ends[1].get("party")
    return between and bool({"bandwidth_mbps", "trace"} & cluster.graph.edges[edge].keys())


def with_standbys(cluster: Cluster, site: str | None) -> Cluster:
    """Add a standby of every global server.

    Args:
        cluster: Left unchanged.
        site: Site of the standbys, by its name in the tables; None: each is beside its global
            server, with the same connections.

    Returns:
        A copy with standbys.

    Raises:
        ConfigError: There is no such site.
    """
    hosts = {node.party: node.name for node in reversed(cluster.nodes)}  # the first of each site
    if site is not None and site not in hosts:
        remedy = f"there is no such site; {near(site, list(hosts))}"
        raise ConfigError("faults.standby", site, remedy)
    graph = cluster.graph.copy()
    for number, server in enumerate(cluster.global_servers):
        neighbour = server.name if site is None else hosts[site]
        party = graph.nodes[neighbour]["party"]
        _add_beside(graph, neighbour, _free_name(graph, f"{party}/standby{number}"), "standby")
    return _cluster(graph)


def _directed(graph: nx.Graph) -> nx.DiGraph:
    """Return a plain directed copy with string names; an undirected edge becomes two edges."""
    for name, count in Counter(str(node) for node in graph).items():
        if count > 1:
            refuse(f"two nodes are called {name}")
    directed = nx.DiGraph(**graph.graph)
    directed.add_nodes_from((str(node), dict(data)) for node, data in graph.nodes(data=True))
    for source, target, data in graph.edges(data=True):
        ways = [(str(source), str(target))]
        if not graph.is_directed():
            ways.append((str(target), str(source)))
        for way in ways:
            if way[0] == way[1]:
                refuse(f"node {way[0]} has an edge to itself")
            if directed.has_edge(*way):
                refuse(f"there are two edges {way[0]} -> {way[1]}")
            directed.add_edge(*way, **data)
    return directed


def _check_node(node: str, data: dict[str, Any]) -> None:
    spelt(f"node {node}", data, NODE_ATTRIBUTES)
    check_place(f"node {node}", data)
    kind = data.setdefault("kind", "router")
    if kind not in KINDS:
        refuse(f"node {node} has kind {kind}; {near(kind, KINDS)}")
    if "transit" in data:
        if data["transit"] not in (True, False):
            refuse(f"transit of node {node} is {data['transit']!r}; it must be true or false")
        data["transit"] = bool(data["transit"])
    if data.get("party") not in (None, ""):
        data["party"] = str(data["party"])
    elif kind != "router":
        refuse(f"{kind} {node} has no party")
    if kind == "worker":
        data["speed"] = worker_speed(data.get("speed", 1.0), f"speed of node {node}")


def _check_edge(edge: str, data: dict[str, Any], folder: Path) -> None:
    spelt(edge, data, EDGE_ATTRIBUTES)
    check_changes(edge, data, folder)
    if "bandwidth_mbps" in data:
        data["bandwidth_mbps"] = bandwidth(data["bandwidth_mbps"], f"bandwidth_mbps of {edge}")
        if data["bandwidth_mbps"] == math.inf:
            del data["bandwidth_mbps"]
            data["unlimited"] = True
        elif data.pop("unlimited", False):
            refuse(f"{edge} is unlimited and has bandwidth_mbps too")
    elif data.get("unlimited") not in (True, 1):
        refuse(f"{edge} has no bandwidth_mbps")
    data["delay_ms"] = milliseconds(data.get("delay_ms", 0.0), f"delay_ms of {edge}")
    data["loss"] = probability(data.get("loss", 0.0), f"loss of {edge}")
    for name in ("jitter_ms", "queue_ms"):
        if name in data:
            data[name] = milliseconds(data[name], f"{name} of {edge}")


def _check_paths(graph: nx.DiGraph) -> None:
    """Check explicit routes; each also holds in reverse unless the reverse is given as well."""
    given = graph.graph.pop("paths", None) or []
    if not isinstance(given, list) or not all(isinstance(way, list) for way in given):
        refuse("paths must be a list of lists of nodes")
    ways = [[str(node) for node in way] for way in given]
    ends = [(way[0], way[-1]) for way in ways if way]
    for way in ways:
        if len(way) < 2 or passes_twice(way) or ends.count((way[0], way[-1])) > 1:
            refuse(
                f"paths: {' - '.join(way)} must join two different nodes and be the only such path"
            )
        for edge in pairwise(way):
            if not graph.has_edge(*edge):
                refuse(f"paths: there is no edge {edge[0]} -> {edge[1]}")
    backwards = [way[::-1] for way in ways if (way[-1], way[0]) not in ends]
    ways += [way for way in backwards if all(graph.has_edge(*edge) for edge in pairwise(way))]
    if ways:
        graph.graph["paths"] = ways


def _check_routing(graph: nx.DiGraph) -> None:
    """Check the rule of routing; the default one is not stored."""
    rule = graph.graph.pop("routing", None) or SHORTEST
    most = rule.get(WIDEST_OF) if isinstance(rule, Mapping) and len(rule) == 1 else None
    if isinstance(most, int) and not isinstance(most, bool) and 1 <= most <= MOST_WAYS:
        graph.graph["routing"] = {WIDEST_OF: most}
    elif rule == WIDEST:
        graph.graph["routing"] = WIDEST
    elif rule != SHORTEST:
        refuse(
            f"routing must be {SHORTEST}, {WIDEST} or {{{WIDEST_OF}: K}} with K from 1 to "
            f"{MOST_WAYS}, not {rule}"
        )


def _hosts(graph: nx.DiGraph) -> dict[tuple[str, str], list[str]]:
    """Return the hosts by kind and party, in file order."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node, data in graph.nodes(data=True):
        if data["kind"] != "router":
            found[data["kind"], data["party"]].append(node)
    return found


def _of_kind(graph: nx.DiGraph, kind: str) -> list[str]:
    return [node for node, data in graph.nodes(data=True) if data["kind"] == kind]


def _parties(graph: nx.DiGraph) -> list[str]:
    """Return the names of the training parties in file order."""
    kinds = ("worker", "server")
    return list(dict.fromkeys(d["party"] for _, d in graph.nodes(data=True) if d["kind"] in kinds))


def _free_name(graph: nx.DiGraph, name: str) -> str:
    """Return `name` with as many underscores as make it unique."""
    while name in graph:
        name += "_"
    return name


def _add_beside(graph: nx.DiGraph, neighbour: str, name: str, kind: str) -> None:
    """Add a node of `kind` with copies of all edges of `neighbour`."""
    graph.add_node(name, kind=kind, party=graph.nodes[neighbour]["party"])
    for source, _, data in list(graph.in_edges(neighbour, data=True)):
        graph.add_edge(source, name, **data)
    for _, target, data in list(graph.out_edges(neighbour, data=True)):
        graph.add_edge(name, target, **data)


def _add_scheduler(graph: nx.DiGraph) -> None:
    global_servers = _of_kind(graph, "global_server")
    if not global_servers:
        refuse("there is no global server")
    schedulers = _of_kind(graph, "scheduler")
    if len(schedulers) > 1:
        refuse(f"there are several schedulers: {', '.join(schedulers)}")
    if not schedulers:
        first = global_servers[0]
        name = _free_name(graph, f"{graph.nodes[first]['party']}/scheduler")
        _add_beside(graph, first, name, "scheduler")


def _add_server(graph: nx.DiGraph, party: str, servers: list[str], workers: list[str]) -> None:
    """Add a local server to a party that has workers but no server."""
    if not workers:
        refuse(f"party {party} has no worker")
    if len(servers) > 1:
        refuse(f"party {party} has several local servers: {', '.join(servers)}")
    if servers:
        return
    around = [(dict(graph.pred[worker]), dict(graph.succ[worker])) for worker in workers]
    routers = {node for neighbours in around[0] for node in neighbours}
    alike = all(edges == around[0] for edges in around)
    if not alike or len(routers) != 1 or graph.nodes[next(iter(routers))]["kind"] != "router":
        refuse(
            f"party {party} has no local server, and its workers do not share one router "
            f"beside which it would go; add a node of kind server"
        )
    _add_beside(graph, workers[0], _free_name(graph, f"{party}/server"), "server")


def _cluster(graph: nx.DiGraph) -> Cluster:
    nodes: list[NodeSpec] = []

    def spec(name: str) -> NodeSpec:
        data = graph.nodes[name]
        speed = data.get("speed", 1.0) if data["kind"] == "worker" else 1.0
        nodes.append(NodeSpec(len(nodes), name, data["kind"], data["party"], speed))
        return nodes[-1]

    for kind in ("scheduler", "global_server"):
        for name in _of_kind(graph, kind):
            spec(name)
    parties = []
    hosts = _hosts(graph)
    for party in _parties(graph):
        server = spec(hosts["server", party][0])
        workers = tuple(spec(name) for name in hosts["worker", party])
        parties.append(Party(party, server, workers))
    if not parties:
        refuse("there is no party; at least one worker is needed")
    standbys = _of_kind(graph, "standby")
    if standbys and len(standbys) != len(_of_kind(graph, "global_server")):
        refuse(f"there are {len(standbys)} standbys; each global server needs one, or none has any")
    for name in standbys:
        spec(name)
    return Cluster(graph.graph["name"], graph, tuple(nodes), tuple(parties))
