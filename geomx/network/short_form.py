"""The short form of network files: sites with one access link each, and the links between them.

It is the form to write by hand, and it is expanded to the long form, the only one that the rest of
the code knows. A site ``s`` becomes a router ``s``, joined to its hosts by LAN edges; a router
``s/wan``, the far end of its access link, joined to ``s`` by the uplink and the downlink; and
between every two far ends an edge with delay and loss, unlimited unless ``mbps`` is given. No route
passes through a site that is not one of its ends.

The number of edges between far ends grows with the square of the number of sites. With more than
`MESH_SITES` sites and identical, unlimited edges, every far end is joined to a router `MIDDLE`
instead, by an edge with that delay, loss and jitter, and by one without any back from it. Traffic
does not interact on an unlimited edge, so a run gives the same results over either form.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import networkx as nx

from geomx.errors import near
from geomx.network.hosts import add_central, add_party, lan_edge
from geomx.network.validators import (
    bandwidth,
    count,
    known_keys,
    milliseconds,
    probability,
    refuse,
    required,
    table,
)

TOP = (
    "name", "central", "parties", "delay_ms", "loss", "jitter_ms", "queue_ms", "mbps", "lan",
    "redraw", "outages", "steps", "sharing",
)  # fmt: skip
MESH_SITES = 32
"""Up to this number of sites, every two of them are joined by an edge of their own."""

MIDDLE = "/wan"
"""The router where the far ends of access links meet; no site can have this name."""

_LINK = (
    "uplink_mbps", "downlink_mbps", "uplink_trace", "downlink_trace", "redraw",
)  # fmt: skip
_CENTRAL = ("name", "global_servers", "workers", "speed", "latitude", "longitude", *_LINK)
_PARTY = ("workers", "speed", "latitude", "longitude", *_LINK)


def expand(content: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> nx.DiGraph:
    """Expand the short form.

    Args:
        content: The short form.
        beside: Options given outside the file; some of them may concern single links between sites.

    Returns:
        The long form.

    Raises:
        NetworkError: A key is missing, unknown or invalid.
    """
    known_keys(content, TOP, "")
    if content.get("central") is None:
        refuse("there is no global server: central is missing")
    parties = table(content.get("parties") or {}, "parties")
    if not parties:
        refuse("there is no party; parties must name at least one site that trains")
    central = table(content["central"], "central")
    known_keys(central, _CENTRAL, "central")
    hub = str("hub" if central.get("name") is None else site_name(central["name"], "central.name"))
    cable = lan_edge(content.get("lan"), "lan")
    graph = nx.DiGraph()
    for key in ("name", "redraw", "outages", "steps", "sharing"):
        if content.get(key):
            graph.graph[key] = content[key]

    _site(graph, hub, central, "central")
    add_central(graph, hub, central, "central", cable)
    if count(central.get("workers", 0), "central.workers", 0):
        add_party(graph, hub, central, "central", cable)
    sites = {hub: None}  # in order
    for key, value in parties.items():
        site, where = str(site_name(key, "a party")), f"parties.{key}"
        if "/" in site or not site:
            refuse(f"party {site!r}: a name must not be empty or hold a slash")
        if site in sites:
            refuse(f"two sites are called {site}")
        sites[site] = None
        party = table(value, where)
        known_keys(party, _PARTY, where)
        _site(graph, site, party, where)
        add_party(graph, site, party, where, cable)
    pairs = _means_pairs(content) or _means_pairs(beside or {})
    if len(sites) > MESH_SITES and not pairs:
        _meet(graph, sites, content)
    else:
        _join(graph, sites, content)
    return graph


def site_name(given: Any, what: str) -> Any:
    """Refuse names that YAML reads as something else, such as no, which is false."""
    if given is None or isinstance(given, bool | float):
        refuse(f"{what} is called {given!r}; YAML reads the name so unless it is in quotes")
    return given


def _site(graph: nx.DiGraph, site: str, given: Mapping[str, Any], where: str) -> None:
    """Add the router of a site and its access link."""
    far = f"{site}/wan"
    place = {key: given[key] for key in ("latitude", "longitude") if given.get(key) is not None}
    graph.add_node(site, kind="router", party=site, transit=False, **place)
    graph.add_node(far, kind="router", party=site, transit=False)
    for way, edge in (("uplink", (site, far)), ("downlink", (far, site))):
        data: dict[str, Any] = {"delay_ms": 0.0, "loss": 0.0}
        changes = {"trace": given.get(f"{way}_trace"), "redraw": given.get("redraw")}
        data |= {name: value for name, value in changes.items() if value is not None}
        key = f"{way}_mbps"
        if given.get(key) is not None:
            data["bandwidth_mbps"] = bandwidth(given[key], f"{where}.{key}")
        elif not changes.keys() & data.keys():
            refuse(f"{where}.{key} is missing")
        graph.add_edge(*edge, **data)


def _means_pairs(said: Mapping[str, Any]) -> bool:
    """Return whether an option concerns the link between two particular sites."""
    tables = any(isinstance(said.get(key), Mapping) for key in ("delay_ms", "loss", "jitter_ms"))
    rules: list[Any] = []
    for name in ("redraw", "outages"):
        given = said.get(name)
        rules += given if isinstance(given, list) else [given]
    named = any(
        rule.get(key)
        for rule in rules
        for key in ("links", "link", "partition")
        if isinstance(rule, Mapping)
    )
    return bool(tables or named or said.get("mbps") or said.get("paths"))


def _meet(graph: nx.DiGraph, sites: Collection[str], content: Mapping[str, Any]) -> None:
    """Join all sites through `MIDDLE`, equivalent to identical edges between every two of them."""
    delay_ms = milliseconds(required(content, "delay_ms", ""), "delay_ms")
    edge = {"delay_ms": delay_ms, "loss": probability(content.get("loss") or 0.0, "loss")}
    if jitter_ms := milliseconds(content.get("jitter_ms") or 0.0, "jitter_ms"):
        edge["jitter_ms"] = jitter_ms
    graph.add_node(MIDDLE, kind="router")
    for site in sites:
        graph.add_edge(f"{site}/wan", MIDDLE, unlimited=True, **edge)
        graph.add_edge(MIDDLE, f"{site}/wan", unlimited=True, delay_ms=0.0, loss=0.0)
    _hold(graph, sites, content)


def _join(graph: nx.DiGraph, sites: Collection[str], content: Mapping[str, Any]) -> None:
    """Join every two sites by an edge with delay, loss and perhaps a bandwidth."""
    if content.get("delay_ms") is None:
        refuse("delay_ms is missing")
    delay = _between(content["delay_ms"], sites, "delay_ms", milliseconds, None)
    loss = _between(content.get("loss") or 0.0, sites, "loss", probability, 0.0)
    jitter = _between(content.get("jitter_ms") or 0.0, sites, "jitter_ms", milliseconds, 0.0)
    mbps = _between(content.get("mbps") or {}, sites, "mbps", bandwidth, 0.0)
    for pair, delay_ms in delay.items():
        width = {"bandwidth_mbps": mbps[pair]} if mbps[pair] else {"unlimited": True}
        edge = (f"{pair[0]}/wan", f"{pair[1]}/wan")
        graph.add_edge(*edge, **width, delay_ms=delay_ms, loss=loss[pair])
        if jitter[pair]:
            graph.edges[edge]["jitter_ms"] = jitter[pair]
    _hold(graph, sites, content)


def _hold(graph: nx.DiGraph, sites: Collection[str], content: Mapping[str, Any]) -> None:
    """Set the queueing limit of datagrams, `queue_ms`, on all access links."""
    if content.get("queue_ms") is not None:
        queue_ms = milliseconds(content["queue_ms"], "queue_ms")
        for site in sites:
            for edge in ((site, f"{site}/wan"), (f"{site}/wan", site)):
                graph.edges[edge]["queue_ms"] = queue_ms


def _between(
    value: Any,
    sites: Collection[str],
    key: str,
    check: Callable[[Any, str], float],
    missing: float | None,
) -> dict[tuple[str, str], float]:
    """Return a value for every ordered pair of sites, from one number or a table of tables."""
    pairs = [(source, target) for source in sites for target in sites if source != target]
    if not isinstance(value, Mapping):
        figure = check(value, key)
        return dict.fromkeys(pairs, figure)
    given: dict[tuple[str, str], float] = {}
    for source, row in value.items():
        for target, figure in table(row, f"{key}.{source}").items():
            for site in (source, target):
                if str(site) not in sites:
                    refuse(f"{key}: there is no site {site}; {near(str(site), list(sites))}")
            if source == target:
                refuse(f"{key}.{source}.{target}: a site has no link to itself")
            given[str(source), str(target)] = check(figure, f"{key}.{source}.{target}")
    result = {}
    for source, target in pairs:
        known = given.get((source, target), given.get((target, source), missing))
        if known is None:
            refuse(f"{key} between {source} and {target} is missing")
        result[source, target] = known
    return result
