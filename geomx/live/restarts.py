"""Which nodes of a live run are started again after their processes were killed, and when.

A node whose process is killed continues from its journal (``faults.durable=log``). One that ends by
itself does not: it would come to the same end again.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

from geomx.cluster import NodeSpec
from geomx.live.journal import Reader, durable, stem
from geomx.live.relay import notice
from geomx.live.spec import Spec

FIRST_S = 0.05
GROWTH = 4
LONGEST_S = 10.0
"""A node's first restart comes after `FIRST_S`, each further one `GROWTH` times later, but none
after more than `LONGEST_S`."""


EMPTY_BYTES = 64
"""A journal that is not longer holds no node yet."""


def begun(journal: Path) -> bool:
    """Return whether a journal holds a node."""
    return journal.exists() and journal.stat().st_size > EMPTY_BYTES


class Restarts:
    """Keeps account of the restarts of one run.

    Args:
        spec: The experiment.
        directory: Of the run.
    """

    def __init__(self, spec: Spec, directory: Path) -> None:
        self._spec = spec
        self._directory = directory
        self._made: Counter[str] = Counter()  # of nodes that were killed by chance
        self._killed: Counter[str] = Counter()  # by the scenario
        self._due: dict[str, float] = {}

    def journal(self, node: NodeSpec) -> Path | None:
        """Return the path of a node's journal; None: it has none."""
        if self._spec.faults.durable == "none" or node.role == "worker":
            return None
        return durable(self._directory, node.name)

    @property
    def pending(self) -> bool:
        """Whether a node is going to be started."""
        return bool(self._due)

    def take(self, name: str, status: int) -> bool:
        """Return whether a node is going to be started again, whose process has ended.

        Args:
            name: Of the node.
            status: Exit status of its process; negative: the signal that ended it.
        """
        journal = self.journal(self._spec.cluster.node(name))
        if status >= 0 or journal is None or not begun(journal):
            return False
        by = signal.Signals(-status).name
        notes = list(Reader(stem(self._directory, name)).new())
        killed = [note["killed"] for note in notes if "killed" in note]
        if len(killed) > self._killed[name]:
            self._killed[name] = len(killed)
            if killed[-1] is None:
                return False
            self._plan(name, killed[-1], f"{name} was killed by the scenario")
            return True
        limit = self._spec.faults.restarts
        if self._made[name] >= limit:
            notice(f"{name} was killed by {by}, and is not restarted: faults.restarts={limit}")
            return False
        self._made[name] += 1
        pause_s = min(LONGEST_S, FIRST_S * GROWTH ** (self._made[name] - 1))
        self._plan(name, pause_s, f"{name} was killed by {by} ({self._made[name]} of {limit})")
        return True

    def due(self) -> list[NodeSpec]:
        """Return the nodes that are to be started now, once."""
        now = time.monotonic()
        names = [name for name, at in self._due.items() if at <= now]
        for name in names:
            del self._due[name]
        return [self._spec.cluster.node(name) for name in names]

    def _plan(self, name: str, pause_s: float, why: str) -> None:
        self._due[name] = time.monotonic() + pause_s
        notice(f"{why}: it is restarted after {pause_s:g} s")
