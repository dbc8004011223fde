"""The reference of a plan: one party that trains by itself, without the WAN.

That is the alternative to training in several data centres: all data in one of them, copied there
beforehand, and its workers alone. A combination that is not faster gains nothing from the WAN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import networkx as nx

from geomx.cluster import Cluster, Party
from geomx.planning.candidates import BASELINE, Candidate
from geomx.results.files import write_network
from geomx.study.presets import network_alone

ROOT = "global_server"
FOLDER = "alone"
ALONE = " alone (no WAN)"


@dataclass(frozen=True)
class Alone(Candidate):
    """A party that trains alone, with the baseline's plugins.

    Attributes:
        party: Its name.
        network: Overrides that choose its network.
        part: Its workers as a fraction of all workers, 0..1.
    """

    party: str = ""
    network: tuple[str, ...] = ()
    part: float = 1.0

    @property
    def overrides(self) -> tuple[str, ...]:
        """The overrides that select it."""
        return (*super().overrides, *self.network)

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"{self.party}{ALONE}"

    @property
    def folder(self) -> str:
        """See `Candidate.folder`."""
        return FOLDER

    @property
    def share(self) -> float:
        """See `Candidate.share`."""
        return self.part


def strongest(cluster: Cluster, directory: Path, overrides: Sequence[str] = ()) -> Alone:
    """Find the party with the most samples per second if every step waits for its slowest worker.

    Args:
        cluster: All parties.
        directory: Directory of the plan; the party's network is written to a folder there.
        overrides: Overrides of the plan, perhaps with a preset that sets values of its network.

    Returns:
        That party alone.
    """
    party = max(cluster.parties, key=_pace)
    path = directory / FOLDER / "network.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_network(path, without_wan(cluster, party))
    share = len(party.workers) / len(cluster.workers)
    chosen = network_alone(overrides, path)
    return Alone(BASELINE.sync, BASELINE.accel, (), party.name, chosen, share)


def without_wan(cluster: Cluster, party: Party) -> nx.DiGraph:
    """Return the graph of a party's hosts and the edges between them, with a global server added.

    The global server gets copies of the local server's edges to its routers, or is joined to the
    local server itself if that has none.

    Args:
        cluster: All parties.
        party: The party that is kept.
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
