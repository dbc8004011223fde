"""Decides which nodes of a live run are restarted after their processes have ended, and when.

A node whose process was killed continues from its journal (``faults.durable=log``), or training
continues without it until a new process, which has no state, replaces it
(``faults.on_loss=continue``). A node that ended by itself is not restarted, because the cause would
end it again.
"""

from __future__ import annotations

import math
import signal
import time
from collections import Counter, defaultdict
from pathlib import Path

from geomx.cluster import NodeSpec
from geomx.live.diagnosis import lost_another
from geomx.live.exit_status import BROKEN, INTERRUPTED, LOST, signal_name
from geomx.live.files import Reader, durable, stem
from geomx.live.spec import Spec
from geomx.options.schema import restart_delay_s
from geomx.scenario.acts import NS, Act
from geomx.terminal.log import say

EMPTY_BYTES = 64
"""A journal of at most this length contains no node yet."""

ENDING_S = 5.0
"""How long lost processes may take to end by themselves, with what they say of it."""


def begun(journal: Path) -> bool:
    """Return whether a journal contains a node, from which a new process can continue."""
    return journal.exists() and journal.stat().st_size > EMPTY_BYTES


def _how(status: int) -> str:
    """Say how a process ended that was killed, was declared lost, or is out of reach."""
    unusual = {LOST: "declared lost", BROKEN: "lost with the connection to its machine"}
    return unusual.get(status) or f"killed by {signal_name(status)}"


def _is_kill(status: int) -> bool:
    """Return whether a signal has killed a process.

    One that ends by an interrupt, as Python does if it does not catch `KeyboardInterrupt`, was
    asked to end.
    """
    return status < 0 and status != -signal.SIGINT


