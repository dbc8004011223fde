"""Network files: which data centres there are, and what joins them.

Two forms (see docs): the short form, YAML for sites with one access link each, and the long form,
any networkx graph (node-link JSON or YAML, GraphML, GML). The short form is expanded into the long
one, so that there is a single set of rules (`geomx.topology`), and a run writes its network in the
long form, so that a run's output is another run's input.

The short form expands to, for a site ``s``: a router ``s`` that its hosts are joined to by LAN
edges; a router ``s/wan``, the far end of its access link, joined to ``s`` by the uplink and the
downlink; and between every two far ends an unlimited edge that carries delay and loss.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import networkx as nx

from geomx.cluster import Cluster
from geomx.errors import ConfigError
from geomx.options import near
from geomx.topology import (
    NetworkError,
    not_negative,
    positive,
    probability,
    refuse,
    to_cluster,
)

SUFFIXES = (".yaml", ".yml", ".json", ".graphml", ".gml")

_TOP = ("name", "central", "parties", "delay_ms", "loss", "lan")
_CENTRAL = ("name", "global_servers", "workers", "uplink_mbps", "downlink_mbps", "speed")
_PARTY = ("workers", "uplink_mbps", "downlink_mbps", "speed")
_LAN = ("mbps", "delay_ms")


def read_network(source: Mapping[str, Any] | str | Path) -> Cluster:
    """Read a network.

    Args:
        source: A file, or what a YAML or JSON file holds. ``{"file": PATH}`` is a file too.

    Raises:
        ConfigError: The file is missing or unreadable, or breaks a rule, which is named.
    """
    if isinstance(source, Mapping) and set(source) <= {"file", "name"} and "file" in source:
        source = str(source["file"])
    if isinstance(source, Mapping):
        label, folder = str(source.get("name") or "network"), Path()
    else:
        label, folder = str(source), Path(source).parent
    try:
        graph = _from_file(source) if isinstance(source, str | Path) else _from_mapping(source)
        return to_cluster(graph, Path(label).stem, folder)
    except NetworkError as error:
        raise ConfigError("network", label, str(error)) from error


def load(path: Path) -> Any:
    """What a YAML or JSON file holds.

    Raises:
        ConfigError: It is missing or unreadable.
    """
    try:
        return _load(path)
    except NetworkError as error:
        raise ConfigError("network", path, str(error)) from error


def is_long_form(content: Any) -> bool:
    """Whether the content of a YAML or JSON file is a node-link graph."""
    return isinstance(content, Mapping) and "nodes" in content


def to_node_link(graph: nx.DiGraph) -> dict[str, Any]:
    """`graph` as node-link data for `json.dump`: the long form that `read_network` reads back.

    An edge without ``bandwidth_mbps`` is written with ``unlimited: true``, because in a file that a
    person wrote a missing bandwidth is an error.
    """
    links = []
    for source, target, data in graph.edges(data=True):
        unlimited = {} if "bandwidth_mbps" in data else {"unlimited": True}
        links.append({"source": source, "target": target, **data, **unlimited})
    return {
        "directed": True,
        "multigraph": False,
        "graph": dict(graph.graph),
        "nodes": [{"id": node, **data} for node, data in graph.nodes(data=True)],
        "links": links,
    }


def _load(path: Path) -> Any:
    import yaml

    if not path.exists():
        refuse("there is no such file")
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else _yaml(text)
    except OSError as error:
        refuse(f"cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        refuse("cannot be read: it is not a text file")
    except json.JSONDecodeError as error:
        refuse(f"is not JSON: {error.msg} at line {error.lineno}")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        refuse(f"is not YAML: {getattr(error, 'problem', None) or 'unreadable'}{where}")


def _yaml(text: str) -> Any:
    """YAML, but a key that comes twice is refused instead of winning silently."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
            for name in names:
                if names.count(name) > 1:
                    refuse(f"{name} comes twice at line {node.start_mark.line + 1} and after")
            return super().construct_mapping(node, deep)

    return yaml.load(text, Loader)


