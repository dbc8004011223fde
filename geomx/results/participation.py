"""Participation in rounds that lack some nodes, and the cost of each fault.

Runs that continue without lost nodes (``faults.on_loss=continue``) report incomplete rounds, and
lost and returning nodes, to a `Participation`: in virtual or wall-clock seconds since the start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from geomx.cluster import Cluster, NodeSpec
from geomx.results.files import Table
from geomx.results.rounding import rounded

PARTICIPATION = (
    "time_s", "server", "tensor", "shard", "round", "global_round", "workers", "absent", "late",
    "dropped",
)  # fmt: skip

Fault = dict[str, Any]


class Partial(NamedTuple):
    """A round of one shard that a server completed without some of its children.

    Attributes:
        time_s: Time in seconds since the start of the run.
        server: Name of the local or global server.
        tensor: Name of the tensor.
        shard: Number of the shard within it.
        round: Number of the round at this server.
        global_round: For a local server, the global round that it became; 0 if it was not sent.
        workers: Number of workers in the sum.
        absent: Names of the workers, or of the local servers, whose contribution to this round is
            missing in the sum.
        late: Contributions to earlier rounds that the sum contains instead or in addition, as
            ``name:round``.
        dropped: Contributions to earlier rounds that arrived since the last round and count in no
            sum, in the same form.
    """

    time_s: float
    server: str
    tensor: str
    shard: int
    round: int
    global_round: int
    workers: int
    absent: tuple[str, ...]
    late: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def divided(late: Sequence[str], dropped: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Divide contributions to earlier rounds into those that count and the last, which do not.

    Args:
        late: The contributions.
        dropped: How many count in no sum.

    Returns:
        Both, as in `Partial`.
    """
    counted = len(late) - dropped
    return tuple(late[:counted]), tuple(late[counted:])


class Participation:
    """Collects a run's reports about participation.

    Args:
        path: File of incomplete rounds; created with its first row.
        faults: Rows of ``faults`` in the summary; those of lost nodes are completed, and losses
            that the scenario did not cause are added.
        cluster: All nodes.
        tell: Called with each row that is added.
    """

    def __init__(
        self, path: Path, faults: list[Fault], cluster: Cluster, tell: Callable[[Fault], None]
    ) -> None:
        self._path = path
        self._tell = tell
        self._servers = {
            w.name: party.server.name for party in cluster.parties for w in party.workers
        }
        self._table: Table | None = None
        self._partial: list[Partial] = []
        self._late: set[str] = set()  # contributions that counted in later rounds
        self._faults = faults
        self._open: dict[str, Fault] = {}  # faults of nodes that have not returned, by node
        self._until_s: dict[int, float] = {}  # when nodes returned, by the identity of their fault
        self._rounds = 0

    # ---- reports ----

    def fault(self, fault: Fault) -> None:
        """Record a row of ``faults`` of the scenario."""
        if fault["what"] != "kill":
            return
        if self._open.setdefault(fault["node"], fault) is not fault:
            self._until_s[id(fault)] = fault["time_s"]  # the node was dead: no effect

    def lost(self, time_s: float, node: str) -> None:
        """Record that training continues without `node`."""
        if (fault := self._open.get(node)) is not None:
            fault.setdefault("noticed_s", _apart(fault, time_s))
            return
        fault = {"time_s": time_s, "what": "lost", "node": node, "noticed_s": 0.0}
        self._open[node] = fault
        self._faults.append(fault)
        self._tell(fault)

    def takes_part(self, time_s: float, node: str) -> None:
        """Record that `node`, which was lost, contributes again."""
        if fault := self._open.pop(node, None):
            fault["recovered_s"] = _apart(fault, time_s)
            self._until_s[id(fault)] = time_s

    def partial(self, row: Partial) -> None:
        """Record a round that a server completed without some nodes."""
        self._partial.append(row)
        self._late.update(row.late)
        if self._table is None:
            self._table = Table(self._path, PARTICIPATION)
        self._table.add(
            dict(
                zip(
                    PARTICIPATION,
                    (*row[:-3], *map(" ".join, row[-3:])),
                    strict=True,
                )
            )
        )

    def closed(self, node: NodeSpec, counts: Mapping[str, int]) -> None:
        """Count the rounds that a server completed, with or without all nodes.

        Args:
            node: A node; ignored if it is not a server.
            counts: Its ``rounds``, summed over its shards, and ``shards``, those that had any.
        """
        if node.role in ("server", "global_server"):
            self._rounds += -(-counts["rounds"] // max(1, counts["shards"]))

    # ---- the end ----

    def summary(self) -> dict[str, Any]:
        """Complete the rows of the faults, and count the rounds of all servers."""
        for fault in self._faults:
            if fault["what"] not in ("kill", "lost"):
                continue
            fault.setdefault("noticed_s", None)
            fault.setdefault("recovered_s", None)
            until_s = self._until_s.get(id(fault), float("inf"))
            fault["lost_contributions"] = self._missed(fault["node"], fault["time_s"], until_s)
        if self._table is not None:
            self._table.close()
        without = len({(row.server, row.round) for row in self._partial if row.absent})
        late = {(row.server, row.round, name) for row in self._partial for name in row.late}
        dropped = {(row.server, name) for row in self._partial for name in row.dropped}
        return {
            "with_everybody": max(0, self._rounds - without),
            "without": without,
            "late": len(late),
            **({"dropped": len(dropped)} if dropped else {}),
        }

    def _missed(self, node: str, from_s: float, until_s: float) -> int:
        """Return the number of rounds that were completed without `node` in an interval.

        These are rounds of its server and, while a worker's party is lost with it, global rounds.
        """
        rows = [row for row in self._partial if from_s <= row.time_s < until_s]
        own = [row for row in rows if node in row.absent]
        server = self._servers.get(node, "")
        lost = {f"{server}:{row.round}" for row in rows if server in row.absent}
        lost -= {f"{server}:{row.global_round}" for row in own}  # the party made it without `node`
        return len({(row.server, row.round) for row in own}) + len(lost - self._late)


def _apart(fault: Fault, time_s: float) -> float:
    return rounded(max(0.0, time_s - fault["time_s"]))
