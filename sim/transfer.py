"""Transfer times by the flow model alone, on any networkx graph.

`transfer_times` is the simulator's network without the simulator: it takes independent flows with
their start times and returns their arrival times. The model is tested through it (closed forms,
SimGrid's results, real TCP), and it is useful as a calculator. The arithmetic is native; this
module converts a graph to edges and routes and checks the arguments.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx

from geomx import _core
from geomx.errors import ConfigError
from geomx.network.links import CONGESTION, PAYLOAD_SHARE
from geomx.network.schedules import EDGE_CHANGES, LATEST_S, check_changes, schedule
from geomx.network.validators import NetworkError
from geomx.network.warnings import warn_of_uneven_round_trips
from geomx.options.schema import TcpOptions
from geomx.sim.numbers import as_number

MODELS = ("tcp", "maxmin", "LV08", "CM02")
WINDOW_BYTES = float(TcpOptions().window_bytes)
"""Effective window of a default Linux sender (4 MiB tcp_wmem)."""

Node = Hashable
Pair = tuple[Node, Node]


def transfer_times(
    graph: nx.Graph,
    flows: Iterable[tuple[Node, Node, float, float]],
    *,
    model: str = "tcp",
    paths: Mapping[Pair, Sequence[Node]] | None = None,
    congestion: str = "bbr",
    streams: int = 1,
    window_bytes: float = WINDOW_BYTES,
    efficiency: float = PAYLOAD_SHARE,
    reverse_share: float = 0.0,
    new_connections: bool = True,
    fifo: bool = False,
    seed: int = 0,
) -> list[float]:
    """Return the times at which the last byte of each flow arrives.

    Args:
        graph: Edges carry ``bandwidth_mbps`` (absent: unlimited), ``delay_ms`` (one way; absent: 0)
            and, for the TCP model, ``loss`` (share of the packets) and what changes the bandwidth
            over time: ``trace``, ``redraw``, ``outages`` (`geomx.network.schedules`). An undirected
            edge counts both ways, with its full bandwidth each.
        flows: ``(source, target, bytes, start_s)`` per flow; bytes of payload.
        model: ``"tcp"``: handshake, window and payload share, with max-min sharing between the
            connections (runtime_cpp/net/ramp.h lists the formulas). ``"maxmin"``: sharing alone,
            delays ignored. ``"CM02"``, ``"LV08"``: SimGrid's models with its constants.
        paths: Node lists for ordered pairs that do not use the shortest path by delay.
        congestion: ``"bbr"``, ``"cubic"`` or ``"reno"``; decides sharing weights, idle behaviour
            and the effect of loss. TCP only, like all that follow.
        streams: Parallel connections that carry each flow.
        window_bytes: Limit on the bytes in flight of a connection; infinite for no window.
        efficiency: Payload bytes per byte on an edge, above 0 and at most 1.
        reverse_share: Bytes of acknowledgements on the way back per byte sent; 0.0173 with
            timestamps and one per two segments.
        new_connections: True: each flow opens its own connection and pays a handshake. False: the
            flows of a pair follow each other on one connection that is open from the beginning.
        fifo: Whether edges are FIFO queues, which connections under bbr share by their rates of
            sending (docs/model.md).
        seed: Of redraws and random outages.

    Returns:
        Finish times in seconds, in the order of `flows`; infinite if the route has an edge of
        bandwidth 0, and with TCP also if the transfer takes longer than 4.6e9 s.

    Raises:
        ConfigError: An unknown model or congestion control, a node that is not in the graph, a pair
            without a path, a flow of another form, a size, start or edge attribute out of range.

    Example:
        Two flows of 1 MB share 8 Mbit/s; TCP adds headers, a handshake and a growing window.

        >>> graph = nx.Graph()
        >>> graph.add_edge("here", "there", bandwidth_mbps=8, delay_ms=50)
        >>> flows = [("here", "there", 1e6, 0.0), ("here", "there", 1e6, 0.0)]
        >>> transfer_times(graph, flows, model="maxmin")
        [2.0, 2.0]
        >>> [round(seconds, 2) for seconds in transfer_times(graph, flows)]
        [2.33, 2.33]
    """
    if model not in MODELS:
        raise ConfigError("model", model, f"one of {', '.join(MODELS)}")
    if congestion not in CONGESTION:
        raise ConfigError("congestion", congestion, f"one of {', '.join(CONGESTION)}")
    if not streams >= 1:
        raise ConfigError("streams", streams, "must be 1 or more")
    if not window_bytes > 0:
        raise ConfigError("window_bytes", window_bytes, "must be more than 0")
    if not 0 < efficiency <= 1:
        raise ConfigError("efficiency", efficiency, "must be above 0 and at most 1")
    if not 0 <= reverse_share < math.inf:
        raise ConfigError("reverse_share", reverse_share, "must be 0 or more")
    routes = _Routes(graph, paths or {}, seed)
    if model != "tcp":
        for (source, target), bandwidth in zip(routes.edges, routes.schedules, strict=True):
            if bandwidth.next(0.0) is not None:
                remedy = f"the bandwidth of {source} -> {target} changes; only tcp supports that"
                raise ConfigError("model", model, remedy)
    route_of_flow: list[int] = []
    sizes: list[float] = []
    starts: list[float] = []
    for index, flow in enumerate(flows):
        try:
            source, target, size, start_s = flow
            sizes.append(float(size))
            starts.append(float(start_s))
        except (TypeError, ValueError) as error:
            remedy = f"must be (source, target, bytes, start_s): {error}"
            raise ConfigError(f"flows[{index}]", flow, remedy) from error
        if not 0 <= sizes[-1] < math.inf:
            raise ConfigError(f"flows[{index}].bytes", size, "must be 0 or more")
        if not starts[-1] >= 0:
            raise ConfigError(f"flows[{index}].start_s", start_s, "must be 0 or more")
        if starts[-1] > LATEST_S:
            raise ConfigError(f"flows[{index}].start_s", start_s, f"must be at most {LATEST_S:.0f}")
        route_of_flow.append(routes.index(source, target))
    if model == "tcp":
        warn_of_uneven_round_trips(congestion, routes.ways())
    plan = (*routes.native(), route_of_flow, sizes, starts)
    if model != "tcp":
        return list(_core.fluid_transfers(model, *plan))
    return list(
        _core.tcp_transfers(
            congestion,
            streams,
            window_bytes,
            efficiency,
            reverse_share,
            new_connections,
            fifo and congestion == "bbr",
            *plan,
        )
    )


class _Routes:
    """The edges of a graph by number, and the routes of flows, each computed once."""

    def __init__(self, graph: nx.Graph, paths: Mapping[Pair, Sequence[Node]], seed: int) -> None:
        if graph.is_multigraph():
            raise ConfigError("graph", type(graph).__name__, "must be a Graph or a DiGraph")
        self._graph = graph if graph.is_directed() else graph.to_directed(as_view=True)
        self._given = paths
        self._shortest: dict[Node, dict[Node, list[Node]]] = {}
        self._routes: dict[Pair, int] = {}
        self.edges: dict[Pair, int] = {}
        self.schedules: list[_core.BandwidthSchedule] = []
        self._delays_ms: list[float] = []
        self._losses: list[float] = []
        for source, target, attributes in self._graph.edges(data=True):
            self.edges[source, target] = len(self.edges)
            name = f"{source} -> {target}"
            self.schedules.append(_schedule(attributes, name, seed))
            self._delays_ms.append(_number(attributes, "delay_ms", 0.0, name))
            self._losses.append(_number(attributes, "loss", 0.0, name))

    def index(self, source: Node, target: Node) -> int:
        """Return the number of the route from `source` to `target`."""
        known = self._routes.get((source, target))
        if known is not None:
            return known
        for node in (source, target):
            if node not in self._graph:
                raise ConfigError("flows", node, "no such node in the graph")
        if self._path(source, target) is None:
            raise ConfigError("flows", f"{source}->{target}", "there is no path between the two")
        return self._routes.setdefault((source, target), len(self._routes))

    def native(
        self,
    ) -> tuple[
        list[_core.BandwidthSchedule], list[float], list[list[int]], list[list[int]], list[float]
    ]:
        """Return bandwidth and delay per edge; path, reverse path and loss per route."""
        paths = [self._path(source, target) or [] for source, target in self._routes]
        reverses = [self._path(target, source) or [] for source, target in self._routes]
        losses = [1 - math.prod(1 - self._losses[edge] for edge in path) for path in paths]
        delays_s = [delay_ms / 1000 for delay_ms in self._delays_ms]
        return self.schedules, delays_s, paths, reverses, losses

    def ways(self) -> Iterator[tuple[list[Pair], float]]:
        """Yield the limited edges and the round-trip time in seconds of every route."""
        names = list(self.edges)
        for source, target in self._routes:
            there = self._path(source, target) or []
            back = self._path(target, source) or there
            limited = [names[edge] for edge in there if self.schedules[edge].at(0.0) < math.inf]
            yield limited, sum(self._delays_ms[edge] / 1000 for edge in (*there, *back))

    def _delay_ms(self, source: Node, target: Node, _: object) -> float:
        return self._delays_ms[self.edges[source, target]]

    def _path(self, source: Node, target: Node) -> list[int] | None:
        nodes = self._given.get((source, target))
        if nodes is None:
            if source not in self._shortest:
                self._shortest[source] = nx.single_source_dijkstra_path(
                    self._graph, source, weight=self._delay_ms
                )
            nodes = self._shortest[source].get(target)
            if nodes is None:
                return None
        elif len(nodes) == 0 or nodes[0] != source or nodes[-1] != target:
            raise ConfigError("paths", f"{source}->{target}", "must begin and end with its pair")
        hops = list(itertools.pairwise(nodes))
        for hop in hops:
            if hop not in self.edges:
                raise ConfigError("paths", f"{source}->{target}", f"no edge {hop[0]}->{hop[1]}")
        return [self.edges[hop] for hop in hops]


def _schedule(attributes: Mapping[str, Any], edge: str, seed: int) -> _core.BandwidthSchedule:
    """Return an edge's bandwidth schedule; without any attribute it is unlimited."""
    data = {key: attributes[key] for key in EDGE_CHANGES if key in attributes}
    if attributes.get("bandwidth_mbps") is not None:
        data["bandwidth_mbps"] = _number(attributes, "bandwidth_mbps", math.inf, edge)
    try:
        check_changes(f"edge {edge}", data, Path())
    except NetworkError as error:
        raise ConfigError("graph", edge, str(error)) from error
    return schedule(data, edge, seed)


def _number(attributes: Mapping[str, Any], key: str, default: float, edge: str) -> float:
    """Return an edge's attribute as a number, 0 or more."""
    value = attributes.get(key)
    if value is None:
        return default
    try:
        number = float(value) if isinstance(value, str) else as_number(value)
    except ValueError:
        number = math.nan
    if not number >= 0 or (key == "loss" and number >= 1) or (key == "delay_ms" and number > 1e9):
        raise ConfigError(f"{key} of {edge}", value, "out of range")
    return number