def _from_file(source: str | Path) -> nx.Graph:
    path = Path(source)
    if path.is_dir():
        refuse("is a folder, not a file")
    if path.suffix in (".graphml", ".gml"):
        if not path.exists():
            refuse("there is no such file")
        reader = nx.read_graphml if path.suffix == ".graphml" else _read_gml
        return _garbage_named(lambda: reader(path), f"is not {path.suffix[1:].upper()}")
    if path.exists() and path.suffix not in SUFFIXES:
        refuse(f"unknown suffix {path.suffix or '(none)'}; {near(path.suffix, SUFFIXES)}")
    return _from_mapping(_load(path))


def _read_gml(path: Path) -> nx.Graph:
    try:
        return nx.read_gml(path)
    except nx.NetworkXError as error:
        if "label" not in str(error):
            raise
        return nx.read_gml(path, label="id")


def _garbage_named(read: Callable[[], nx.Graph], complaint: str) -> nx.Graph:
    """Call a reader of networkx; whatever it raises on garbage becomes one sentence."""
    try:
        return read()
    except Exception as error:
        detail = " ".join(str(error).split())[:120]
        raise NetworkError(f"{complaint} ({type(error).__name__}: {detail})") from error


def _from_mapping(content: Any) -> nx.Graph:
    if not isinstance(content, Mapping):
        refuse(f"must hold a table of keys ({', '.join(_TOP)}) or a node-link graph")
    return _node_link(content) if is_long_form(content) else _short_form(content)


def _node_link(content: Mapping[str, Any]) -> nx.Graph:
    links = content.get("links", content.get("edges"))
    if not isinstance(content["nodes"], list) or not isinstance(links, list):
        refuse("a node-link graph needs two lists, nodes and links")
    graph: nx.Graph = nx.MultiDiGraph() if content.get("directed", False) else nx.MultiGraph()
    graph.graph.update(_attributes(_table(content.get("graph") or {}, "graph")))
    for index, node in enumerate(content["nodes"]):
        if not isinstance(node, Mapping) or "id" not in node:
            refuse(f"nodes[{index}] has no id")
        if str(node["id"]) in graph:
            refuse(f"two nodes are called {node['id']}")
        graph.add_node(str(node["id"]), **_attributes(node, "id"))
    for index, link in enumerate(links):
        for end in ("source", "target"):
            if not isinstance(link, Mapping) or end not in link:
                refuse(f"links[{index}] has no {end}")
            if str(link[end]) not in graph:
                refuse(f"links[{index}] has {end} {link[end]}, which is not a node")
        data = _attributes(link, "source", "target", "key")
        graph.add_edge(str(link["source"]), str(link["target"]), **data)
    return graph


def _attributes(table: Mapping[str, Any], *but: str) -> dict[str, Any]:
    return {str(key): value for key, value in table.items() if key not in but}


def _short_form(content: Mapping[str, Any]) -> nx.DiGraph:
    _keys(content, _TOP, "")
    if content.get("central") is None:
        refuse("there is no global server: central is missing")
    parties = _table(content.get("parties") or {}, "parties")
    if not parties:
        refuse("there is no party: nobody trains")
    central = _table(content["central"], "central")
    _keys(central, _CENTRAL, "central.")
    hub = str(central.get("name") or "hub")
    lan = {"mbps": 10000.0, "delay_ms": 0.05} | dict(_table(content.get("lan") or {}, "lan"))
    _keys(lan, _LAN, "lan.")
    cable = {
        "bandwidth_mbps": positive(lan["mbps"], "lan.mbps"),
        "delay_ms": not_negative(lan["delay_ms"], "lan.delay_ms"),
        "loss": 0.0,
    }
    graph = nx.DiGraph()
    if content.get("name"):
        graph.graph["name"] = str(content["name"])

    _site(graph, hub, central, "central")
    _host(graph, hub, "scheduler", "scheduler", cable)
    servers = _count(central.get("global_servers", 1), "central.global_servers", 1)
    for index in range(servers):
        _host(graph, hub, f"global_server{index}", "global_server", cable)
    if _count(central.get("workers", 0), "central.workers", 0):
        _party(graph, hub, central, "central", cable)
    sites = [hub]
    for key, value in parties.items():
        site, where = str(key), f"parties.{key}"
        if "/" in site or not site:
            refuse(f"party {site!r}: a name must not be empty or hold a slash")
        if site in sites:
            refuse(f"two sites are called {site}")
        sites.append(site)
        table = _table(value, where)
        _keys(table, _PARTY, f"{where}.")
        _site(graph, site, table, where)
        _count(table.get("workers"), f"{where}.workers", 1)
        _party(graph, site, table, where, cable)
    _join(graph, sites, content)
    return graph


