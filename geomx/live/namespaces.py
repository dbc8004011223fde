"""The emulated network of ``emulate=netns``, and the process that forwards its packets.

Every site has its own network namespace, whose uplink is a TUN device that this process,
``python -m geomx.live.namespaces``, reads. It forwards each packet over the edges of the graph
between the two nodes (`geomx._core.Router`). Paths that share an edge in the network file share its
queue, and the kernel's TCP adapts to the bottleneck. The namespaces have no names, so the kernel
removes everything when the process ends, even if it is killed.

Nodes of a site communicate over the loopback of its namespace, at the speed of this machine. If a
LAN is slower than that, each of its nodes has its own namespace, and the LAN's edges are emulated
too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from geomx import _core
from geomx.cluster import Cluster, NodeSpec
from geomx.experiment.wiring import peers
from geomx.live.lifetime import tie_to_parent
from geomx.live.spec import Spec
from geomx.live.wan_events import Place, WanEvents, traffic
from geomx.network.links import Edge, edge_model
from geomx.network.schedules import BYTES_PER_MBIT, EDGE_CHANGES
from geomx.plugin.registry import Registry

FIRST_ADDRESS = 10 << 24 | 1
"""10.0.0.1. Each run has its own address space."""

LOOPBACK_MBPS = 2500.0
LOOPBACK_DELAY_MS = 0.5
"""LANs with at least this bandwidth, and at most loopback's delay, are not emulated."""

QUEUE_ROUND_TRIPS = 2
"""Queue limit in round trips. bbr keeps up to one in a queue, and starts with up to two; measured,
see docs/networks.md."""

SHORTEST_QUEUE_S = 0.25
"""bbr connections that share an edge each queue as much as a single one would; measured."""

SMALLEST_QUEUE = 10 * 1500
WINDOW_SHARE = 2_750_000 / 4_194_304
"""Unacknowledged bytes of a connection divided by the size of its send buffer; docs/networks.md."""


def address(node: NodeSpec) -> str:
    """Return the IPv4 address of a node."""
    return _text(FIRST_ADDRESS + node.id)


def _text(number: int) -> str:
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


def sites(cluster: Cluster) -> list[list[NodeSpec]]:
    """Return the nodes of the cluster by namespace."""
    made: list[list[NodeSpec]] = []
    by_party: dict[str, list[NodeSpec]] = {}
    for node in cluster.nodes:
        by_party.setdefault(node.party, []).append(node)
    for members in by_party.values():
        pairs = itertools.permutations(members, 2)
        near = all(_as_near_as_loopback(cluster, *pair) for pair in pairs)
        made += [members] if near else [[member] for member in members]
    return made


def _as_near_as_loopback(cluster: Cluster, source: NodeSpec, target: NodeSpec) -> bool:
    way = cluster.path(source, target)
    changes = any(name in cluster.graph.edges[edge] for edge in way.edges for name in EDGE_CHANGES)
    fast = way.bandwidth_bps >= LOOPBACK_MBPS * 1e6 and way.delay_s * 1e3 <= LOOPBACK_DELAY_MS
    return fast and not way.loss and not changes


def settings(window_bytes: float) -> dict[str, str]:
    """Return the kernel's TCP settings in every namespace, by file below /proc/sys/net."""
    buffer = round(window_bytes / WINDOW_SHARE)
    return {
        # Sockets select their own control; those created with bbr would be paced under any other.
        "ipv4/tcp_congestion_control": "reno",
        "ipv4/tcp_wmem": f"4096 {min(16384, buffer)} {buffer}",
        "ipv4/tcp_rmem": f"4096 131072 {max(131072, 8 * buffer)}",
    }


class Ways:
    """The edges between nodes, and the queue limit of each edge.

    Attributes:
        between: The edges from one node to another, for all pairs that use the emulated network.
        of_others: The edges of the traffic of others, and back, by the ends' names in the graph.
        queues: Queue limit in bytes, by edge: the bytes that the edge sends in ``queue_ms``; by
            default in twice the longest round trip over it, but at least 250 ms.
    """

    def __init__(self, spec: Spec) -> None:
        cluster = spec.cluster
        selection = Registry.discover().select(spec.sync, spec.accel)
        site_of = {node: index for index, site in enumerate(sites(cluster)) for node in site}
        pairs = dict.fromkeys(
            pair
            for node in cluster.nodes
            for peer in peers(cluster, selection, node)
            for pair in _in_each_place(cluster, node, peer)
            if site_of[pair[0]] != site_of[pair[1]]
        )
        self.between: dict[tuple[NodeSpec, NodeSpec], tuple[Edge, ...]] = {}
        self.of_others: dict[tuple[str, str], tuple[Edge, ...]] = {}
        longest_s: dict[Edge, float] = {}
        for source, target in pairs:
            self.between[source, target] = _way(cluster, source.name, target.name, longest_s)
        for ends in traffic(spec):
            for one, other in (ends, ends[::-1]):
                self.of_others[one, other] = _way(cluster, one, other, longest_s)
        self.queues = {
            edge: queue_bytes(cluster.graph.edges[edge], rtt_s) for edge, rtt_s in longest_s.items()
        }


