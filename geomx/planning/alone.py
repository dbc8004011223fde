"""What a plan is held against: one party that trains by itself, without the WAN.

That is what a user would do instead of training in several data centres: all data in one of them,
copied there beforehand, and its workers alone. Every sync algorithm and every accelerator has to
beat it, or the WAN only costs time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import networkx as nx

from geomx.cluster import Cluster, Party
from geomx.planning.candidates import BASELINE, Candidate
from geomx.results.files import write_network

ROOT = "global_server"
FOLDER = "alone"
ALONE = " alone (no WAN)"


@dataclass(frozen=True)
class Alone(Candidate):
    """A party that trains alone, by the baseline's plugins.

    Attributes:
        party: Its name.
        network: The file of its network.
        part: Of all workers those that it has, 0..1.
    """

    party: str = ""
    network: str = ""
    part: float = 1.0

    @property
    def words(self) -> tuple[str, ...]:
        """It, on the command line."""
        return (*super().words, f"network={self.network}")

    @property
    def name(self) -> str:
        """It, for people."""
        return f"{self.party}{ALONE}"

    @property
    def folder(self) -> str:
        """See `Candidate.folder`."""
        return FOLDER

    @property
    def share(self) -> float:
        """See `Candidate.share`."""
        return self.part


def strongest(cluster: Cluster, directory: Path) -> Alone:
    """The party with the most samples per second where every step waits for its slowest worker.

    Args:
        cluster: All parties.
        directory: Of the plan; the party's network goes into a folder there.
    """
    party = max(cluster.parties, key=_pace)
    path = directory / FOLDER / "network.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_network(path, without_wan(cluster, party))
    share = len(party.workers) / len(cluster.workers)
    return Alone(BASELINE.sync, BASELINE.accel, (), party.name, str(path), share)


def without_wan(cluster: Cluster, party: Party) -> nx.DiGraph:
    """The party's hosts, what joins them, and a global server beside the local one.

    The global server is joined to whatever the local server is joined to, in the same way; to the
    local server itself where that is joined to no router.
    """
    members = [worker.name for worker in party.workers]
    routes = [
        cluster.path(*ends).edges
        for worker in party.workers
        for ends in ((worker, party.server), (party.server, worker))
    ]
    graph = nx.DiGraph(name=f"{party.name} alone")
    for edge in dict.fromkeys(edge for route in routes for edge in route):
        for node in edge:
            graph.add_node(node, **cluster.graph.nodes[node])
        graph.add_edge(*edge, **cluster.graph.edges[edge])
    root, server = f"{party.name}/{ROOT}", party.server.name
    graph.add_node(root, kind=ROOT, party=party.name)
    around = dict.fromkeys([*graph.successors(server), *graph.predecessors(server)])
    routers = [node for node in around if node not in members]
    for near in routers or [server]:
        out = graph.edges.get((server, near)) or graph.edges[routes[1][0]]
        back = graph.edges.get((near, server)) or graph.edges[routes[0][-1]]
        graph.add_edge(root, near, **out)
        graph.add_edge(near, root, **back)
    return graph


def _pace(party: Party) -> float:
    return len(party.workers) * min(worker.speed for worker in party.workers)
