"""Readers for network files: the data centres and the links between them.

There are two forms (see docs): the short form, YAML for sites with one access link each, and the
long form, any networkx graph (node-link JSON or YAML, GraphML, GML). The short form
(`geomx.network.short_form`) is expanded into the long form, so that one set of rules covers both
(`geomx.network.topology`). A run writes its network in the long form, so that its output can be the
input of another run.

A graph of routers alone, such as a file of the Internet Topology Zoo, is completed first: missing
attributes are filled in (`geomx.network.fill`) and hosts are added (`geomx.network.attach`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import networkx as nx

from geomx.cluster import Cluster
from geomx.errors import ConfigError, near, unreadable
from geomx.network.attach import ATTACH, attach, is_bare
from geomx.network.fill import FILL, complete
from geomx.network.hosts import LAN
from geomx.network.short_form import TOP, expand
from geomx.network.topology import EDGE_ATTRIBUTES, to_cluster
from geomx.network.validators import NetworkError, known_keys, refuse, table
from geomx.yaml_files import YamlError, parse_yaml

SUFFIXES = (".yaml", ".yml", ".json", ".graphml", ".gml")

_GRAPH = ("directed", "multigraph", "graph", "nodes", "links", "edges")  # networkx's

FILE_OPTIONS: dict[str, Any] = {
    "attach": {**dict.fromkeys(ATTACH), "lan": dict.fromkeys(LAN)},
    "fill": dict.fromkeys(FILL),
    "redraw": None,
    "outages": None,
    "paths": None,
    "routing": None,
    "steps": None,
    "sharing": None,
}
"""Options accepted beside ``file``, or beside ``nodes`` in a long form, with None for unset."""

REST = "rest_of"
"""Key of a short form: ``{file, keys}`` names the file with the remaining values of `keys`."""

TYPED = "read_from"
"""Key of a short form that was a file: its path as the user typed it, for errors and traces."""

_BESIDE = ("folder", REST, TYPED)  # what is said about a short form, in a table with it


def read_network(source: Mapping[str, Any] | nx.Graph | str | Path) -> Cluster:
    """Read a network.

    Args:
        source: A file, a networkx graph in the long form, or the content of a YAML or JSON file;
            the latter may have a ``folder``, against which relative paths of traces are resolved.
            ``{"file": PATH}`` also names a file, with `FILE_OPTIONS` beside it.

    Returns:
        The nodes, the parties and the completed graph.

    Raises:
        ConfigError: The file is missing, unreadable or invalid; the message says which rule it
            breaks.
    """
    options: Mapping[str, Any] = {}
    if isinstance(source, nx.Graph):
        name = source.graph.get("name")
        source = {**_node_link_of(source), "directed": source.is_directed(), "name": name}
    if isinstance(source, Mapping) and source.get("file"):
        options, source = source, str(source["file"])
    if isinstance(source, Mapping):
        path, rest = source.get(TYPED), source.get(REST)
        label = str(path or source.get("name") or "network")
        folder = Path(source.get("folder") or Path(path or ".").parent)
        source = {key: value for key, value in source.items() if key not in _BESIDE}
        if rest:
            content = load(Path(rest["file"]))
            source |= {key: _over(content[key], source.get(key)) for key in rest["keys"]}
    else:
        label, folder = str(source), Path(source).parent
    try:
        known_keys(options, ("file", "name", *FILE_OPTIONS), "")
        content = _from_file(source) if isinstance(source, str | Path) else source
        graph = content if isinstance(content, nx.Graph) else _from_mapping(content, options)
        return to_cluster(_whole(graph, options), Path(label).stem, folder)
    except NetworkError as error:
        raise ConfigError("network", label, str(error)) from error


def _whole(graph: nx.Graph, options: Mapping[str, Any]) -> nx.Graph:
    """Return `graph` with the options given beside its file, and with hosts if it had none."""
    for key, default in FILE_OPTIONS.items():
        inside, outside = graph.graph.get(key), options.get(key)
        if isinstance(inside, Mapping) and isinstance(outside, Mapping):
            outside = {**inside, **_said(outside)}
        said = _said(outside if outside is not None else inside)
        if isinstance(default, Mapping) and said:
            table(said, key)
        graph.graph[key] = said
    filled, attached = graph.graph.pop("fill"), graph.graph.pop("attach")
    if is_bare(graph):
        graph = complete(graph, filled or {}, EDGE_ATTRIBUTES)
        attach(graph, attached or {})
    elif filled or attached:
        key = "attach" if attached else "fill"
        refuse(f"{key} is for graphs of routers alone; this one already has servers and workers")
    return graph


def _over(below: Any, said: Any) -> Any:
    """Return `below` with the values of `said` in place of its own, key by key."""
    if isinstance(below, Mapping) and isinstance(said, Mapping):
        return {**below, **{key: _over(below.get(key), value) for key, value in said.items()}}
    return below if said is None else said


def _said(value: Any) -> Any:
    """Return an option without its None values, at any depth."""
    if not isinstance(value, Mapping):
        return value
    said = {key: _said(inner) for key, inner in value.items()}
    return {key: inner for key, inner in said.items() if inner is not None and inner != {}}


def load(path: Path) -> Any:
    """Read a YAML or JSON file.

    Args:
        path: The file; the suffix ``.json`` selects JSON.

    Returns:
        The parsed content.

    Raises:
        ConfigError: The file is missing or unreadable, or a key occurs twice.
    """
    try:
        return _load(path)
    except NetworkError as error:
        raise ConfigError("network", path, str(error)) from error


def is_long_form(content: Any) -> bool:
    """Return whether `content`, read from a YAML or JSON file, is a node-link graph."""
    return isinstance(content, Mapping) and "nodes" in content


def to_node_link(graph: nx.DiGraph) -> dict[str, Any]:
    """Convert `graph` to node-link data for `json.dump`: the long form that `read_network` reads.

    An edge without ``bandwidth_mbps`` is written with ``unlimited: true``, since a missing
    bandwidth is an error in files written by hand.

    Args:
        graph: A complete graph, as in `Cluster.graph`.

    Returns:
        A dictionary with ``nodes``, ``links`` and the graph's attributes.
    """
    content = _node_link_of(graph)
    for link in content["links"]:
        if "bandwidth_mbps" not in link:
            link["unlimited"] = True
    return content


def _node_link_of(graph: nx.Graph) -> dict[str, Any]:
    """Return a graph as node-link data, with the attributes that it has."""
    return {
        "directed": True,
        "multigraph": False,
        "graph": dict(graph.graph),
        "nodes": [{"id": node, **data} for node, data in graph.nodes(data=True)],
        "links": [
            {"source": source, "target": target, **data}
            for source, target, data in graph.edges(data=True)
        ],
    }


def _load(path: Path) -> Any:
    if (why := unreadable(path)) is not None:
        refuse(why)
    try:
        text = path.read_text(encoding="utf-8-sig")
        return json.loads(text) if path.suffix == ".json" else parse_yaml(text)
    except OSError as error:
        refuse(f"cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        refuse("cannot be read: it is not a text file")
    except YamlError as error:
        refuse(str(error))
    except json.JSONDecodeError as error:
        refuse(f"is not JSON: {error.msg} at line {error.lineno}")
    except RecursionError:
        refuse("is not JSON: its lists and tables are nested too deeply")
    except ValueError as error:  # whole numbers of thousands of digits
        refuse(f"is not JSON: {error}")


def _from_file(source: str | Path) -> Any:
    """Return the graph in a GraphML or GML file, or the content of a YAML or JSON file."""
    path = Path(source)
    if os.path.isdir(path):
        refuse("is a folder, not a file")
    if path.suffix in (".graphml", ".gml"):
        if (why := unreadable(path)) is not None:
            refuse(why)
        reader = nx.read_graphml if path.suffix == ".graphml" else _read_gml
        graph = _garbage_named(lambda: reader(path), f"is not {path.suffix[1:].upper()}")
        if path.suffix == ".graphml":
            _check_declared(graph, path)
            _apply_defaults(graph)
        return graph
    if os.path.exists(path) and path.suffix not in SUFFIXES:
        refuse(f"unknown suffix {path.suffix or '(none)'}; {near(path.suffix, SUFFIXES)}")
    return _load(path)


def _check_declared(graph: nx.Graph, path: Path) -> None:
    """Refuse edges of nodes that a GraphML file does not declare; networkx adds such nodes."""
    whole = ElementTree.parse(path).find("{*}graph")
    assert whole is not None, "networkx has read it"
    declared = {node.get("id") for node in whole.findall("{*}node")}
    for source, target in graph.edges():
        for node in (source, target):
            if node not in declared:
                refuse(f"has an edge between {source} and {target}, and {node} is not a node")


def _apply_defaults(graph: nx.Graph) -> None:
    """Give nodes and edges the defaults of their keys in GraphML, which networkx sets apart."""
    nodes = (data for _, data in graph.nodes(data=True))
    edges = (data for _, _, data in graph.edges(data=True))
    for name, all_data in (("node_default", nodes), ("edge_default", edges)):
        defaults = graph.graph.pop(name)
        for data in all_data:
            data.update({**defaults, **data})


def _read_gml(path: Path) -> nx.Graph:
    """Read GML as the Topology Zoo writes it: undeclared parallel edges, duplicate labels."""
    text = path.read_text(encoding="utf-8-sig")
    if not re.search(r"^\s*multigraph\s+1\s*$", text, re.MULTILINE):
        text = re.sub(r"\bgraph\s*\[", "graph [\n  multigraph 1\n", text, count=1)
    try:
        return nx.parse_gml(text)
    except nx.NetworkXError as error:
        if "label" not in str(error):
            raise
        return nx.parse_gml(text, label="id")


def _garbage_named(read: Callable[[], nx.Graph], complaint: str) -> nx.Graph:
    """Call a reader of networkx; turn any exception into a `NetworkError` of one sentence."""
    try:
        return read()
    except Exception as error:
        detail = " ".join(str(error).split())[:120]
        raise NetworkError(f"{complaint} ({type(error).__name__}: {detail})") from error


def _from_mapping(content: Any, options: Mapping[str, Any]) -> nx.Graph:
    if not isinstance(content, Mapping):
        refuse(f"must hold a table of keys ({', '.join(TOP)}) or a node-link graph")
    return _node_link(content) if is_long_form(content) else expand(content, options)


def _node_link(content: Mapping[str, Any]) -> nx.Graph:
    links = content.get("links", content.get("edges"))
    if not isinstance(content["nodes"], list) or not isinstance(links, list):
        refuse("a node-link graph needs two lists, nodes and links")
    known_keys(content, ("name", *_GRAPH, *FILE_OPTIONS), "")
    directed = content.get("directed", False)
    if directed not in (True, False, None):
        refuse(f"directed is {directed!r}; it must be true or false")
    graph: nx.Graph = nx.MultiDiGraph() if directed else nx.MultiGraph()
    graph.graph.update(_attributes(table(content.get("graph") or {}, "graph")))
    for key in ("name", *FILE_OPTIONS):
        if content.get(key):
            graph.graph[key] = content[key]
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


def _attributes(given: Mapping[str, Any], *but: str) -> dict[str, Any]:
    return {str(key): value for key, value in given.items() if key not in but}
