"""Effects of changes: the run's overrides, simulated again with one thing changed.

Only sizes and times are simulated, so a change costs a fraction of a second. The changes follow
from the critical path: the edges that limit it are doubled one by one, together, and with the
corresponding edges of other sites; delays between sites are halved and slow workers brought to
speed 1, if they are on the path. In addition, every accelerator that the run lacks is
switched on.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import networkx as nx
from joblib import cpu_count

from geomx.errors import GeomxError
from geomx.explaining.evidence import Edge, Evidence
from geomx.explaining.parts import Part, access_of, edge_name
from geomx.network.named import network_names
from geomx.plugin.registry import Registry
from geomx.results.files import write_network
from geomx.results.results import Results
from geomx.results.words import key_of, of_one_run
from geomx.study.presets import network_alone
from geomx.study.variants import Variant, carry_out
from geomx.terminal.progress import progress

MOST_EDGES = 3
WORTH_TRYING = 0.02
"""Share of the path above which a cause is changed."""
LONG_S = 1.0
"""Duration of a simulation above which several run in parallel processes."""
QUIET = ("track=[]", "sim.max_spans=0")
"""Overrides of every simulation: no timeline, and no trackers, which follow the user's own runs."""
_FILE = re.compile(r"[^\[{]*(/|\.[A-Za-z])[^\[{]*")
"""A value that is probably a path: no list, no table, and it has a folder or a suffix."""


@dataclass(frozen=True)
class Change:
    """One change.

    Attributes:
        name: Its description.
        overrides: Overrides that replace those of the same keys.
        exact: Whether training is numerically unaffected.
    """

    name: str
    overrides: tuple[str, ...]
    exact: bool = True


@dataclass(frozen=True)
class Outcome:
    """Result of a change.

    Attributes:
        change: The change.
        overrides: All overrides that simulate it.
        seconds_per_iteration: Mean without the first and the last; None if it could not be run.
        reason: Why it could not be run; empty if it could.
    """

    change: Change
    overrides: tuple[str, ...]
    seconds_per_iteration: float | None
    reason: str = ""

    @property
    def command(self) -> str:
        """The command line that simulates it."""
        return shlex.join(["python", "-m", "geomx", *self.overrides])


def changes(
    evidence: Evidence, parts: Sequence[Part], folder: Path, registry: Registry
) -> Iterator[Change]:
    """Yield the changes to try.

    Args:
        evidence: The run.
        parts: Parts of its critical path.
        folder: Folder for the files of changed networks.
        registry: Source of the accelerators.
    """
    networks = _Networks(evidence.graph, folder, evidence.results)
    whole = sum(part.seconds for part in parts) or 1.0
    enough = WORTH_TRYING * whole
    limits: dict[Edge, float] = defaultdict(float)
    ways: dict[tuple[str, str], dict[Edge, float]] = defaultdict(lambda: defaultdict(float))
    held_up = 0.0
    for part in parts:
        held_up += part.delay if part.where == "wan" else 0.0
        for edge, seconds in part.limits.items():
            if edge is None:
                held_up += seconds
                continue
            limits[edge] += seconds
            if access := access_of(edge):
                ways[part.what, access[0]][edge] += seconds
    most = sorted((e for e in limits if limits[e] >= enough), key=lambda e: -limits[e])
    for edge in most[:MOST_EDGES]:
        yield Change(f"{edge_name(edge)} doubled", networks.doubled([edge]))
    if len(most) > 1:
        names = " and ".join(edge_name(edge) for edge in most[:MOST_EDGES])
        yield Change(f"{names} doubled", networks.doubled(most[:MOST_EDGES]))
    for kind, name in sorted(ways, key=lambda way: -sum(ways[way].values())):
        edges = _siblings(evidence, kind, name, ways[kind, name])
        if sum(ways[kind, name].values()) >= enough and len(edges) > 1:
            yield Change(f"the {name}s of {len(edges)} sites doubled", networks.doubled(edges))
    if held_up >= enough:
        yield Change("delays between sites halved", networks.nearer())
    slow = [w for w, speed in evidence.speed.items() if speed < 1.0]
    if any(p.what == "compute" and p.where in slow and p.seconds >= enough for p in parts):
        name = f"{slow[0]} at speed 1" if len(slow) == 1 else f"{len(slow)} slow workers at speed 1"
        yield Change(name, networks.faster(slow))
    present = [item["name"] for item in evidence.results.summary["accel"]]
    for plugin in registry.plugins("accel"):
        if plugin.name not in present:
            together = ",".join([*present, plugin.name])
            overrides = (f"accel=[{together}]",)
            yield Change(f"{plugin.name} switched on", overrides, plugin.lossless)