def _site(graph: nx.DiGraph, site: str, table: Mapping[str, Any], where: str) -> None:
    """The site's router and its access link."""
    far = f"{site}/wan"
    graph.add_node(site, kind="router", party=site)
    graph.add_node(far, kind="router", party=site)
    for way, edge in (("uplink_mbps", (site, far)), ("downlink_mbps", (far, site))):
        if table.get(way) is None:
            refuse(f"{where}.{way} is missing")
        bandwidth = positive(table[way], f"{where}.{way}")
        graph.add_edge(*edge, bandwidth_mbps=bandwidth, delay_ms=0.0, loss=0.0)


def _host(
    graph: nx.DiGraph, site: str, name: str, kind: str, cable: dict[str, float], **data: float
) -> None:
    graph.add_node(f"{site}/{name}", kind=kind, party=site, **data)
    graph.add_edge(f"{site}/{name}", site, **cable)
    graph.add_edge(site, f"{site}/{name}", **cable)


def _party(
    graph: nx.DiGraph, site: str, table: Mapping[str, Any], where: str, cable: dict[str, float]
) -> None:
    """The local server and the workers of a site that trains."""
    workers = int(table["workers"])
    speed = table.get("speed")
    if speed is None:
        speed = 1.0
    if not isinstance(speed, list | tuple):
        speed = [speed] * workers
    if len(speed) != workers:
        refuse(f"{where}.speed lists {len(speed)} speeds for {workers} workers")
    _host(graph, site, "server", "server", cable)
    for index, value in enumerate(speed):
        factor = positive(value, f"{where}.speed[{index}]")
        _host(graph, site, f"worker{index}", "worker", cable, speed=factor)


def _join(graph: nx.DiGraph, sites: list[str], content: Mapping[str, Any]) -> None:
    """An unlimited edge with delay and loss between every two sites."""
    if content.get("delay_ms") is None:
        refuse("delay_ms is missing")
    delay = _between(content["delay_ms"], sites, "delay_ms", not_negative, None)
    loss = _between(content.get("loss") or 0.0, sites, "loss", probability, 0.0)
    for pair, delay_ms in delay.items():
        edge = (f"{pair[0]}/wan", f"{pair[1]}/wan")
        graph.add_edge(*edge, unlimited=True, delay_ms=delay_ms, loss=loss[pair])


def _between(
    value: Any,
    sites: list[str],
    key: str,
    check: Callable[[Any, str], float],
    missing: float | None,
) -> dict[tuple[str, str], float]:
    """A figure for every ordered pair of sites, from one number or a table of tables."""
    pairs = [(source, target) for source in sites for target in sites if source != target]
    if not isinstance(value, Mapping):
        figure = check(value, key)
        return dict.fromkeys(pairs, figure)
    given: dict[tuple[str, str], float] = {}
    for source, row in value.items():
        for target, figure in _table(row, f"{key}.{source}").items():
            for site in (source, target):
                if str(site) not in sites:
                    refuse(f"{key}: there is no site {site}; {near(str(site), sites)}")
            if source == target:
                refuse(f"{key}.{source}.{target}: a site has no way to itself")
            given[str(source), str(target)] = check(figure, f"{key}.{source}.{target}")
    result = {}
    for source, target in pairs:
        known = given.get((source, target), given.get((target, source), missing))
        if known is None:
            refuse(f"{key} between {source} and {target} is missing")
        result[source, target] = known
    return result


def _keys(table: Mapping[str, Any], known: tuple[str, ...], prefix: str) -> None:
    for key in table:
        if key not in known:
            refuse(f"unknown key {prefix}{key}; {near(str(key), known)}")


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        refuse(f"{where} must be a table of keys, not {value!r}")
    return value


def _count(value: Any, where: str, least: int) -> int:
    if value is None:
        refuse(f"{where} is missing")
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        refuse(f"{where} is {value}; it must be a whole number, {least} or more")
    return value
