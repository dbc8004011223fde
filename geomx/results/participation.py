"""Who took part in which round, where that was not everybody, and what each fault cost.

A run that goes on without lost nodes (``faults.on_loss=continue``) tells of rounds that were closed
without some of them, and of nodes that are lost and come back. Simulated and live runs tell a
`Participation`, each in its own seconds since the start of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from geomx.cluster import Cluster, NodeSpec
from geomx.results.files import Table
from geomx.results.rounding import rounded

PARTICIPATION = (
    "time_s", "server", "tensor", "shard", "round", "global_round", "workers", "absent",
)  # fmt: skip

Fault = dict[str, Any]
Shards = Sequence[Sequence[tuple[int, int, int, int]]]


class Partial(NamedTuple):
    """A round of one shard that a server closed without some of its children.

    Attributes:
        time_s: When, seconds since the start of the run.
        server: Name of the local or global server.
        tensor: Name of the tensor.
        shard: Number of the shard within it.
        round: Of this server.
        global_round: Of a local server: the global round that it became; 0: it went back at once.
        workers: How many workers' contributions the sum holds.
        absent: Names of the workers, or of the local servers, that are not in it.
    """

    time_s: float
    server: str
    tensor: str
    shard: int
    round: int
    global_round: int
    workers: int
    absent: tuple[str, ...]


class Participation:
    """Collects what a run tells about who takes part.

    Args:
        path: The table of rounds closed without some nodes; written with its first row.
        faults: Rows of ``faults`` in the summary; those of lost nodes are completed, and losses
            that no scenario has made are added.
    """

    def __init__(self, path: Path, faults: list[Fault]) -> None:
        self._path = path
        self._table: Table | None = None
        self._partial: list[Partial] = []
        self._faults = faults
        self._open: dict[str, Fault] = {}  # what took a node away that is not back
        self._rounds = 0

    # ---- what happens ----

    def happened(self, fault: Fault) -> None:
        """Take note of a row of ``faults`` that the scenario made."""
        if "node" in fault and fault["what"] == "kill":
            self._open.setdefault(fault["node"], fault)

    def lost(self, time_s: float, node: str) -> None:
        """Training goes on without `node` from now on."""
        fault = self._open.get(node)
        if fault is None:
            fault = self._open[node] = {"time_s": time_s, "what": "lost", "node": node}
            self._faults.append(fault)
        fault.setdefault("noticed_s", _apart(fault, time_s))

    def takes_part(self, time_s: float, node: str) -> None:
        """`node`, which was lost, contributes again."""
        if fault := self._open.pop(node, None):
            fault["recovered_s"] = _apart(fault, time_s)
            fault["lost_contributions"] = self._missed(node, fault["time_s"], time_s)

    def partial(self, row: Partial) -> None:
        """A server closed a round without some nodes."""
        self._partial.append(row)
        if self._table is None:
            self._table = Table(self._path, PARTICIPATION)
        self._table.add(dict(zip(PARTICIPATION, (*row[:-1], " ".join(row.absent)), strict=True)))

    def closed(self, node: NodeSpec, cluster: Cluster, shards: Shards, shard_rounds: int) -> None:
        """Count the rounds that a server closed, with everybody or without.

        Args:
            node: Any node; only servers count.
            cluster: All nodes.
            shards: Of each tensor: (offset, elements, global server, priority).
            shard_rounds: Rounds that the node closed, each shard's counted.
        """
        if node.role not in ("server", "global_server"):
            return
        held = Counter(piece[2] for pieces in shards for piece in pieces)
        of_all = node.role == "server"
        whose = held.total() if of_all else held[cluster.global_servers.index(node)]
        self._rounds += -(-shard_rounds // max(1, whose))

    # ---- the end ----

    def summary(self) -> dict[str, Any]:
        """Complete the rows of the faults, and count the rounds of all servers."""
        for fault in self._faults:
            if fault["what"] not in ("kill", "lost"):
                continue
            fault.setdefault("noticed_s", None)
            fault.setdefault("recovered_s", None)
            missed = self._missed(fault["node"], fault["time_s"], float("inf"))
            fault.setdefault("lost_contributions", missed)
        if self._table is not None:
            self._table.close()
        without = len({(row.server, row.round) for row in self._partial})
        return {"with_everybody": max(0, self._rounds - without), "without": without}

    def _missed(self, node: str, from_s: float, until_s: float) -> int:
        """Return how many rounds of its server were closed without `node` in between."""
        rows = (row for row in self._partial if from_s <= row.time_s < until_s)
        return len({(row.server, row.round) for row in rows if node in row.absent})


def _apart(fault: Fault, time_s: float) -> float:
    return rounded(max(0.0, time_s - fault["time_s"]))
