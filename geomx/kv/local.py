"""A whole cluster in one process, with a loop, and thus a thread, for every node.

It is used by a training script that runs alone, without ``geomx launch``: the same protocol over
loopback connections, with nothing to start beforehand.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from geomx import _core
from geomx.cluster import NodeSpec
from geomx.live.member import Member
from geomx.live.spec import Spec
from geomx.network.files import read_network
from geomx.plugin.registration import DEFAULT_SYNC


def unshaped(parties: Mapping[str, int], global_servers: int = 1) -> Spec:
    """Return an experiment with links as fast as the machine, default sync and no accelerators.

    Args:
        parties: Number of workers by name of the party.
        global_servers: Number of global servers.
    """
    access = {"uplink_mbps": 10_000, "downlink_mbps": 10_000}
    network = {
        "name": "local",
        "central": {"name": "hub", "global_servers": global_servers, **access},
        "parties": {name: {"workers": workers, **access} for name, workers in parties.items()},
        "delay_ms": 0,
    }
    return Spec(read_network(network), (DEFAULT_SYNC, {}), emulated=False)


class LocalCluster:
    """All nodes of `spec` in this process, started.

    Args:
        spec: The experiment.
        journals: Files that record nodes, by their names.

    Attributes:
        members: The members of all nodes, the scheduler's first.
        workers: The workers' members, in order of global rank.

    Raises:
        GeomxError: A node could not be started.
    """

    def __init__(self, spec: Spec, journals: Mapping[str, Path] | None = None) -> None:
        token = secrets.token_hex(16)
        scheduler = Member.open_scheduler(spec, token)
        self.members = [scheduler]
        try:
            scheduler.wire()

            def start(node: NodeSpec) -> Member:
                try:
                    member = Member.join(scheduler.loop.address, node.name, node.id, token)
                    self.members.append(member)
                    if journals and node.name in journals:
                        member.journal = _core.Journal(str(journals[node.name]))
                    member.wire()
                    member.wait_started()
                except BaseException:
                    self.close()  # otherwise the others would wait for this one
                    raise
                return member

            others = [node for node in spec.cluster.nodes if node.role != "scheduler"]
            with ThreadPoolExecutor(len(others), "geomx-start") as pool:
                joined = list(pool.map(start, others))
        except BaseException:
            self.close()
            raise
        self.workers = [member for member in joined if member.node.role == "worker"]

    def close(self) -> None:
        """Stop all nodes. The others lose workers that have not left."""
        for member in list(self.members):
            member.close()
