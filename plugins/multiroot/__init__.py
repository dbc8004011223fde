"""multiroot: several roots, each shard with its own trees over links measured to be fast.

Li et al., "Accelerating Geo-distributed Machine Learning with Network-Aware Adaptive Tree and
Auxiliary Route" (NetStorm), 2024. Global servers at several parties are the roots. Tensors are
divided into shards, which are divided over the roots, and each round of a shard has two trees among
the parties: contributions are added along one, the new value is forwarded along the other. Trees
are made from the measured rates of links and from what other trees still send over them, so that
the shards of a round use all links in proportion to their rates. NetStorm gives each root one tree
and sends overdue chunks along auxiliary routes; here every shard may take another tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, permutations
from typing import Annotated

from annotated_types import Ge, Interval, Unit

from geomx.cluster import Cluster, NodeSpec
from geomx.network.schedules import usual_mbps
from geomx.network.topology import may_be_narrow, with_global_servers_at
from geomx.plugin import (
    Group,
    Native,
    Overlay,
    Partitioner,
    Shard,
    Site,
    cut_evenly,
    native_options,
)
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register
from geomx.workload import TensorSpec

Edge = tuple[str, str]


@dataclass(frozen=True)
class MultiRootConfig:
    """Options of multiroot."""

    roots: Annotated[int, Interval(ge=1, le=256), Unit("global servers")] = 3
    """Number of roots, each at another party; fewer if there are fewer parties."""
    own: bool = False
    """Global servers of the network are roots too, even at a site that does not train, and come
    first. By default only those at parties stay."""
    shard_elements: Annotated[int, Ge(1), Unit("elements")] = 262_144
    """Tensors are divided into shards of at most this size, each with trees of its own."""
    trees: bool = True
    """Parties add and forward for each other; otherwise each root is the centre of a star."""
    expiry_rounds: Annotated[int, Interval(ge=1, le=2**31 - 1), Unit("rounds")] = 5
    """Age at which a link's measured rate is no longer trusted."""


@dataclass(frozen=True)
class Pieces(Partitioner):
    """Divides tensors into shards of at most `elements`."""

    elements: int

    def cut(self, tensor: TensorSpec, priority: int, shards: Sequence[Shard]) -> list[Shard]:
        """See `Partitioner.cut`. Shards from earlier partitioners may be divided further."""
        return [piece for shard in shards for piece in cut_evenly(shard, self.elements)]


class MultiRoot:
    """Roots at several parties, and trees that follow the rates of links."""

    lossless = True

    def __init__(self, config: MultiRootConfig) -> None:
        self.config = config
        self._found: tuple[Cluster, Native] | None = None

    @hookimpl
    def geomx_cluster(self, cluster: Cluster) -> Cluster:
        """Place the global servers at parties."""
        sites = {party.name for party in cluster.parties}
        servers = cluster.global_servers
        kept = [each for each in servers if self.config.own or each.party in sites]
        places = [each.name for each in kept[: self.config.roots]]
        taken = {each.party for each in kept}
        free = [party for party in cluster.parties if party.name not in taken]
        free.sort(key=lambda party: _reach(cluster, party.name), reverse=True)
        missing = self.config.roots - len(places)
        return with_global_servers_at(
            cluster, [*places, *(party.server.name for party in free[:missing])]
        )

    @hookimpl
    def geomx_partitioner(self) -> Partitioner:
        """Divide tensors."""
        return Pieces(self.config.shard_elements)

    @hookimpl
    def geomx_overlay(self, group: Group) -> Overlay | None:
        """Return the coordinator of all roots, on the scheduler."""
        if group.level != "global" or not self.config.trees:
            return None
        if self._found is None or self._found[0] is not group.cluster:  # the same for all roots
            options = native_options(self.config, **dict(_options(group.cluster, group.members)))
            self._found = group.cluster, Native("coordinator", "multiroot", options)
        return Overlay(Site(group.scheduler, self._found[1]))


def _reach(cluster: Cluster, party: str) -> tuple[int, float]:
    """Return the number of a party's links that may be narrow, and their bandwidth in Mbit/s."""
    edges = cluster.graph.edges(data=True)
    party_of = cluster.graph.nodes(data="party")
    widths = [
        usual_mbps(data)
        for source, target, data in edges
        if party_of[source] == party and may_be_narrow(cluster, (source, target))
    ]
    return len(widths), sum(widths)


def _options(cluster: Cluster, members: Sequence[NodeSpec]) -> Iterator[tuple[str, float]]:
    """Yield the members, and of all pairs of nodes in trees the delay and the links on the route.

    The delay, in seconds, is that from an order to the report of the transfer's end: from the
    scheduler to the sender, to the receiver, and to the scheduler.
    """
    scheduler = cluster.scheduler
    numbers: dict[Edge, int] = {}
    fresh = count()
    for member in members:
        yield f"member {member.id}", 1.0
    for source, target in permutations([*cluster.global_servers, *members], 2):
        if source.role == target.role == "global_server":
            continue
        legs = ((scheduler, source), (source, target), (target, scheduler))
        yield f"route {source.id} {target.id}", sum(cluster.path(*leg).delay_s for leg in legs)
        edges = cluster.path(source, target).edges
        links = [edge for edge in edges if may_be_narrow(cluster, edge)]
        for position, edge in enumerate(links):
            if edge not in numbers:
                numbers[edge] = next(fresh)
            yield f"route {source.id} {target.id} {position}", float(numbers[edge])


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``accel=[multiroot]``."""
    register("accel", "multiroot", MultiRootConfig, MultiRoot)
