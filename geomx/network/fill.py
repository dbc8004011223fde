"""Completion of published router graphs: missing attributes are derived, or the link is refused.

The Internet Topology Zoo, TopoHub and similar collections say which cities are joined, seldom how
fast, and never with what delay. This module turns such a graph into the long form:

* Nodes are named by their ``label`` or ``name``; the node's id is appended to names that are not
  unique. Coordinates come from ``Latitude`` and ``Longitude`` (in any spelling) or ``pos``; a node
  without coordinates takes the midpoint of its neighbours.
* A missing bandwidth is the zoo's ``LinkSpeedRaw`` (bit/s), else ``fill.mbps``; otherwise the link
  is refused by name, since a map gives no basis for a guess.
* A missing delay follows from the length of the link: ``dist`` or ``length_km`` if the file has it,
  else the great circle between its ends; times `DETOUR`, over the speed of light in fibre. Without
  a length it is ``fill.delay_ms``; otherwise the link is refused by name.
* A directed link without a counterpart is used in both directions: graph editors save lines as
  directed edges, and no such map means a city that can only be left.
* Parallel links are merged: the sum of their bandwidths, the shortest delay, the largest loss and
  jitter, the shortest queue. Self-loops are dropped, and of a graph that is not connected only the
  largest component is kept.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import networkx as nx

from geomx.network.validators import (
    bandwidth,
    known_keys,
    milliseconds,
    not_negative,
    number,
    positive,
    probability,
    refuse,
    spelt,
)

FIBRE_KM_PER_MS = 299.792458 / 1.468
"""Light in standard single-mode fibre (group index 1.468 at 1550 nm, ITU-T G.652 fibres)."""

DETOUR = 1.7
"""Delay over that of a fibre along the great circle. The median of the figures that IBM Cloud
publishes for its regions (VPC network latency, 30-day means of 18 July to 16 August 2026, 156
ordered pairs of 13 cities; the quartiles are 1.5 and 2.0)."""

FILL: dict[str, Any] = {"mbps": None, "delay_ms": None, "detour": DETOUR}
"""Accepted options and their defaults."""

EARTH_KM = 6371.0

_PLACES = (("latitude", "longitude"), ("lat", "lon"), ("lat", "lng"))
_LENGTHS = ("length_km", "dist")
_KEPT_OF_NODES = ("kind", "transit")

Place = tuple[float, float]


def complete(graph: nx.Graph, fill: Mapping[str, Any], known: tuple[str, ...]) -> nx.DiGraph:
    """Return a directed copy of a graph of routers in which every edge has a bandwidth and a delay.

    Args:
        graph: Any networkx graph without hosts.
        fill: Keys of `FILL`; missing keys and None take its defaults.
        known: Attributes of edges in the long form; others are dropped.

    Returns:
        The completed graph, its nodes renamed to unique labels.

    Raises:
        NetworkError: A link lacks a value that no rule can supply; the message names it.
    """
    known_keys(fill, tuple(FILL), "fill")
    given = {key: value for key, value in fill.items() if value is not None}
    defaults = FILL | given
    detour = positive(defaults["detour"], "fill.detour")
    names = _names(graph)
    places = _places(graph)
    result = nx.DiGraph()
    about = {
        key: value for key, value in graph.graph.items() if isinstance(value, str | int | float)
    }
    result.graph |= about | {
        key: graph.graph.get(key)
        for key in ("redraw", "outages", "paths", "routing", "steps", "sharing")
    }
    for node, data in graph.nodes(data=True):
        kept = {key: data[key] for key in _KEPT_OF_NODES if key in data}
        if node in places:
            kept |= dict(zip(("latitude", "longitude"), places[node], strict=True))
        result.add_node(names[node], **kept)
    for source, target, data in graph.edges(data=True):
        if source == target:
            continue
        what = f"link {names[source]} - {names[target]}"
        spelt(what, data, known)
        edge = {key: data[key] for key in known if key in data}
        if not {"bandwidth_mbps", "unlimited", "trace", "redraw"} & edge.keys():
            edge["bandwidth_mbps"] = _bandwidth(data, what, defaults["mbps"])
        if "delay_ms" in edge:
            edge["delay_ms"] = milliseconds(edge["delay_ms"], f"delay_ms of {what}")
        else:
            ends = places.get(source), places.get(target)
            edge["delay_ms"] = _delay(data, what, ends, detour, defaults["delay_ms"])
        _add(result, names[source], names[target], edge)
        if not (graph.is_directed() and graph.has_edge(target, source)):
            _add(result, names[target], names[source], edge)
    return _largest_part(result)


def great_circle_km(one: Place, other: Place) -> float:
    """Return the distance between two places on a sphere.

    Args:
        one: Latitude and longitude, degrees.
        other: Latitude and longitude, degrees.

    Returns:
        Kilometres.
    """
    lat1, lon1, lat2, lon2 = (math.radians(angle) for angle in (*one, *other))
    chord = (
        math.sin((lat2 - lat1) / 2) ** 2
        + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    )
    return 2 * EARTH_KM * math.asin(math.sqrt(min(chord, 1.0)))


def _names(graph: nx.Graph) -> dict[Any, str]:
    """Return unique node names without slashes, which separate sites from hosts."""
    given = {
        node: " ".join(str(data.get("label") or data.get("name") or node).replace("/", "-").split())
        or f"node {number}"
        for number, (node, data) in enumerate(graph.nodes(data=True))
    }
    often = Counter(given.values())
    taken = {name for name, times in often.items() if times == 1}
    names = {}
    for node, label in given.items():
        names[node] = label
        if often[label] > 1:
            names[node] = f"{label} {node}".replace("/", "-")
            while names[node] in taken:
                names[node] += "_"
            taken.add(names[node])
    return names


def _places(graph: nx.Graph) -> dict[Any, Place]:
    """Return latitude and longitude by node, where given or derived from neighbours."""
    places = {}
    for node, data in graph.nodes(data=True):
        place = _place(data, f"node {node}")
        if place is not None:
            places[node] = place
    while True:
        found = {}
        for node in graph:
            near = [places[other] for other in nx.all_neighbors(graph, node) if other in places]
            if node not in places and near:
                found[node] = _middle(near)
        if not found:
            return places
        places |= found


def _place(data: Mapping[str, Any], what: str) -> Place | None:
    lower = {str(key).lower(): value for key, value in data.items()}
    for latitude, longitude in _PLACES:
        if lower.get(latitude) is not None and lower.get(longitude) is not None:
            return (
                _degrees(lower[latitude], 90, f"{latitude} of {what}"),
                _degrees(lower[longitude], 360, f"{longitude} of {what}"),
            )
    pos = lower.get("pos")
    if isinstance(pos, list | tuple) and len(pos) == 2:
        return _degrees(pos[1], 90, f"pos of {what}"), _degrees(pos[0], 360, f"pos of {what}")
    return None


def _degrees(value: Any, most: int, what: str) -> float:
    """Check a latitude or a longitude; some files count longitudes from 0 to 360."""
    result = number(value, what)
    if not -most <= result <= most:
        refuse(f"{what} is {value}; it must be in degrees, from -{most} to {most}")
    return result


def _middle(places: list[Place]) -> Place:
    """Return the midpoint of places on the sphere."""
    x = y = z = 0.0
    for latitude, longitude in places:
        lat, lon = math.radians(latitude), math.radians(longitude)
        x += math.cos(lat) * math.cos(lon)
        y += math.cos(lat) * math.sin(lon)
        z += math.sin(lat)
    return math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x))


def _bandwidth(data: Mapping[str, Any], what: str, otherwise: Any) -> float:
    raw = data.get("LinkSpeedRaw")
    if raw is not None and number(raw, f"LinkSpeedRaw of {what}") > 0:
        return bandwidth(float(raw) / 1e6, f"LinkSpeedRaw of {what}, in Mbit/s,")
    if otherwise is None:
        refuse(f"{what} has no bandwidth_mbps; set one for such links: network.fill.mbps=")
    return bandwidth(otherwise, "fill.mbps")


def _delay(
    data: Mapping[str, Any],
    what: str,
    ends: tuple[Place | None, Place | None],
    detour: float,
    otherwise: Any,
) -> float:
    for key in _LENGTHS:
        if data.get(key) is not None:
            return not_negative(data[key], f"{key} of {what}") * detour / FIBRE_KM_PER_MS
    one, other = ends
    if one is not None and other is not None:
        return great_circle_km(one, other) * detour / FIBRE_KM_PER_MS
    if otherwise is None:
        refuse(
            f"{what} has neither delay_ms nor a length, and its ends have no coordinates; set "
            f"a delay for such links: network.fill.delay_ms="
        )
    return milliseconds(otherwise, "fill.delay_ms")


def _add(graph: nx.DiGraph, source: str, target: str, data: Mapping[str, Any]) -> None:
    """Add an edge, or merge it into an existing one."""
    if not graph.has_edge(source, target):
        graph.add_edge(source, target, **data)
        return
    there, what = graph.edges[source, target], f"link {source} - {target}"
    for key in ("trace", "redraw", "outages"):
        if there.get(key) or data.get(key):
            refuse(f"{what} is listed twice and has {key}; merge the two links into one")
    if "bandwidth_mbps" in there and "bandwidth_mbps" in data:
        widths = [
            bandwidth(edge["bandwidth_mbps"], f"bandwidth_mbps of {what}") for edge in (there, data)
        ]
        there["bandwidth_mbps"] = sum(widths)
    else:
        there.pop("bandwidth_mbps", None)
        there["unlimited"] = True
    delays = (milliseconds(edge["delay_ms"], f"delay_ms of {what}") for edge in (there, data))
    there["delay_ms"] = min(delays)
    losses = (probability(edge.get("loss", 0.0), f"loss of {what}") for edge in (there, data))
    there["loss"] = max(losses)
    for key, of_two in (("jitter_ms", max), ("queue_ms", min)):
        times = [
            milliseconds(edge[key], f"{key} of {what}") for edge in (there, data) if key in edge
        ]
        if times:
            there[key] = of_two(times)


def _largest_part(graph: nx.DiGraph) -> nx.DiGraph:
    parts = list(nx.strongly_connected_components(graph))
    if not parts:
        refuse("has no nodes")
    largest = max(parts, key=len)
    return graph.subgraph([node for node in graph if node in largest]).copy()
