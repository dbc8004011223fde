"""How long workers' steps take, as a multiple of the usual time: rules of a network file.

``steps`` is a list of rules beside ``nodes`` or ``parties``, each of which applies to its
``workers`` (names of workers or sites; all if missing) and has one of:

``lognormal``
    ``{sigma}``: log-normal with a median of 1.
``uniform``
    ``{low, high}``: uniform between the two.
``exponential``
    ``{mean}``: 1 plus an exponential time with this mean, the usual model of stragglers (Lee et
    al., "Speeding up distributed machine learning using codes", 2018).
``pareto``
    ``{shape}``: Pareto with a minimum of 1.
``stragglers``
    ``{share, times, steps}``: with the probability `share`, a block of `steps` consecutive steps (1
    if missing) takes `times` as long.
``trace``
    A list of multiples, or a CSV file with the column ``times``: one after the other, then again.

Rules of one worker multiply. `geomx.training.step_times` draws, in both modes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx

from geomx.errors import near
from geomx.network.csv_rows import csv_rows
from geomx.network.validators import (
    count,
    known_keys,
    not_negative,
    positive,
    probability,
    refuse,
    required,
    table,
)

STEPS = "steps"
COLUMN = "times"
MOST_TIMES = 1e6


def draws_steps(graph: nx.DiGraph) -> bool:
    """Return whether a network has rules for any worker.

    Args:
        graph: The network, checked.
    """
    return any(data.get(STEPS) for _, data in graph.nodes(data=True))


def spread_steps(graph: nx.DiGraph, folder: Path) -> None:
    """Check the rules of a network and of its nodes, and turn the former into the latter's.

    Args:
        graph: Nodes have their ``kind`` and ``party``. The attribute ``steps`` is removed.
        folder: Base of relative paths of traces.

    Raises:
        NetworkError: A rule is invalid, or applies to no worker, or a node that is none has one.
    """
    workers = {node: data for node, data in graph.nodes(data=True) if data["kind"] == "worker"}
    for node, data in graph.nodes(data=True):
        if STEPS in data:
            if data["kind"] != "worker":
                kind = data["kind"].replace("_", " ")
                refuse(f"{STEPS} of node {node}: a {kind} makes no steps; give workers the rule")
            own = _rules(data[STEPS], f"{STEPS} of node {node}", folder)
            if any("workers" in rule for rule in own):
                refuse(f"{STEPS} of node {node}: workers is for the rules of the whole network")
            data[STEPS] = own
    for rule in _rules(graph.graph.pop(STEPS, None) or [], STEPS, folder):
        chosen = rule.pop("workers", None)
        for name in _chosen(workers, chosen):
            workers[name][STEPS] = [*workers[name].get(STEPS, ()), rule]


def _chosen(workers: Mapping[str, Mapping[str, Any]], chosen: Any) -> Sequence[str]:
    if chosen is None:
        return list(workers)
    named = [chosen] if isinstance(chosen, str) else chosen
    if not isinstance(named, Sequence) or not named:
        refuse(f"{STEPS}: workers must be a list of workers or sites, not {chosen!r}")
    found: dict[str, None] = {}
    for name in map(str, named):
        here = [worker for worker, data in workers.items() if name in (worker, data.get("party"))]
        if not here:
            known = [*workers, *(str(data.get("party")) for data in workers.values())]
            refuse(f"{STEPS}: there is no worker or site {name}; {near(name, known)}")
        found |= dict.fromkeys(here)
    return list(found)


def _rules(given: Any, where: str, folder: Path) -> list[dict[str, Any]]:
    listed = [given] if isinstance(given, Mapping) else given
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        refuse(f"{where} must be a list of rules, not {given!r}")
    return [_rule(rule, f"{where}[{number}]", folder) for number, rule in enumerate(listed)]


def _rule(given: Any, where: str, folder: Path) -> dict[str, Any]:
    known_keys(table(given, where), (*KINDS, "workers", "seed"), where)
    kinds = [kind for kind in KINDS if given.get(kind) is not None]
    if len(kinds) != 1:
        refuse(f"{where} must have one of {', '.join(KINDS)}")
    rule: dict[str, Any] = {
        kinds[0]: KINDS[kinds[0]](given[kinds[0]], f"{where}.{kinds[0]}", folder)
    }
    if given.get("workers") is not None:
        rule["workers"] = given["workers"]
    if given.get("seed") is not None:
        rule["seed"] = count(given["seed"], f"{where}.seed", 0)
    return rule


def _multiple(value: Any, what: str) -> float:
    number = positive(value, what)
    if number > MOST_TIMES:
        refuse(f"{what} is {value}; it must be at most {MOST_TIMES:,.0f}")
    return number


def _numbers(
    value: Any, where: str, checks: Mapping[str, Callable[[Any, str], float]]
) -> dict[str, float]:
    known_keys(table(value, where), tuple(checks), where)
    return {
        key: check(required(value, key, where), f"{where}.{key}") for key, check in checks.items()
    }


def _lognormal(value: Any, where: str, folder: Path) -> dict[str, float]:
    rule = _numbers(value, where, {"sigma": not_negative})
    if rule["sigma"] > 3:
        refuse(f"{where}.sigma is {value['sigma']}; it must be at most 3")
    return rule


def _uniform(value: Any, where: str, folder: Path) -> dict[str, float]:
    rule = _numbers(value, where, {"low": _multiple, "high": _multiple})
    if rule["low"] > rule["high"]:
        refuse(f"{where}.high is {value['high']}; it must be low or more")
    return rule


def _exponential(value: Any, where: str, folder: Path) -> dict[str, float]:
    return _numbers(value, where, {"mean": _multiple})


def _pareto(value: Any, where: str, folder: Path) -> dict[str, float]:
    rule = _numbers(value, where, {"shape": positive})
    if not 1 <= rule["shape"] < math.inf:
        refuse(f"{where}.shape is {value['shape']}; it must be 1 or more")
    return rule


def _stragglers(value: Any, where: str, folder: Path) -> dict[str, float]:
    given = table(value, where).get("steps")
    steps = 1 if given is None else count(given, f"{where}.steps", 1)
    rest = {key: inner for key, inner in value.items() if key != "steps"}
    return _numbers(rest, where, {"share": probability, "times": _multiple}) | {"steps": steps}


def _trace(value: Any, where: str, folder: Path) -> list[float]:
    rows = value
    if isinstance(value, str | Path):
        rows = [row[0] for row in csv_rows(folder / value, (COLUMN,), where, str(value))]
    if not isinstance(rows, Sequence) or not rows:
        refuse(f"{where} must be a file or a list of multiples, not {value!r}")
    return [_multiple(number, f"row {row + 1} of {where}") for row, number in enumerate(rows)]


KINDS: dict[str, Callable[[Any, str, Path], Any]] = {
    "lognormal": _lognormal,
    "uniform": _uniform,
    "exponential": _exponential,
    "pareto": _pareto,
    "stragglers": _stragglers,
    "trace": _trace,
}
