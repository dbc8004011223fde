"""TSEngine: members of a group aggregate and forward among themselves, over currently fast links.

Zhou et al., IEEE TNSM 18(4), 2021; GeoMX's ``ENABLE_INTRA_TS`` and ``ENABLE_INTER_TS``. In a star,
the server's link carries all pushes and answers. Here contributions meet in pairs on the way up,
and members that have a value forward it on the way down; a scheduler forms the pairs by measured
throughput. Sums are equal up to the order of addition, total bytes are equal, and the server's
share of them decreases.

GeoMX's version measures processor time instead of throughput, explores with another probability
than documented, and transfers one key at a time; `tsengine.cc` describes this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Annotated

from annotated_types import Interval, Unit

from geomx.errors import ConfigError
from geomx.network.schedules import usual_mbps
from geomx.network.topology import may_be_narrow
from geomx.plugin import Group, Native, Overlay, Site, native_options
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register

Edge = tuple[str, str]
MESHED = 64
"""Nodes of a group, up to which the links between all of them are looked up."""


@dataclass(frozen=True)
class TSEngineConfig:
    """Options of TSEngine."""

    inter: bool = True
    """Between parties: local servers and each global server, where parties update together."""
    intra: bool = True
    """Inside parties: workers and their local server."""
    push: bool = True
    """Contributions are added on the way up."""
    pull: bool = True
    """Values are forwarded on the way down."""
    greed: Annotated[float, Interval(ge=0, le=1), Unit("probability")] = 0.9
    """Largest probability of taking the fastest known pair instead of exploring."""
    expiry_rounds: Annotated[int, Interval(ge=1, le=2**31 - 1), Unit("rounds")] = 5
    """Age at which a throughput sample is discarded."""
    ahead: bool = True
    """Rounds are planned before they begin, along trees or the star, where that pays; otherwise
    every transfer is ordered when it becomes possible."""
    in_flight: Annotated[int, Interval(ge=1, le=2**31 - 1), Unit("transfers")] = 2
    """Limit on the transfers that a node sends, or receives, at a time; one per shard."""

    def __post_init__(self) -> None:
        if not (self.inter or self.intra) or not (self.push or self.pull):
            raise ConfigError(
                "inter", self.inter, "set inter or intra, and push or pull; or leave tsengine out"
            )


class TSEngine:
    """Aggregation and dissemination trees that follow the throughput of links."""

    lossless = True

    def __init__(self, config: TSEngineConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_overlay(self, group: Group) -> Overlay | None:
        """Return a coordinator: on a party's server, or on the scheduler for all servers."""
        config = self.config
        within = group.level == "party"
        if not (config.intra if within else config.inter):
            return None
        host = group.root if within else group.scheduler
        options = native_options(config, **dict(_options(group)))
        site = Site(host, Native("coordinator", "tsengine", options))
        return Overlay(site, push=config.push, pull=config.pull, ahead=config.ahead)


def _options(group: Group) -> Iterator[tuple[str, float]]:
    """Yield the members of a group and, between parties, what the network file says of its links.

    Every pair of nodes has links of its own: one out of the sender's site and one into the
    receiver's. Only where that is not so, their numbers are passed for each pair.
    """
    for member in group.members:
        yield f"member {member.id}", 1.0
    if group.kind != "wan":
        return
    cluster = group.cluster
    nodes = [*cluster.global_servers, *group.members]
    pairs = [
        (source, target)
        for source, target in permutations(nodes, 2)
        if not source.role == target.role == "global_server"
    ]
    if len(nodes) > MESHED:
        pairs = [pair for pair in pairs if "global_server" in (pair[0].role, pair[1].role)]
    numbers: dict[Edge, int] = {}
    routes = {}
    for source, target in pairs:
        path = cluster.path(source, target)
        yield f"delay {source.id} {target.id}", path.delay_s
        routes[source, target] = [edge for edge in path.edges if may_be_narrow(cluster, edge)]
        for edge in routes[source, target]:
            if edge not in numbers:
                numbers[edge] = len(numbers)
                yield f"rate {numbers[edge]}", 125e3 * usual_mbps(cluster.graph.edges[edge])
    own: dict[tuple[str, int], Edge] = {}
    for (source, target), route in routes.items():
        if len(route) == 2:
            own.setdefault(("out", source.id), route[0])
            own.setdefault(("in", target.id), route[1])
    for (way, node), edge in own.items():
        yield f"{way} {node}", float(numbers[edge])
    for (source, target), route in routes.items():
        if route == [own.get(("out", source.id)), own.get(("in", target.id))]:
            continue
        if not route:
            yield f"alone {source.id} {target.id}", 1.0
        for position, edge in enumerate(route):
            yield f"route {source.id} {target.id} {position}", float(numbers[edge])


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[tsengine]``."""
    register("accel", "tsengine", TSEngineConfig, TSEngine)
