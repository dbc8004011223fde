"""A whole cluster inside one process: a loop, and so a thread, for every node.

It is what a training script gets that runs alone, without ``geomx launch``: the same protocol over
loopback connections, with nothing to start beforehand.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from geomx.cluster import NodeSpec
from geomx.live.member import Member
from geomx.live.spec import Spec
from geomx.network.files import read_network
from geomx.plugin.registration import DEFAULT_SYNC


def unshaped(parties: Mapping[str, int], global_servers: int = 1) -> Spec:
    """Parties by name with their number of workers, on links as fast as the machine.

    They synchronise by the default; nothing is accelerated.
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
    """All nodes of `spec`, in this process, started.

    Attributes:
        workers: The workers' memberships in order of global rank.

    Raises:
        GeomxError: A node could not be started.
    """

    def __init__(self, spec: Spec) -> None:
        token = secrets.token_hex(16)
        scheduler = Member.open_scheduler(spec, token)
        self._members = [scheduler]
        try:
            scheduler.wire()

            def start(node: NodeSpec) -> Member:
                try:
                    member = Member.join(scheduler.loop.address, node.name, node.id, token)
                    self._members.append(member)
                    member.wire()
                    member.wait_started()
                except BaseException:
                    self.close()  # or the others would wait for this one
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
        """End all nodes. Workers that have not left are lost to the others."""
        for member in list(self._members):
            member.loop.close()
