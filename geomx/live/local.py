"""A whole cluster inside one process: a loop, and so a thread, for every node.

It is what a training script gets that runs alone, without ``geomx launch``: the same protocol over
loopback connections, with nothing to start beforehand.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from geomx.cluster import NodeSpec
from geomx.live.member import Member
from geomx.live.spec import Spec
from geomx.network import read_network

_ALONE = {
    "name": "alone",
    "central": {"name": "hub", "global_servers": 1},
    "parties": {"local": {"workers": 1}},
}


def one_worker() -> Spec:
    """A party of one worker, on links as fast as the machine."""
    from geomx.registry import DEFAULT_SYNC

    return Spec(read_network(_ALONE), (DEFAULT_SYNC, {}), emulated=False)


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
                member = Member.join(scheduler.loop.address, node.name, node.id, token)
                self._members.append(member)
                member.wire()
                member.wait_started()
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
        for member in self._members:
            member.loop.close()

    def closer(self, worker: Member) -> Callable[[], None]:
        """What the owner of `worker` calls when it is done: the last one ends the cluster."""

        def close() -> None:
            self.workers.remove(worker)
            if not self.workers:
                self.close()

        return close