class Restarts:
    """Plans the restarts of one run.

    Args:
        spec: The experiment.
        directory: Directory of the run.
        elsewhere: Whether nodes, and thus their journals, are on other machines.

    Attributes:
        gone: Names of the nodes that no process is, or will be.
    """

    def __init__(self, spec: Spec, directory: Path, elsewhere: bool = False) -> None:
        self._elsewhere = elsewhere
        self._spec = spec
        self._directory = directory
        self._made: Counter[str] = Counter()  # restarts that count towards faults.restarts
        self._killed: Counter[str] = Counter()  # kills by the scenario that were handled
        self._due: dict[str, float] = {}
        self._began_s: dict[str, float] = {}  # start of the latest process of each restarted node
        self._alone: set[str] = set()  # global servers whose standby is lost, or took their place
        self.gone: set[str] = set()
        self._over_s = math.inf  # when the run was over
        self._orphans: dict[str, list[str]] = defaultdict(
            list
        )  # workers by the server they wait for

    def journal(self, node: NodeSpec) -> Path | None:
        """Return the path of a node's journal; None: it has none.

        Training scripts have none, nor nodes without which training continues: they begin anew.
        """
        script = node.role == "worker" and self._spec.workload is None
        if script or not self._spec.faults.logs(node.role):
            return None
        return durable(self._directory, node.name)

    def resumes(self) -> None:
        """Record that the run is continued: kills by the scenario so far have been handled."""
        for node in self._spec.cluster.nodes:
            notes = Reader(stem(self._directory, node.name)).new()
            self._killed[node.name] = sum("killed" in note for note in notes)

    @property
    def pending(self) -> bool:
        """Whether a restart is planned."""
        return bool(self._due)

    def begins(self, name: str) -> None:
        """Record that a node is started during the run: restarted, or joining."""
        self._began_s[name] = time.monotonic()

    def again(self, name: str) -> bool:
        """Return whether a node was started during the run."""
        return name in self._began_s

    def spare(self, name: str, status: int) -> bool:
        """Return whether the end of a node does not matter once the run is over.

        It was started during the run, or is lost: others have ended the run without it. An error of
        its own matters all the same.

        Args:
            name: Name of the node.
            status: Exit status of its process; negative: the signal that ended it.
        """
        of_others = status < 0 or status in (LOST, BROKEN, INTERRUPTED)
        return self.again(name) or (of_others and self._is_lost(name))

    def idle(self, name: str) -> bool:
        """Return whether a node takes no part in training.

        It was started while training went on, and has not begun yet. Or it is lost, and some
        seconds after the run is over it still has not ended: while its process is paused, for
        example, it does not learn of that.
        """
        if not self.again(name):
            return time.monotonic() > self._over_s + ENDING_S and self._is_lost(name)
        notes = [next(iter(note)) for note in Reader(stem(self._directory, name)).new()]
        latest = len(notes) - notes[::-1].index("again") if "again" in notes else 0
        return "started" not in notes[latest:]

    def take(self, name: str, status: int) -> bool:
        """Record that the process of a node has ended, and decide how the run continues.

        Args:
            name: Name of the node.
            status: Exit status of its process; negative: the signal that ended it.

        Returns:
            True if the node will be restarted, or training continues without it.
        """
        node = self._spec.cluster.node(name)
        if self._stood_by(node, status):
            return True
        journal = self.journal(node)
        if journal is not None:
            begun_there = self._started(name) if self._elsewhere else begun(journal)
            return _is_kill(status) and begun_there and self._after_kill(name, status)
        if not self._spec.faults.continues or node.role not in ("worker", "server"):
            return False
        if self._by_itself(name, status):
            return False
        if status == LOST and node.role == "worker" and self._lost_server(node):
            return True
        return self._after_kill(name, status) or self._without(node)

    def continues_without(self, name: str) -> bool:
        """Return whether training continues without a worker that has gone and stays away."""
        return self._spec.faults.continues and self._without(self._spec.cluster.node(name))

    def due(self) -> list[NodeSpec]:
        """Return the nodes whose restart is due; each is returned once."""
        now = time.monotonic()
        names = [name for name, at in self._due.items() if at <= now]
        for name in tuple(names):
            names += self._orphans.pop(name, ())
        for name in names:
            self._due.pop(name, None)
        return [self._spec.cluster.node(name) for name in names]

    def cancel(self) -> None:
        """Start no more nodes: the run is over."""
        self._over_s = min(self._over_s, time.monotonic())
        self._due.clear()
        self._orphans.clear()

    def _after_kill(self, name: str, status: int) -> bool:
        """Plan the restart of a node that was killed or declared lost; return whether it is due."""
        how = _how(status)
        notes = list(Reader(stem(self._directory, name)).new())
        killed = [note["killed"] for note in notes if "killed" in note]
        if len(killed) > self._killed[name]:
            self._killed[name] = len(killed)
            if killed[-1] is None:
                return False
            self._plan(name, killed[-1], f"{name} was killed by the scenario: restart")
            return True
        limit = self._spec.faults.restarts
        if self._made[name] >= limit:
            told = f"{name} was {how} and is not restarted: faults.restarts={limit}"
            say(told, "warning", name)
            return False
        self._made[name] += 1
        pause_s = restart_delay_s(self._made[name])
        self._plan(name, pause_s, f"{name} was {how}: restart {self._made[name]} of {limit}")
        return True

    def _stood_by(self, node: NodeSpec, status: int) -> bool:
        """Look whether the run goes on without a node: it has a standby, or is one.

        The scheduler is told that the process has ended, or notices its silence, and decides. One
        that ends by itself would come to the same end at its standby.
        """
        if self._by_itself(node.name, status):
            return False
        cluster = self._spec.cluster
        server = cluster.stood_by(node) if node.role == "standby" else node
        standby = cluster.standby_of(server)
        if standby is None or server.name in self._alone:
            return False
        self._alone.add(server.name)
        self.gone.add(standby.name)  # one that takes the server's place is the server from now on
        how = f"was {_how(status)}"
        if node == server:
            told = f"{node.name} {how}: its standby, {standby.name}, takes its place"
        else:
            told = f"{node.name} {how}: {server.name} has no standby now"
        say(told, "warning", node.name)
        return True

    def _by_itself(self, name: str, status: int) -> bool:
        """Return whether a process was neither killed nor lost: another would end like it."""
        lost = status == BROKEN or lost_another(self._directory, name, status)
        return not _is_kill(status) and not lost

    def _lost_server(self, worker: NodeSpec) -> bool:
        """Return whether a worker ended because its server did; then it is restarted with it."""
        server = self._spec.cluster.party_of(worker).server.name
        if server in self.gone:
            return self._without(worker)
        if server in self._due:
            self._orphans[server].append(worker.name)
            return True
        if self._began_s.get(server, 0.0) > self._began_s.get(worker.name, 0.0):
            self._due[worker.name] = time.monotonic()
            return True
        return False

    def _without(self, node: NodeSpec) -> bool:
        """Continue without a node permanently; return False if no worker would be left."""
        self.gone.add(node.name)
        for name in self._orphans.pop(node.name, ()):
            self.gone.add(name)
        return any(
            worker.name not in self.gone and party.server.name not in self.gone
            for party in self._spec.cluster.parties
            for worker in party.workers
        )

    def _is_lost(self, name: str) -> bool:
        """Return whether the scheduler has lost a node, which has not taken part again."""
        scheduler = stem(self._directory, self._spec.cluster.scheduler.name)
        kinds = [n["member"] for n in Reader(scheduler).new() if name in n.get("names", ())]
        return bool(kinds) and kinds[-1] in ("gone", "moved")

    def _started(self, name: str) -> bool:
        return any("started" in note for note in Reader(stem(self._directory, name)).new())

    def _plan(self, name: str, pause_s: float, what: str) -> None:
        self._due[name] = time.monotonic() + pause_s
        say(f"{what} in {pause_s:g} s", "warning", name)


