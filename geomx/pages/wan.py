"""A drawing of the WAN: sites, traffic between them, and the utilisation of the path.

If all sites have coordinates they are drawn on a map, otherwise as a star or by a spring layout.

The utilisation of a flow is that of its busiest link (`geomx.pages.utilisation`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from geomx.pages.markup import Markup, join, svg, tag
from geomx.pages.utilisation import Use, Uses, site_of
from geomx.results.files import Row
from geomx.terminal import units

_WIDTH, _HEIGHT, _FLAT_HEIGHT = 1000.0, 430.0, 150.0
_MARGIN_X, _MARGIN_TOP, _MARGIN_BOTTOM = 110.0, 52.0, 64.0
_RADIUS = 26.0
_MOST_LABELS = 8
MOST_SITES = 100
_GRID = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
LEVELS = ((0.2, "below 20 %"), (0.5, "20 to 50 %"), (0.8, "50 to 80 %"), (math.inf, "over 80 %"))

Point = tuple[float, float]


@dataclass
class Flow:
    """All traffic from one site to another; `use` is that of its busiest link."""

    source: str
    target: str
    bytes: int = 0
    messages: int = 0
    use: Use = field(default_factory=Use)


def drawing(
    links: Sequence[Row],
    graph: nx.Graph | None,
    seconds: float | None,
    edges: Sequence[Row] = (),
) -> Markup:
    """Draw sites and flows.

    Args:
        links: See `site_flows`.
        graph: See `site_flows`.
        seconds: See `site_flows`.
        edges: See `site_flows`.

    Returns:
        An ``<svg>`` element and notes; empty if nothing crossed the WAN.
    """
    flows = site_flows(links, graph, seconds, edges)
    if not flows:
        return Markup("")
    kinds = _hosts_by_site(graph)
    known = list(dict.fromkeys((*kinds, *(s for f in flows for s in (f.source, f.target)))))
    sites = _busiest(known, flows)
    if len(sites) < len(known):
        drawn = set(sites)
        flows = [flow for flow in flows if flow.source in drawn and flow.target in drawn]
    places, height, grid = _places(sites, flows, graph)
    most = max(flow.bytes for flow in flows) or 1
    labelled = len(flows) <= _MOST_LABELS
    arrows = [_arrow(flow, places, most, labelled) for flow in flows]
    nodes = [_site(site, places[site], kinds.get(site, {}), height) for site in sites]
    picture = svg(_WIDTH, height, "Traffic between the sites", *grid, *arrows, *nodes, class_="wan")
    if len(sites) == len(known):
        return picture
    told = f"{len(sites)} of {len(known):,} sites are drawn, those that send and receive most; "
    return join(picture, tag("p", f"{told}links.csv has the links of all.", class_="note"))


def _busiest(sites: Sequence[str], flows: Sequence[Flow]) -> list[str]:
    """Return the `MOST_SITES` sites with the most traffic, in their order."""
    if len(sites) <= MOST_SITES:
        return list(sites)
    carried: dict[str, int] = defaultdict(int)
    for flow in flows:
        carried[flow.source] += flow.bytes
        carried[flow.target] += flow.bytes
    chosen = set(sorted(sites, key=lambda site: -carried[site])[:MOST_SITES])
    return [site for site in sites if site in chosen]


def legend() -> Markup:
    """Return the colours of utilisation."""
    keys = [
        tag("span", tag("i", class_=f"key u-{level}"), text)
        for level, (_, text) in enumerate(LEVELS)
    ]
    return tag("div", "utilisation: ", *keys, class_="legend")


def site_flows(
    links: Sequence[Row],
    graph: nx.Graph | None,
    seconds: float | None,
    edges: Sequence[Row] = (),
) -> list[Flow]:
    """Sum WAN links by pair of sites, with their utilisation.

    Args:
        links: Rows of ``links.csv``.
        graph: The network as used, None if unknown.
        seconds: Duration of the run.
        edges: Rows of ``edges.csv``; see `Uses`.

    Returns:
        Flows by bytes, the largest last.
    """
    flows: dict[tuple[str, str], Flow] = {}
    uses = Uses(links, graph, seconds, edges)
    for row in links:
        if row["kind"] != "wan":
            continue
        pair = (site_of(row["source"], graph), site_of(row["target"], graph))
        flow = flows.setdefault(pair, Flow(*pair))
        flow.bytes += row["bytes"]
        flow.messages += row["messages"]
        use = uses.of(row)
        if use.utilisation > flow.use.utilisation:
            flow.use = use
    return sorted(flows.values(), key=lambda flow: flow.bytes)


def _hosts_by_site(graph: nx.Graph | None) -> dict[str, dict[str, int]]:
    sites: dict[str, dict[str, int]] = {}
    for node, data in graph.nodes(data=True) if graph is not None else ():
        kind = data.get("kind", "router")
        if kind != "router":
            hosts = sites.setdefault(site_of(node, graph), {})
            hosts[kind] = hosts.get(kind, 0) + 1
    return sites


def _places(
    sites: Sequence[str], flows: Sequence[Flow], graph: nx.Graph | None
) -> tuple[dict[str, Point], float, list[Markup]]:
    """Return the position of each site, the height of the drawing, and its background."""
    if coordinates := _coordinates(sites, graph):
        return _map(coordinates)
    raw = _star(sites, flows) or _spring(sites, flows)
    xs, ys = zip(*raw.values(), strict=True)
    height = _HEIGHT if max(ys) - min(ys) > 1e-9 else _FLAT_HEIGHT

    def scaled(value: float, values: Sequence[float], room: float) -> float:
        low, high = min(values), max(values)
        return room / 2 if high - low <= 1e-9 else room * (value - low) / (high - low)

    room_x, room_y = _WIDTH - 2 * _MARGIN_X, height - _MARGIN_TOP - _MARGIN_BOTTOM
    places = {
        site: (_MARGIN_X + scaled(x, xs, room_x), _MARGIN_TOP + scaled(y, ys, room_y))
        for site, (x, y) in raw.items()
    }
    return places, height, []


def _map(coordinates: Mapping[str, Point]) -> tuple[dict[str, Point], float, list[Markup]]:
    """Return a map with a grid of degrees, to scale on its middle parallel."""
    wests, norths = zip(*coordinates.values(), strict=True)
    middle_x, middle_y = (min(wests) + max(wests)) / 2, (min(norths) + max(norths)) / 2
    narrower = math.cos(math.radians(middle_y))
    room_x, room_y = _WIDTH - 2 * _MARGIN_X, _HEIGHT - _MARGIN_TOP - _MARGIN_BOTTOM
    spread_x, spread_y = (max(wests) - min(wests)) * narrower, max(norths) - min(norths)
    degree = min(room_x / max(spread_x, 1e-6), room_y / max(spread_y, 1e-6), room_y)
    centre_x, centre_y = _WIDTH / 2, _MARGIN_TOP + room_y / 2

    def place(longitude: float, latitude: float) -> Point:
        x = centre_x + (longitude - middle_x) * narrower * degree
        return x, centre_y - (latitude - middle_y) * degree

    reach_x, reach_y = _WIDTH / 2 / degree / narrower, _HEIGHT / 2 / degree
    step = next((s for s in _GRID if s >= min(reach_x, reach_y) / 2), _GRID[-1])
    grid = []
    for value in _multiples(step, middle_x - reach_x, middle_x + reach_x, 180):
        x = place(value, 0.0)[0]
        grid.append(tag("line", x1=x, x2=x, y1=0.0, y2=_HEIGHT, class_="grid"))
        told = f"{abs(value):g}°{'W' if value < 0 else 'E' if value > 0 else ''}"
        grid.append(tag("text", told, x=x + 4, y=_HEIGHT - 5, class_="tick"))
    for value in _multiples(step, middle_y - reach_y, middle_y + reach_y, 90):
        y = place(0.0, value)[1]
        grid.append(tag("line", x1=0.0, x2=_WIDTH, y1=y, y2=y, class_="grid"))
        told = f"{abs(value):g}°{'S' if value < 0 else 'N' if value > 0 else ''}"
        grid.append(tag("text", told, x=4.0, y=y - 4, class_="tick"))
    return {site: place(*where) for site, where in coordinates.items()}, _HEIGHT, grid


def _multiples(step: float, low: float, high: float, most: float) -> list[float]:
    first, last = math.ceil(max(low, -most) / step), math.floor(min(high, most) / step)
    return [number * step for number in range(first, last + 1)]


def _coordinates(sites: Sequence[str], graph: nx.Graph | None) -> dict[str, Point] | None:
    """Return longitude and latitude in degrees, if the graph has them for every site."""
    found: dict[str, Point] = {}
    for node, data in graph.nodes(data=True) if graph is not None else ():
        for names in (("longitude", "latitude"), ("Longitude", "Latitude"), ("lon", "lat")):
            if all(name in data for name in names):
                x, y = (float(data[name]) for name in names)
                found.setdefault(site_of(node, graph), (x, y))
    return {site: found[site] for site in sites} if all(s in found for s in sites) else None


def _star(sites: Sequence[str], flows: Sequence[Flow]) -> dict[str, Point] | None:
    """Return positions with one site in the middle, if it is an end of every flow."""
    hubs = [s for s in sites if all(s in (flow.source, flow.target) for flow in flows)]
    if not hubs or len(sites) < 3:
        return None
    others = [site for site in sites if site != hubs[0]]
    turn = 2 * math.pi / len(others)
    start = math.pi if len(others) % 2 == 0 else -math.pi / 2
    places = {
        site: (round(math.cos(start + turn * i), 9), round(math.sin(start + turn * i), 9))
        for i, site in enumerate(others)
    }
    return {hubs[0]: (0.0, 0.0)} | places


def _spring(sites: Sequence[str], flows: Sequence[Flow]) -> dict[str, Point]:
    pairs: nx.Graph = nx.Graph()
    pairs.add_nodes_from(sites)
    pairs.add_edges_from((flow.source, flow.target) for flow in flows)
    layout: dict[str, Any] = nx.spring_layout(pairs, seed=0)
    return {site: (float(x), float(y)) for site, (x, y) in layout.items()}


def _arrow(flow: Flow, places: Mapping[str, Point], most: int, labelled: bool) -> Markup:
    (x1, y1), (x2, y2) = places[flow.source], places[flow.target]
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    bend = min(26.0, 0.12 * length)
    side_x, side_y = uy * bend, -ux * bend  # each direction bends to its own left
    start = (x1 + ux * _RADIUS + side_x * 0.4, y1 + uy * _RADIUS + side_y * 0.4)
    tip = (x2 - ux * (_RADIUS + 3) + side_x * 0.4, y2 - uy * (_RADIUS + 3) + side_y * 0.4)
    control = ((x1 + x2) / 2 + side_x * 1.6, (y1 + y2) / 2 + side_y * 1.6)
    width = 1.5 + 4.5 * math.sqrt(flow.bytes / most)
    head = 7.0 + width
    angle = math.atan2(tip[1] - control[1], tip[0] - control[0])
    neck = (tip[0] - head * math.cos(angle), tip[1] - head * math.sin(angle))
    wing = (math.sin(angle) * head * 0.55, -math.cos(angle) * head * 0.55)
    corners = (tip, (neck[0] + wing[0], neck[1] + wing[1]), (neck[0] - wing[0], neck[1] - wing[1]))
    level = next(i for i, (limit, _) in enumerate(LEVELS) if flow.use.utilisation < limit)
    tip_lines = [
        f"{flow.source} → {flow.target}",
        f"{units.size(flow.bytes)} in {flow.messages:,} messages",
        str(flow.use),
    ]
    curve = f"M{start[0]:.1f} {start[1]:.1f}Q{control[0]:.1f} {control[1]:.1f}"
    parts = [
        tag("path", d=f"{curve} {neck[0]:.1f} {neck[1]:.1f}", stroke_width=width, fill="none"),
        tag("polygon", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)),
    ]
    if labelled:
        text = f"{units.size(flow.bytes)} · {units.share(flow.use.utilisation, 0)}"
        x, y = (start[0] + 2 * control[0] + tip[0]) / 4, (start[1] + 2 * control[1] + tip[1]) / 4
        x, y = x + side_x * 0.6, y + side_y * 0.6 + 4
        steep = abs(uy) > 2 * abs(ux)  # the texts of both directions would cover each other
        anchor = " middle" if not steep else "" if side_x > 0 else " end"
        parts.append(tag("text", text, x=x, y=y, class_=f"tick{anchor} halo"))
    return tag("g", *parts, class_=f"flow u-{level}", data_tip="\n".join(tip_lines))


def _site(site: str, place: Point, hosts: Mapping[str, int], height: float) -> Markup:
    x, y = place
    names = {"worker": "worker", "global_server": "global server", "server": "server"}
    counted = [(hosts[kind], name) for kind, name in names.items() if hosts.get(kind)]
    words = [f"{count} {name}{'s' if count > 1 else ''}" for count, name in counted]
    beside = -_RADIUS - 9 if y < _MARGIN_TOP + 40 < height / 2 else _RADIUS + 20
    central = " central" if hosts.get("global_server") else ""
    glyph = str(hosts.get("worker", 0)) if hosts.get("worker") else "★" if central else ""
    return tag(
        "g",
        tag("circle", cx=x, cy=y, r=_RADIUS),
        tag("text", glyph, x=x, y=y + 5, class_="middle count"),
        tag("text", site, x=x, y=y + beside, class_="middle name halo"),
        class_=f"site{central}",
        data_tip="\n".join([site, *words]),
    )
