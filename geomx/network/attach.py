"""Placement of hosts on a graph of routers, such as a file of an Internet map.

`attach` adds the global servers and the scheduler at one router, and a local server with workers at
some others; a LAN joins each host to its router.

By default the global server stands at the node with the smallest mean delay to the others, and two
workers train at each of four distant nodes: each next node is the one with the largest delay from
the centre and from the nodes chosen so far (farthest-point selection).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import networkx as nx

from geomx.cluster import Role
from geomx.errors import near
from geomx.network.hosts import add_central, add_party, lan_edge
from geomx.network.validators import count, known_keys, refuse

ATTACH: dict[str, Any] = {
    "central": None,  # the node of the global servers; None: the one with the smallest mean delay
    "global_servers": 1,
    "parties": None,  # number of training sites, far apart; or "all" nodes; or a list of nodes
    "workers": 2,  # per party
    "speed": 1.0,  # of each worker, or a list
    "lan": {},
}
"""Accepted options and their defaults."""

PARTIES = 4
"""The number of training sites by default; fewer where the graph has fewer nodes."""

HOSTS = get_args(Role)


def is_bare(graph: nx.Graph) -> bool:
    """Return whether no node of `graph` is a host; a kind that does not exist is refused later."""
    return not any(data.get("kind") in HOSTS for _, data in graph.nodes(data=True))


def attach(graph: nx.DiGraph, options: Mapping[str, Any]) -> None:
    """Add hosts to the routers of `graph`, in place.

    Args:
        graph: Routers; every edge has a ``delay_ms``.
        options: Keys of `ATTACH`; missing keys and None take its defaults.

    Raises:
        NetworkError: An option is invalid, or names a node that does not exist.
    """
    known_keys(options, tuple(ATTACH), "attach")
    chosen = ATTACH | {key: value for key, value in options.items() if value is not None}
    if len(graph) < 2:
        refuse("the graph has no link between two nodes")
    lan = lan_edge(chosen["lan"], "attach.lan")
    delays = dict(nx.all_pairs_dijkstra_path_length(graph, weight=_delay_ms))
    central = chosen["central"]
    if central is None:
        central = min(graph, key=lambda node: sum(delays[node].values()))
    central = _known(graph, central, "attach.central")
    parties = _parties(graph, chosen["parties"], central, delays)
    for site in dict.fromkeys((central, *parties)):
        graph.nodes[site]["party"] = site
    add_central(graph, central, chosen, "attach", lan)
    for site in parties:
        add_party(graph, site, chosen, "attach", lan)


def _delay_ms(source: str, target: str, data: Mapping[str, Any]) -> float:
    return float(data["delay_ms"])


def _parties(
    graph: nx.DiGraph, wanted: Any, central: str, delays: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """Return the nodes that train, in the order of `graph`, or in the order given for a list."""
    nodes = list(graph)
    if wanted == "all":
        return nodes
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        named = [_known(graph, node, "attach.parties") for node in wanted]
        if not named or len(set(named)) < len(named):
            refuse(f"attach.parties must be different nodes, one or more, not {wanted!r}")
        return named
    if isinstance(wanted, str):
        refuse(f"attach.parties is {wanted!r}; it must be a number, all, or a list of nodes")
    left = [node for node in nodes if node != central]
    number = PARTIES if wanted is None else count(wanted, "attach.parties", 1)
    if wanted is not None and number > len(left):
        remedy = f"it must be at most {len(left)}, the nodes beside the central one; or all"
        refuse(f"attach.parties is {number}; {remedy}")
    chosen: list[str] = []
    while left and len(chosen) < number:
        taken = [central, *chosen]
        chosen.append(max(left, key=lambda node: min(delays[one][node] for one in taken)))
        left.remove(chosen[-1])
    return [node for node in nodes if node in chosen]


def _known(graph: nx.DiGraph, node: Any, what: str) -> str:
    if str(node) not in graph:
        refuse(f"{what}: there is no node {node}; {near(str(node), list(graph))}")
    return str(node)