def _siblings(evidence: Evidence, kind: str, name: str, limits: Mapping[Edge, float]) -> list[Edge]:
    """Return up- or downlinks with messages of `kind` and at most the bandwidth of `limits`."""

    def mbps(edge: Edge) -> float:
        limit: float = evidence.graph.edges[edge].get("bandwidth_mbps", math.inf)
        return limit

    widest = max(map(mbps, limits))
    crossed = [edge for edge in evidence.crossed(kind) if (access_of(edge) or ("",))[0] == name]
    return [edge for edge in crossed if mbps(edge) <= widest]


def outcomes(
    run: Results, tried: Sequence[Change], registry: Registry, script: Sequence[str] = ()
) -> tuple[Outcome, list[Outcome]]:
    """Simulate a run as it is and with every change.

    Args:
        run: The run.
        tried: The changes.
        registry: The installed plugins.
        script: Overrides of a workload in place of the run's script, if it has one.

    Returns:
        The run as it is, and the changes, the fastest first, those that cannot be run last.

    Raises:
        GeomxError: The run itself cannot be simulated (any more).
    """
    # Words of `study` stay: study=null keeps a variant from asking for its whole study again.
    kept = [
        override
        for override in _overrides(run, registry)
        if not of_one_run(override)
        and key_of(override) != "resume"  # simulations begin anew
        and not (script and key_of(override).split(".")[0] == "workload")
    ]
    base = _replaced(kept, ("mode=sim", "numerics=false", *script))
    lines = {Change("as it is", ()): base}
    lines |= {change: _replaced(base, change.overrides) for change in tried}
    done = []
    with (
        TemporaryDirectory(prefix="geomx-explain-") as place,
        progress(len(lines), "what if") as go,
    ):
        waiting = [
            Variant(tuple(_replaced(line, QUIET)), (), Path(place) / str(number))
            for number, line in enumerate(lines.values())
        ]
        reasons: dict[Path, str] = {}
        jobs = 1
        while waiting:
            now, waiting = (waiting[:1], waiting[1:]) if not reasons else (waiting, [])
            for directory, reason in carry_out(now, jobs):
                reasons[directory] = reason
                go(1)
            first = Path(place) / "0"
            if reasons[first]:
                told = reasons[first] + _remedy(base, reasons[first])
                raise GeomxError(f"changes cannot be simulated: {told}")
            took_s = Results.load(first).summary["wall_seconds"]
            jobs = cpu_count() if took_s > LONG_S else 1
        for number, (change, line) in enumerate(lines.items()):
            directory = Path(place) / str(number)
            reason = reasons[directory]
            seconds = None
            if not reason:
                seconds = _mean_s(Results.load(directory))
            done.append(Outcome(change, tuple(line), seconds, reason))
    order = sorted(
        done[1:],
        key=lambda one: (one.seconds_per_iteration is None, one.seconds_per_iteration or 0.0),
    )
    return done[0], order