class Joins:
    """The nodes of one run that join later, by the scenario or by `geomx node --join`.

    Args:
        spec: The experiment.
        directory: Directory of the run.

    Attributes:
        late: Ids of these nodes.
    """

    def __init__(self, spec: Spec, directory: Path) -> None:
        scenario = self._scenario = spec.event_schedule
        self._cluster = spec.cluster
        self._by_hand = scenario.by_hand
        self.late = frozenset(scenario.late)
        self._left: list[Act] = scenario.joins()  # in the order of time
        self._at_iteration = scenario.has("join") and bool(scenario.by_iteration)
        self._scheduler = Reader(stem(directory, spec.cluster.scheduler.name))
        self._started_s: float | None = None

    def announce(self, scheduler: str) -> None:
        """Print which nodes may join by `geomx node --join`, and the address of the scheduler."""
        if self._by_hand:
            say(f"{', '.join(self._by_hand)} can be started with `geomx node --join {scheduler}`")

    def due(self) -> list[NodeSpec]:
        """Return the nodes whose joining is due; each is returned once."""
        if not self._left and not self._at_iteration:
            return []
        due = self._begun()
        if self._started_s is not None:
            since_ns = (time.monotonic() - self._started_s) * NS
            due += [act for act in self._left if act.at_ns <= since_ns]
            self._left = [act for act in self._left if act.at_ns > since_ns]
        return [self._cluster.nodes[node] for act in due for node in sorted(act.one)]

    def _begun(self) -> list[Act]:
        """Return the acts that have begun at an iteration since the last call."""
        acts = []
        for note in self._scheduler.new():
            if "started" in note and self._started_s is None:
                self._started_s = note["started"]
            elif "begins" in note:
                acts.append(self._scenario.act(note["begins"], round(note["time_s"] * NS)))
        return [act for act in acts if act.what == "join"]

    def cancel(self) -> None:
        """Start no more nodes: the run is over."""
        self._left, self._at_iteration = [], False
