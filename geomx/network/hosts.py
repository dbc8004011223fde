"""The machines of a site, joined to its router by LAN edges: the same for every form of network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx

from geomx.network.validators import (
    bandwidth,
    count,
    known_keys,
    milliseconds,
    positive,
    refuse,
    table,
)

LAN = {"mbps": 10000.0, "delay_ms": 0.05}


def lan_edge(given: Any, where: str) -> dict[str, float]:
    """Attributes of a LAN edge, one direction; what is not given is as in `LAN`."""
    known_keys(table(given or {}, where), tuple(LAN), where)
    lan = LAN | {key: value for key, value in (given or {}).items() if value is not None}
    return {
        "bandwidth_mbps": bandwidth(lan["mbps"], f"{where}.mbps"),
        "delay_ms": milliseconds(lan["delay_ms"], f"{where}.delay_ms"),
        "loss": 0.0,
    }


def add_central(
    graph: nx.DiGraph, site: str, given: Mapping[str, Any], where: str, lan: dict[str, float]
) -> None:
    """The scheduler and the global servers, at the router called `site`."""
    _add(graph, site, "scheduler", "scheduler", lan)
    servers = count(given.get("global_servers", 1), f"{where}.global_servers", 1)
    for index in range(servers):
        _add(graph, site, f"global_server{index}", "global_server", lan)


def add_party(
    graph: nx.DiGraph, site: str, given: Mapping[str, Any], where: str, lan: dict[str, float]
) -> None:
    """The local server and the workers of a site that trains, at the router called `site`."""
    workers = count(given.get("workers"), f"{where}.workers", 1)
    speed = given.get("speed")
    if speed is None:
        speed = 1.0
    if not isinstance(speed, list | tuple):
        speed = [speed] * workers
    if len(speed) != workers:
        refuse(f"{where}.speed lists {len(speed)} speeds for {workers} workers")
    _add(graph, site, "server", "server", lan)
    for index, value in enumerate(speed):
        factor = positive(value, f"{where}.speed[{index}]")
        _add(graph, site, f"worker{index}", "worker", lan, speed=factor)


def _add(
    graph: nx.DiGraph, site: str, name: str, kind: str, lan: dict[str, float], **data: float
) -> None:
    graph.add_node(f"{site}/{name}", kind=kind, party=site, **data)
    graph.add_edge(f"{site}/{name}", site, **lan)
    graph.add_edge(site, f"{site}/{name}", **lan)