def _overrides(run: Results, registry: Registry) -> list[str]:
    """Return the overrides of a run, with its own ``network.json`` in place of a network file.

    That file may be elsewhere, since its path is relative to the folder where the run was started,
    and may have changed since.
    """
    said = [str(override) for override in run.summary.get("words", ())]
    named = {*network_names(), *(plugin.name for plugin in registry.plugins("network"))}
    if all(word.partition("=")[2] in named for word in said if key_of(word) == "network"):
        return said
    return _replaced(said, _own_network(run))


def _own_network(run: Results) -> tuple[str, ...]:
    """Return overrides that choose the network of a run as it was used."""
    file = (run.directory / "network.json").resolve()
    words = [str(override) for override in run.summary.get("words", ())]
    return network_alone(words, file)


def _remedy(overrides: Sequence[str], reason: str) -> str:
    """Return what to do if overrides were refused because a file of theirs is not there."""
    paths = (override.partition("=")[2] for override in overrides)
    if any(_FILE.fullmatch(path) and path in reason and not Path(path).exists() for path in paths):
        return "; put the file there, or call geomx explain in the folder where the run was started"
    return ""


def _mean_s(run: Results) -> float:
    """Return seconds per iteration, without the first and the last if there are others."""
    last = max(row["iteration"] for row in run.iterations)
    inner = [row for row in run.iterations if 0 < row["iteration"] < last] or run.iterations
    spent_s: float = sum(row["end_s"] - row["start_s"] for row in inner)
    return spent_s / len(inner)


def _replaced(overrides: Sequence[str], own: Sequence[str]) -> list[str]:
    """Return `overrides` with `own` in place of those of the same keys.

    Options of a network or of trackers that `own` replaces are removed.
    """
    keys = {key_of(override) for override in own}
    tops = keys & {"network", "track"}
    kept = [w for w in overrides if key_of(w) not in keys and key_of(w).split(".")[0] not in tops]
    return [*kept, *own]


class _Networks:
    """Files of the run's network with one change each."""

    def __init__(self, graph: nx.DiGraph, folder: Path, run: Results) -> None:
        self._graph, self._folder = graph, folder
        _, *self._alone = _own_network(run)
        for old in folder.glob("*.json"):  # of an earlier explanation
            old.unlink()

    def doubled(self, edges: Sequence[Edge]) -> tuple[str, ...]:
        """Double the bandwidth of `edges`, schedules included; return the override."""
        graph = self._graph.copy()
        for edge in edges:
            data = graph.edges[edge]
            if "bandwidth_mbps" in data:
                data["bandwidth_mbps"] *= 2
            if "trace" in data:
                data["trace"] = [[time_s, 2 * mbps] for time_s, mbps in data["trace"]]
            if "redraw" in data:
                twice = {key: 2 * data["redraw"][key] for key in ("low_mbps", "high_mbps")}
                data["redraw"] = {**data["redraw"], **twice}
        more = f" and {len(edges) - 1} more" if len(edges) > 1 else ""
        return self._written(graph, f"double {' to '.join(edges[0])}{more}")

    def nearer(self) -> tuple[str, ...]:
        """Halve the delays between routers; return the override."""
        graph = self._graph.copy()
        kinds = graph.nodes(data="kind", default="router")
        for source, target, data in graph.edges(data=True):
            if kinds[source] == kinds[target] == "router" and data.get("delay_ms"):
                data["delay_ms"] /= 2
        return self._written(graph, "half delays")

    def faster(self, workers: Sequence[str]) -> tuple[str, ...]:
        """Set the speed of `workers` to 1; return the override."""
        graph = self._graph.copy()
        for worker in workers:
            graph.nodes[worker]["speed"] = 1.0
        return self._written(graph, "speed 1")

    def _written(self, graph: nx.DiGraph, name: str) -> tuple[str, ...]:
        self._folder.mkdir(parents=True, exist_ok=True)
        safe = "".join(letter if letter.isalnum() else "_" for letter in name)
        path = self._folder / f"{safe}.json"
        while path.exists():
            path = path.with_stem(f"{path.stem}_")
        write_network(path, graph)
        return (f"network={path}", *self._alone)
