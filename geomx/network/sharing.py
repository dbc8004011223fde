"""How the flows of sites share an edge: the option ``sharing`` of a network file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import networkx as nx

from geomx.cluster import Cluster, NodeSpec
from geomx.errors import near
from geomx.network.validators import positive, refuse

SHARING = "sharing"
MAXMIN, FIFO, WEIGHTED, STRICT = "maxmin", "fifo", "weighted", "strict"
MOST_WEIGHT = 1e6


class Share(NamedTuple):
    """The share that the connections of a link have of an edge.

    Attributes:
        weight: Relative to others of the same class.
        rank: Class; lower ones go first.
        datagrams: Class of best-effort datagrams, behind those of all sites.
    """

    weight: float = 1.0
    rank: int = 0
    datagrams: int = 1


EQUAL = Share()
"""The share of every link where the network has no rule."""


def check_sharing(graph: nx.DiGraph) -> None:
    """Check the rule of a network, which keeps none where it has none.

    Raises:
        NetworkError: The rule is invalid, or names a site that does not exist.
    """
    rule = graph.graph.pop(SHARING, None)
    if rule is None:
        return
    if rule in (MAXMIN, FIFO):
        graph.graph[SHARING] = rule
        return
    sites = {str(data["party"]) for _, data in graph.nodes(data=True) if data.get("party")}
    one = rule if isinstance(rule, Mapping) and len(rule) == 1 else {}
    weights, order = one.get(WEIGHTED), one.get(STRICT)
    if isinstance(weights, Mapping) and weights:
        checked: dict[str, Any] = {}
        for site, weight in weights.items():
            where = f"{SHARING}.{WEIGHTED}.{site}"
            checked[_known(site, sites, where)] = positive(weight, where)
            if checked[str(site)] > MOST_WEIGHT:
                refuse(f"{where} is {weight}; it must be at most {MOST_WEIGHT:,.0f}")
        graph.graph[SHARING] = {WEIGHTED: checked}
    elif isinstance(order, list) and order:
        listed = [_known(site, sites, f"{SHARING}.{STRICT}") for site in order]
        if len(set(listed)) < len(listed):
            refuse(f"{SHARING}.{STRICT} names a site twice")
        graph.graph[SHARING] = {STRICT: listed}
    else:
        refuse(
            f"{SHARING} must be {MAXMIN}, {FIFO}, {{{WEIGHTED}: {{SITE: WEIGHT}}}} or "
            f"{{{STRICT}: [SITE, SITE]}}, not {rule}"
        )


def _known(site: Any, sites: set[str], where: str) -> str:
    if str(site) not in sites:
        refuse(f"{where}: there is no site {site}; {near(str(site), sorted(sites))}")
    return str(site)


def served_in_order(cluster: Cluster, emulate: str) -> bool:
    """Return whether edges are FIFO queues, which connections share by their rates of sending.

    Args:
        cluster: The nodes and their network.
        emulate: What stands for the network in live runs. The shaper gives equal shares; the
            queues of kernels and routers serve packets in the order of arrival.

    Returns:
        What the network says, or else whether the emulation has such queues.
    """
    rule = cluster.graph.graph.get(SHARING)
    return rule == FIFO if rule is not None else emulate != "shaper"


def share_of(cluster: Cluster, source: NodeSpec, target: NodeSpec) -> Share:
    """Return the share of a link.

    Args:
        cluster: The nodes and their network.
        source: The sender.
        target: The receiver.

    Returns:
        That of the site whose training it serves: the sender's, or the receiver's if the sender is
        central.
    """
    rule = cluster.graph.graph.get(SHARING)
    if not isinstance(rule, Mapping):
        return EQUAL
    central = source.role not in ("worker", "server")
    site = target.party if central else source.party
    if WEIGHTED in rule:
        return Share(weight=rule[WEIGHTED].get(site, 1.0))
    order = rule[STRICT]
    rank = order.index(site) if site in order else len(order)
    return Share(rank=rank, datagrams=len(order) + 1)


def last_class(cluster: Cluster) -> int:
    """Return the class of the last of a training's own flows, datagrams included."""
    rule = cluster.graph.graph.get(SHARING)
    ordered = isinstance(rule, Mapping) and STRICT in rule
    return len(rule[STRICT]) + 1 if ordered else EQUAL.datagrams