def _way(
    cluster: Cluster, source: str, target: str, longest_s: dict[Edge, float]
) -> tuple[Edge, ...]:
    """Return the edges from one node to another; note the longest round trip over each."""
    there, back = cluster.route(source, target), cluster.route(target, source)
    for edge in there.edges:
        longest_s[edge] = max(longest_s.get(edge, 0.0), there.delay_s + back.delay_s)
    return there.edges


def _in_each_place(
    cluster: Cluster, source: NodeSpec, target: NodeSpec
) -> Iterator[tuple[NodeSpec, NodeSpec]]:
    """Yield the two nodes, and the standbys that may take the place of one or both of them."""
    places = [(node, cluster.standby_of(node)) for node in (source, target)]
    for one, other in itertools.product(*places):
        if one is not None and other is not None:
            yield one, other


def queue_bytes(data: Mapping[str, Any], rtt_s: float) -> int:
    """Return the queue limit in bytes of an edge with these attributes; see `Ways`."""
    bandwidth: float = data.get("bandwidth_mbps", float("inf")) * BYTES_PER_MBIT
    if bandwidth == float("inf"):
        bandwidth = LOOPBACK_MBPS * BYTES_PER_MBIT  # an unlimited edge queues only during outages
    queue_s: float = max(QUEUE_ROUND_TRIPS * rtt_s, SHORTEST_QUEUE_S)
    if "queue_ms" in data:
        queue_s = data["queue_ms"] / 1e3
    return max(SMALLEST_QUEUE, round(bandwidth * queue_s))


def build(spec: Spec) -> tuple[_core.Router, list[int], WanEvents]:
    """Build the network of a run.

    Returns:
        The router, a descriptor per site, and what carries out the scenario.

    Raises:
        RuntimeError: This process is not allowed to create namespaces.
    """
    cluster = spec.cluster
    router = _core.Router(spec.seed)
    number = {node.name: FIRST_ADDRESS + node.id for node in cluster.nodes}
    kernel = settings(spec.tcp.window_bytes)
    namespaces = [
        router.add_site([number[node.name] for node in site], kernel) for site in sites(cluster)
    ]
    ways = Ways(spec)
    ids: dict[Edge, int] = {}
    for edge, queue_bytes in ways.queues.items():
        data = cluster.graph.edges[edge]
        schedule, delay_ns = edge_model(cluster, edge, spec.seed)
        jitter_ns = round(data.get("jitter_ms", 0.0) * 1e6)
        ids[edge] = router.add_edge(
            schedule, delay_ns, jitter_ns, data.get("loss", 0.0), queue_bytes
        )
    for (source, target), edges in ways.between.items():
        router.add_route(number[source.name], number[target.name], [ids[edge] for edge in edges])

    places: dict[str, Place] = {}
    of_others: dict[str, int] = {}
    for name in dict.fromkeys(name for ends in ways.of_others for name in ends):
        of_others[name] = max(number.values()) + 1 + len(of_others)
        namespace = router.add_site([of_others[name]], kernel)
        places[name] = Place(namespace, _text(of_others[name]))
    for (one, other), edges in ways.of_others.items():
        router.add_route(of_others[one], of_others[other], [ids[edge] for edge in edges])
    return router, namespaces, WanEvents(spec, router, ids, places)


def main(arguments: Sequence[str] | None = None) -> int:
    """Forward packets until standard input ends.

    The first line of the output lists the namespaces' descriptors, in the order of `sites`. A line
    of the input is the start of the run, in seconds of `time.monotonic`. At the end, the packet
    counts are written to standard error.
    """
    parser = argparse.ArgumentParser(prog="python -m geomx.live.namespaces", description=__doc__)
    parser.add_argument("--experiment", metavar="FILE", required=True, help="whose network")
    parser.add_argument("--parent", type=int, required=True, help="end when this process does")
    options = parser.parse_args(arguments)
    tie_to_parent(options.parent)
    router, namespaces, events = build(Spec.from_json(Path(options.experiment).read_text("utf-8")))
    router.start()
    print(json.dumps(namespaces), flush=True)
    for origin_s in _numbers():
        router.set_origin(origin_s)
        events.begin(origin_s)
    router.stop()
    print(json.dumps(router.counts()), file=sys.stderr)
    return 0


def _numbers() -> Iterator[float]:
    for line in sys.stdin:
        yield float(line)


if __name__ == "__main__":
    sys.exit(main())
