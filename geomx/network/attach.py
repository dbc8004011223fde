"""Who trains where, on a graph that says only how places are joined.

A file of an Internet map has no workers. `attach` puts them there: a global server (and the
scheduler) in one place, a local server and workers in some others, each joined to the router of its
place by a LAN.

Without a word, the global server stands at the node from which the others are closest on average,
and two workers train in each of four places that are far apart: again and again the one farthest by
delay from the centre and from those chosen so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx

from geomx.network.hosts import add_central, add_party, lan_edge
from geomx.network.validators import count, known_keys, refuse
from geomx.options.parsing import near

ATTACH: dict[str, Any] = {
    "central": None,  # the node of the global servers
    "global_servers": 1,
    "parties": 4,  # how many places train, far apart; or "all" of them; or a list of nodes
    "workers": 2,  # in each of them
    "speed": 1.0,  # of each worker, or a list
    "lan": {},
}
"""What may be given, and what holds if it is not."""


def is_bare(graph: nx.Graph) -> bool:
    """Whether a graph consists of routers alone."""
    return all(data.get("kind", "router") == "router" for _, data in graph.nodes(data=True))


def attach(graph: nx.DiGraph, options: Mapping[str, Any]) -> None:
    """Put hosts at routers of `graph`, in place.

    Args:
        graph: Every edge has its ``delay_ms``.
        options: As `ATTACH`.

    Raises:
        NetworkError: An option makes no sense, or names a node that is not there.
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
    nodes = list(graph)
    if wanted == "all":
        return nodes
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        named = [_known(graph, node, "attach.parties") for node in wanted]
        if not named or len(set(named)) < len(named):
            refuse(f"attach.parties must be different nodes, one or more, not {wanted!r}")
        return named
    number = count(wanted, "attach.parties", 1) if not isinstance(wanted, str) else None
    if number is None:
        refuse(f"attach.parties is {wanted!r}; it must be a number, all, or a list of nodes")
    chosen: list[str] = []
    left = [node for node in nodes if node != central]
    while left and len(chosen) < number:
        taken = [central, *chosen]
        chosen.append(max(left, key=lambda node: min(delays[one][node] for one in taken)))
        left.remove(chosen[-1])
    return [node for node in nodes if node in chosen]


def _known(graph: nx.DiGraph, node: Any, what: str) -> str:
    if str(node) not in graph:
        refuse(f"{what}: there is no node {node}; {near(str(node), list(graph))}")
    return str(node)
