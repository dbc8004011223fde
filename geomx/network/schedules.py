"""Bandwidth schedules on the edges of a network: recorded traces, redraws and outages.

Three attributes of an edge say how its bandwidth changes over a run:

``trace``
    A recording: a CSV file with the columns ``time_s,bandwidth_mbps``, or a list of such pairs.
    Each bandwidth holds from its time until the next row, the last one for the rest of the run;
    before the first row the edge's ``bandwidth_mbps`` holds.
``redraw``
    ``{every_s, low_mbps, high_mbps}``: drawn uniformly from the range at 0 and every ``every_s``.
``outages``
    A list. ``{start_s, end_s}`` is planned, and repeats with ``every_s``; ``{mean_up_s,
    mean_down_s}`` is random, with exponentially distributed times. Nothing crosses an edge that is
    down; messages under way wait.

Draws depend only on the seed of the experiment (or a rule's own ``seed``) and on the name of the
edge, so that both modes and all processes see the same schedule. Outages with the same ``name``
coincide.

``redraw`` and ``outages`` may also be given for a whole network, beside ``nodes`` or ``parties``,
with the links that they apply to; `spread` turns them into attributes of edges. The schedules are
evaluated in C++ (``runtime_cpp/net/bandwidth_schedule.h``).
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx

from geomx import _core
from geomx.network.csv_rows import csv_rows
from geomx.network.validators import (
    bandwidth,
    known_keys,
    not_negative,
    positive,
    refuse,
    required,
    table,
)

EDGE_CHANGES = ("trace", "redraw", "outages")
BYTES_PER_MBIT = 125_000.0

_COLUMNS = ["time_s", "bandwidth_mbps"]
SHORTEST_S = 0.001
"""Limit on the times between two changes of a bandwidth, or between outages."""

NS = 1_000_000_000
LATEST_S = 1e9
"""Limit on times: the latest that a clock of the core counts to."""

_REDRAW = ("every_s", "low_mbps", "high_mbps", "seed")
_OUTAGE = ("start_s", "end_s", "every_s", "mean_up_s", "mean_down_s", "seed", "name")
_WHERE = ("site", "link", "partition")

Edge = tuple[str, str]


def check_changes(edge: str, data: dict[str, Any], folder: Path) -> None:
    """Read and check the schedule of an edge, and set its nominal bandwidth.

    Afterwards any trace, file or list, is a list of [seconds, Mbit/s], and an edge without
    ``bandwidth_mbps`` has a nominal one: the first of the trace, or the middle of the redraw;
    except an unlimited edge until a trace that begins later.

    Args:
        edge: Name of the edge in error messages.
        data: Attributes of the edge, changed in place.
        folder: Base of relative paths of traces.

    Raises:
        NetworkError: A value is invalid; the message names the edge.
    """
    for name in EDGE_CHANGES:
        if name in data and not data[name]:
            del data[name]
    if "trace" in data and "redraw" in data:
        refuse(f"{edge} has a trace and is redrawn too")
    nominal, first_s = None, 0.0
    if "trace" in data:
        data["trace"] = _trace(data["trace"], f"trace of {edge}", folder)
        first_s, nominal = data["trace"][0]
        if first_s > 0 and "bandwidth_mbps" not in data and "unlimited" not in data:
            remedy = "set bandwidth_mbps (of a site: uplink_mbps or downlink_mbps) for before"
            refuse(f"trace of {edge} begins at {first_s:g} s; {remedy}")
        nominal = nominal or max(mbps for _, mbps in data["trace"])
    if "redraw" in data:
        data["redraw"] = _redraw(data["redraw"], f"redraw of {edge}")
        nominal = (data["redraw"]["low_mbps"] + data["redraw"]["high_mbps"]) / 2
    if nominal is not None and "bandwidth_mbps" not in data and not first_s:
        data.pop("unlimited", None)
        data["bandwidth_mbps"] = nominal
    if "outages" in data:
        data["outages"] = _outages(data["outages"], f"outages of {edge}")


def spread(graph: nx.DiGraph) -> None:
    """Turn the network's own ``redraw`` and ``outages`` into attributes of the edges they apply to.

    A redraw (or each of a list) applies to ``links``, a list of pairs of sites or nodes, in both
    directions; without ``links``, to every edge between two routers that has a bandwidth. An outage
    applies to a ``site``: every edge that enters or leaves it; to a ``link``: a pair as above; or
    to a ``partition``: every edge between sites of different groups.

    Args:
        graph: Nodes have their ``party``. The attributes ``redraw`` and ``outages`` are removed.

    Raises:
        NetworkError: A rule matches no edge, or an edge is redrawn by two rules.
    """
    rules = graph.graph.pop("redraw", None) or []
    if not isinstance(rules, Mapping | Sequence) or isinstance(rules, str):
        refuse(f"redraw must be a table or a list of them, not {rules!r}")
    for number, rule in enumerate([rules] if isinstance(rules, Mapping) else rules):
        where = "redraw" if isinstance(rules, Mapping) else f"redraw[{number}]"
        known_keys(table(rule, where), (*_REDRAW, "links"), where)
        checked = _redraw({key: rule[key] for key in rule if key != "links"}, where)
        for edge in _redrawn(graph, rule.get("links"), where):
            if "redraw" in graph.edges[edge]:
                refuse(f"{where} means edge {edge[0]} -> {edge[1]}, which is redrawn already")
            graph.edges[edge]["redraw"] = checked
    rules = graph.graph.pop("outages", None) or []
    if not isinstance(rules, Sequence) or isinstance(rules, str):
        refuse(f"outages must be a list, not {rules!r}")
    for number, rule in enumerate(rules):
        where = f"outages[{number}]"
        known_keys(table(rule, where), (*_OUTAGE, *_WHERE), where)
        outage = {key: rule[key] for key in rule if key not in _WHERE}
        if "mean_up_s" in outage:
            outage.setdefault("name", where)
        checked_outage = _outage(outage, where)
        for edge in _cut(graph, rule, where):
            data = graph.edges[edge]
            data["outages"] = [*(data.get("outages") or []), checked_outage]


def schedule(data: Mapping[str, Any], name: str, seed: int) -> _core.BandwidthSchedule:
    """Return the bandwidth schedule of an edge.

    Args:
        data: Attributes of the edge, checked by `check_changes`.
        name: Name of the edge, part of the seed of its draws.
        seed: Seed of the experiment.

    Returns:
        The native schedule, in bytes per second over seconds since the start of the run.
    """
    made = _core.BandwidthSchedule(data.get("bandwidth_mbps", math.inf) * BYTES_PER_MBIT)
    if "trace" in data:
        made.set_trace([(time_s, mbps * BYTES_PER_MBIT) for time_s, mbps in data["trace"]])
    if "redraw" in data:
        rule = data["redraw"]
        low, high = rule["low_mbps"] * BYTES_PER_MBIT, rule["high_mbps"] * BYTES_PER_MBIT
        made.set_redraw(rule["every_s"], low, high, _stream("redraw", rule, name, seed))
    for rule in data.get("outages", ()):
        if "mean_up_s" in rule:
            stream = _stream("outage", rule, rule.get("name", name), seed)
            made.add_failures(rule["mean_up_s"], rule["mean_down_s"], stream)
        else:
            made.add_outage(rule["start_s"], rule["end_s"], rule.get("every_s", 0.0))
    return made


def usual_mbps(data: Mapping[str, Any]) -> float:
    """Return the bandwidth that a plugin may expect of an edge.

    Args:
        data: The edge's attributes, as in a `Cluster`'s graph.

    Returns:
        Mbit/s: the nominal bandwidth; if nothing limits the edge until a trace begins, the largest
        of the trace; infinite if nothing ever does.
    """
    if "bandwidth_mbps" in data:
        return float(data["bandwidth_mbps"])
    return max((mbps for _, mbps in data.get("trace", ())), default=math.inf)


def limited(data: Mapping[str, Any]) -> bool:
    """Return whether an edge with the attributes `data` ever has a bandwidth, or outages."""
    return bool({"bandwidth_mbps", "outages", "trace"} & data.keys())


def _stream(kind: str, rule: Mapping[str, Any], name: str, seed: int) -> int:
    """Return the seed of a stream of draws: a hash, so that names give unrelated streams."""
    text = f"{kind}\n{rule.get('seed', seed)}\n{name}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


# ---- rules ----


def _trace(value: Any, what: str, folder: Path) -> list[list[float]]:
    rows = _read_csv(value, what, folder) if isinstance(value, str | Path) else value
    if isinstance(value, str | Path) and not rows:
        refuse(f"{what} is {value}, which has no rows after its first line")
    if not isinstance(rows, Sequence) or not rows:
        refuse(f"{what} must be a file or a list of pairs of seconds and Mbit/s, not {value!r}")
    trace: list[list[float]] = []
    for index, row in enumerate(rows):
        where = f"row {index + 1} of {what}"
        if not isinstance(row, Sequence) or isinstance(row, str) or len(row) != len(_COLUMNS):
            refuse(f"{where} must be two numbers, seconds and Mbit/s, not {row!r}")
        pair = [
            not_negative(number, f"{key} in {where}")
            for key, number in zip(_COLUMNS, row, strict=True)
        ]
        if pair[1] > 0:
            bandwidth(row[1], f"{_COLUMNS[1]} in {where}")
        if pair[0] > LATEST_S:
            refuse(f"time_s in {where} is {row[0]}; it must be {LATEST_S:g} or less")
        if trace and round(pair[0] * NS) <= round(trace[-1][0] * NS):
            remedy = "it must be at least a nanosecond later than in the row before"
            refuse(f"time_s in {where} is {row[0]}; {remedy}")
        trace.append(pair)
    if trace[-1][1] == 0:
        refuse(f"{what} ends with a bandwidth of 0; end with more, or messages never arrive")
    return trace


def _read_csv(value: str | Path, what: str, folder: Path) -> list[list[str]]:
    path = folder / str(value)
    if "\0" in str(value) or not path.is_file():
        shown = str(value).replace("\0", "\\0")
        refuse(f"{what} is {shown}, which is no file")
    return csv_rows(path, _COLUMNS, what, str(value))


def _redraw(value: Any, where: str) -> dict[str, Any]:
    known_keys(table(value, where), _REDRAW, where)
    rule = {key: positive(required(value, key, where), f"{where}.{key}") for key in _REDRAW[:3]}
    _not_too_often(rule, ("every_s",), where)
    if not rule["low_mbps"] <= rule["high_mbps"] < math.inf:
        refuse(
            f"{where}.high_mbps is {value['high_mbps']}; it must be low_mbps or more, and finite"
        )
    for key in ("low_mbps", "high_mbps"):
        bandwidth(value[key], f"{where}.{key}")
    return rule | _seed(value, where)


def _outages(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        refuse(f"{where} must be a list, not {value!r}")
    rules = [_outage(rule, f"{where}[{number}]") for number, rule in enumerate(value)]
    if sum("every_s" in rule for rule in rules) > 1:
        refuse(f"{where}: two of them have every_s and may overlap; list one of them explicitly")
    return rules


def _outage(value: Any, where: str) -> dict[str, Any]:
    known_keys(table(value, where), _OUTAGE, where)
    random = "mean_up_s" in value or "mean_down_s" in value
    if random == ("start_s" in value or "end_s" in value or "every_s" in value):
        refuse(f"{where} needs either start_s and end_s, or mean_up_s and mean_down_s")
    if random:
        means = ("mean_up_s", "mean_down_s")
        rule: dict[str, Any] = {
            key: positive(required(value, key, where), f"{where}.{key}") for key in means
        }
        if math.inf in rule.values():
            refuse(f"{where}: mean_up_s and mean_down_s must be finite")
        _not_too_often(rule, means, where)
        named = {"name": str(value["name"])} if value.get("name") else {}
        return rule | named | _seed(value, where)
    times = {
        key: not_negative(required(value, key, where), f"{where}.{key}")
        for key in ("start_s", "end_s")
    }
    if times["end_s"] > LATEST_S:
        refuse(f"{where}.end_s is {value['end_s']}; it must be {LATEST_S:g} or less")
    lasts_s = times["end_s"] - times["start_s"]
    if lasts_s <= 0:
        refuse(f"{where}.end_s is {value['end_s']}; it must be after start_s")
    if value.get("every_s"):
        times["every_s"] = positive(value["every_s"], f"{where}.every_s")
        _not_too_often(times, ("every_s",), where)
        if times["every_s"] <= lasts_s:
            refuse(f"{where}.every_s is {value['every_s']}; it must be more than an outage lasts")
    return times


def _not_too_often(rule: Mapping[str, float], keys: Sequence[str], where: str) -> None:
    """Refuse times so short that a simulation would do little else."""
    for key in keys:
        if rule[key] < SHORTEST_S:
            refuse(f"{where}.{key} is {rule[key]:g}; it must be {SHORTEST_S:g} or more")


def _seed(value: Mapping[str, Any], where: str) -> dict[str, int]:
    seed = value.get("seed")
    if seed is None:
        return {}
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        refuse(f"{where}.seed is {seed!r}; it must be a whole number, 0 or more")
    return {"seed": seed}


# ---- the edges that a rule applies to ----


def _redrawn(graph: nx.DiGraph, links: Any, where: str) -> list[Edge]:
    if links is None:
        edges = [
            edge
            for edge in graph.edges
            if all(graph.nodes[end]["kind"] == "router" for end in edge)
            and {"bandwidth_mbps", "trace"} & graph.edges[edge].keys()
            and graph.edges[edge].get("bandwidth_mbps") != math.inf
        ]
        if not edges:
            refuse(f"{where} has no effect: no edge between two routers has a bandwidth")
        return edges
    if not isinstance(links, Sequence) or isinstance(links, str):
        refuse(f"{where}.links must be a list of pairs, not {links!r}")
    found = [_link(graph, pair, f"{where}.links[{index}]") for index, pair in enumerate(links)]
    return list(itertools.chain.from_iterable(found))


def _cut(graph: nx.DiGraph, rule: Mapping[str, Any], where: str) -> list[Edge]:
    """Return the edges that an outage takes down."""
    meant = [key for key in _WHERE if rule.get(key) is not None]
    if len(meant) != 1:
        refuse(f"{where} must select links by one of {', '.join(_WHERE)}")
    if meant == ["link"]:
        return _link(graph, rule["link"], f"{where}.link")
    if meant == ["site"]:
        inside = _site(graph, rule["site"], f"{where}.site")
        edges = [edge for edge in graph.edges if (edge[0] in inside) != (edge[1] in inside)]
    else:
        groups = rule["partition"]
        if not isinstance(groups, Sequence) or isinstance(groups, str) or len(groups) < 2:
            refuse(f"{where}.partition must be a list of two groups of sites or more")
        group_of: dict[str, int] = {}
        for number, group in enumerate(groups):
            for name in group if isinstance(group, list | tuple) else [group]:
                for node in _site(graph, name, f"{where}.partition"):
                    if group_of.setdefault(node, number) != number:
                        refuse(f"{where}.partition: {name} is in two groups")
        edges = [
            (source, target)
            for source, target in graph.edges
            if source in group_of and target in group_of and group_of[source] != group_of[target]
        ]
    if not edges:
        refuse(f"{where} has no effect: there is no edge to cut")
    return edges


def _link(graph: nx.DiGraph, pair: Any, where: str) -> list[Edge]:
    """Return all edges between two nodes, or else between two sites, in both directions."""
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        refuse(f"{where} must be a pair of sites or nodes, not {pair!r}")
    one, other = (str(end) for end in pair)
    edges = [edge for edge in ((one, other), (other, one)) if graph.has_edge(*edge)]
    if not edges:
        ends = _site(graph, one, where), _site(graph, other, where)
        edges = [
            edge
            for edge in graph.edges
            if any(edge[0] in here and edge[1] in there for here, there in (ends, ends[::-1]))
        ]
    if not edges:
        refuse(f"{where}: nothing joins {one} and {other} directly")
    return edges


def _site(graph: nx.DiGraph, name: Any, where: str) -> set[str]:
    """Return the nodes of a site, or the one node of that name."""
    nodes = {node for node, data in graph.nodes(data=True) if data.get("party") == str(name)}
    if not nodes and str(name) in graph:
        nodes = {str(name)}
    if not nodes:
        refuse(f"{where}: there is no site or node {name}")
    return nodes
