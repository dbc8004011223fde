"""The groups of a cluster, for each of which an overlay may be used."""

from __future__ import annotations

from geomx.cluster import Cluster
from geomx.plugin.coordination import Group


def groups_of(cluster: Cluster, together: bool, workers_together: bool) -> list[Group]:
    """Return the groups that an overlay may serve: those with two members or more.

    Args:
        cluster: The nodes of the experiment.
        together: Whether rounds of the global servers wait for all parties; otherwise some are
            answered separately, and local servers form no group.
        workers_together: The same of a party's workers and its local server.

    Returns:
        The parties' groups, then those of the global servers.
    """
    scheduler = cluster.scheduler
    groups: list[Group] = []
    if workers_together:
        groups += [
            Group("party", party.server, party.workers, scheduler, cluster)
            for party in cluster.parties
        ]
    if together:
        servers = tuple(party.server for party in cluster.parties)
        roots = cluster.global_servers
        groups += [Group("global", root, servers, scheduler, cluster) for root in roots]
    return [group for group in groups if len(group.members) > 1]
