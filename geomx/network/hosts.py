"""Hosts of a site, joined to its router by LAN edges; shared by all forms of network files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx

from geomx.network.validators import (
    bandwidth,
    count,
    known_keys,
    milliseconds,
    refuse,
    table,
    worker_speed,
)

LAN = {"mbps": 10000.0, "delay_ms": 0.05}


def lan_edge(given: Any, where: str) -> dict[str, float]:
    """Return the attributes of a LAN edge, for one direction.

    Args:
        given: ``mbps`` and ``delay_ms``; missing values are those of `LAN`.
        where: Name of the option in error messages.

    Returns:
        ``bandwidth_mbps``, ``delay_ms`` and ``loss``.

    Raises:
        NetworkError: A value or a key is invalid.
    """
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
    """Add the scheduler and the global servers of a site to `graph`.

    Args:
        graph: The network, changed in place.
        site: The router that they are joined to.
        given: Options of the site; ``global_servers`` is their number.
        where: Name of the options in error messages.
        lan: Attributes of each LAN edge, from `lan_edge`.
    """
    _add(graph, site, "scheduler", "scheduler", lan)
    servers = count(given.get("global_servers", 1), f"{where}.global_servers", 1)
    for index in range(servers):
        _add(graph, site, f"global_server{index}", "global_server", lan)


def add_party(
    graph: nx.DiGraph, site: str, given: Mapping[str, Any], where: str, lan: dict[str, float]
) -> None:
    """Add the local server and the workers of a training site to `graph`.

    Args:
        graph: The network, changed in place.
        site: The router that they are joined to.
        given: Options of the site; ``workers`` is their number, ``speed`` one relative speed or a
            list.
        where: Name of the options in error messages.
        lan: Attributes of each LAN edge, from `lan_edge`.

    Raises:
        NetworkError: The number or a speed is invalid, or there are more or fewer speeds than
            workers.
    """
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
        factor = worker_speed(value, f"{where}.speed[{index}]")
        _add(graph, site, f"worker{index}", "worker", lan, speed=factor)


def _add(
    graph: nx.DiGraph, site: str, name: str, kind: str, lan: dict[str, float], **data: float
) -> None:
    graph.add_node(f"{site}/{name}", kind=kind, party=site, **data)
    graph.add_edge(f"{site}/{name}", site, **lan)
    graph.add_edge(site, f"{site}/{name}", **lan)
