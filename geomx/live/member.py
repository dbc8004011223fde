"""The membership of a node in a live run: joining, connecting, starting and leaving.

A node may be a separate process (`geomx.live.node`), a training script (`geomx.kv`), or one of
several in a process (`geomx.kv.local`); the steps and their order are the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from geomx import _core
from geomx.cluster import NodeSpec
from geomx.errors import GeomxError, NodeLost
from geomx.experiment import links, streaming, wiring
from geomx.live import descriptors
from geomx.live.access import paths
from geomx.live.addresses import await_name
from geomx.live.disturbances import ActNotes, Disturbances
from geomx.live.resumption import Resumption
from geomx.live.script_calls import FOREVER_S, Evaluated, ScriptCalls
from geomx.live.spec import Spec
from geomx.plugin.registry import Registry
from geomx.plugin.sync import SyncPolicy
from geomx.terminal.log import is_json, tell
from geomx.training.steps import Report

JOIN_TIMEOUT_S = 300.0
"""Seconds for which nodes wait for each other at the start, while they load frameworks and data."""

PORT_TIMEOUT_S = 10.0
"""Seconds for which a resumed node tries to open its predecessor's port."""


@contextmanager
def naming_the_lost(loop: _core.Loop) -> Iterator[None]:
    """Convert the loop's error about a lost node to `NodeLost`."""
    try:
        yield
    except RuntimeError:
        failure = loop.failure()
        if failure is None:
            raise
        raise NodeLost(*failure) from None


def _tell(whom: str) -> None:
    if whom:
        tell(f"still waiting for {whom}")


def _open(host: str, port: int, token: str, tls: Path | None, insecure: bool) -> _core.Loop:
    """Return a loop on a port, whose log has the form that this process's has."""
    _core.write_json(is_json())
    return _core.Loop(host, port, token, paths(tls), insecure)


class Member(ScriptCalls):
    """A node that has joined a run.

    Attributes:
        loop: The driver of its protocol node.
        spec: The experiment.
        node: The node.
        policy: The sync policy.
        started_s: Start of the run, in seconds of `geomx._core.clock_s`.
        on_wait: Called with the names of the nodes for which this one has waited for
            ``runtime.failure_timeout_s``, and with "" when the wait is over.
        on_leave: Called when this worker must leave, in any thread.
        act_notes: Where this process notes what a scenario does to it; None: nowhere.
        disturbances: Carries out the scenario; None: there is none, or the run has not started.
        journal: The log from which another process can resume the node; None for none.
        resumed: Whether this process resumes the node of a killed process.
        late: Whether this process replaces a lost one of this node, while training continues.
        copy: Of a standby: the global server whose place it takes when that is lost.
        steps, on_evaluated, record: See `ScriptCalls`.
    """

    def __init__(self, loop: _core.Loop, spec: Spec, name: str, roster: dict[str, str]) -> None:
        self.loop = loop
        self.spec = spec
        self.node: NodeSpec = spec.cluster.node(name)
        self.started_s = 0.0
        self._roster = roster
        self.registry = Registry.discover()
        self.selection = self.registry.select(spec.sync, spec.accel)
        self.policy: SyncPolicy = self.selection.sync_policy(spec.cluster)
        self.on_wait: Callable[[str], None] = _tell
        self.on_leave: Callable[[], None] = lambda: None
        self.act_notes: ActNotes | None = None
        self.disturbances: Disturbances | None = None
        self.journal: _core.Journal | None = None
        self.resumed = False
        self.late = False
        self.copy: Member | None = None
        self.steps = 0
        self.on_evaluated: Evaluated | None = None

    @classmethod
    def open_scheduler(
        cls,
        spec: Spec,
        token: str,
        host: str = "127.0.0.1",
        tls: Path | None = None,
        insecure: bool = False,
    ) -> Member:
        """Open the scheduler of a run; others can join after `wire`.

        Args:
            spec: The experiment.
            token: The token that other nodes must send.
            host: The address to listen on.
            tls: Folder of this node's certificates (`geomx.live.access`); None: no TLS.
            insecure: Whether `host` may be an address beyond this machine without TLS.

        Raises:
            GeomxError: The port could not be opened, or must not be.
        """
        try:
            loop = _open(host, spec.runtime.port, token, tls, insecure)
        except RuntimeError as error:
            raise GeomxError(str(error)) from error
        return cls(loop, spec, spec.cluster.scheduler.name, {})

    @classmethod
    def join(
        cls,
        scheduler: str,
        name: str,
        id: int | None,
        token: str,
        host: str = "127.0.0.1",
        tls: Path | None = None,
        patience_s: float = JOIN_TIMEOUT_S,
        insecure: bool = False,
        stands_by: bool = False,
    ) -> Member:
        """Join the run whose scheduler is at ``host:port``; return when all nodes have joined.

        Args:
            scheduler: Address of the scheduler, which may start later than this node, as may its
                machine.
            name: Name of this node.
            id: Id of this node; None: the scheduler finds it by the name.
            token: Token of the run.
            host: The address to listen on.
            tls: As for `open_scheduler`.
            patience_s: Time limit in seconds.
            insecure: As for `open_scheduler`.
            stands_by: Whether this node is the standby of a global server.

        Raises:
            GeomxError: The scheduler was not reached, or it refused this node.
            NodeLost: A node was lost meanwhile.
        """
        try:
            loop = _open(host, 0, token, tls, insecure)
            copy = _open(host, 0, token, tls, insecure) if stands_by else None
        except RuntimeError as error:
            raise GeomxError(str(error)) from error
        try:
            if copy is not None:
                loop.announce(copy)
            left_s = await_name(scheduler, patience_s)
            with naming_the_lost(loop):
                text, roster = loop.join(scheduler, name, id, left_s)
            member = cls(loop, Spec.from_json(text), name, roster)
            member.late = loop.late
            if copy is not None:
                member.stand_by(copy, scheduler)
            return member
        except RuntimeError as error:
            loop.close()
            raise GeomxError(str(error)) from error
        except BaseException:
            loop.close()
            raise

    @classmethod
    def experiment(
        cls,
        scheduler: str,
        name: str,
        token: str,
        host: str = "127.0.0.1",
        tls: Path | None = None,
        patience_s: float = JOIN_TIMEOUT_S,
        insecure: bool = False,
    ) -> Spec:
        """Return the experiment of a run that has started, and that a node of this name may join.

        Args:
            scheduler: As for `join`; so are the others.
            name: A node that does not take part now.
            token: Token of the run.
            host: The address to listen on.
            tls: As for `open_scheduler`.
            patience_s: Time limit in seconds.
            insecure: As for `open_scheduler`.

        Raises:
            GeomxError: The scheduler was not reached, or no such node may join now.
        """
        try:
            loop = _open(host, 0, token, tls, insecure)
        except RuntimeError as error:
            raise GeomxError(str(error)) from error
        try:
            text, _ = loop.join(scheduler, name, None, await_name(scheduler, patience_s), late=True)
        except RuntimeError as error:
            raise GeomxError(str(error)) from error
        finally:
            loop.close()
        return Spec.from_json(text)

    @classmethod
    def resume(
        cls,
        journal: _core.Journal,
        name: str,
        token: str,
        host: str = "127.0.0.1",
        tls: Path | None = None,
        insecure: bool = False,
    ) -> Member:
        """Reopen the address of a node whose process was killed; `wire` then resumes the node.

        Where the whole run is continued, the launcher has chosen the addresses of all
        (`geomx.live.resumption`).

        Args:
            journal: The node's journal.
            name: The node's name.
            token: Token of the run.
            host: The address to listen on.
            tls: As for `open_scheduler`.
            insecure: As for `open_scheduler`.

        Raises:
            GeomxError: Another program uses its port.
        """
        deadline_s = time.monotonic() + PORT_TIMEOUT_S
        chosen = Resumption.beside(Path(journal.path))
        roster = {**journal.roster, **chosen.addresses}
        port = int(roster[name].rpartition(":")[2]) if name in chosen.addresses else journal.port
        while True:
            try:
                loop = _open(host, port, token, tls, insecure)
                break
            except RuntimeError as error:
                if time.monotonic() > deadline_s:
                    raise GeomxError(f"{name} cannot continue: {error}") from error
                time.sleep(0.1)
        spec = chosen.moved(Spec.from_json(journal.experiment))
        member = cls(loop, spec, name, roster)
        member.journal, member.resumed = journal, True
        return member

    def stand_by(self, loop: _core.Loop, scheduler: str) -> None:
        """Let `loop` repeat the global server that this node stands by, before `wire`."""
        spec, cluster = self.spec, self.spec.cluster
        roster = {**self._roster, cluster.scheduler.name: scheduler}
        copy = self.copy = Member(loop, spec, cluster.stood_by(self.node).name, roster)
        copy.resumed = True
        shape = copy._shape(at=self.node) if spec.emulated else None
        loop.stand_by(copy.config(), roster, shape, spec.tcp.congestion, self.loop)

    def wire(self) -> None:
        """Build this node from the plugins and connect it to its peers.

        Raises:
            ConfigError: The limit on open files is too low for its connections.
            GeomxError: Its journal is damaged, or belongs to another experiment.
        """
        spec = self.spec
        peers = wiring.peers(spec.cluster, self.selection, self.node)
        descriptors.make_room(self.node.name, len(peers))
        if self.node.role != "scheduler":  # schedulers compute nothing
            _core.set_threads(spec.runtime.threads or self._share_of_cores())
        config, shape = self.config(), self._shape(at=self.node) if spec.emulated else None
        try:
            if self.journal is not None:
                self.journal.keep(spec.faults.log_mb, spec.faults.log_sync)
            self.loop.run(config, self._roster, shape, spec.tcp.congestion, self.journal)
        except RuntimeError as error:
            if self.journal is None:
                raise
            raise GeomxError(str(error)) from error

    @property
    def streams(self) -> bool:
        """Whether a script's large shards are divided further; see `streaming.streams`."""
        return streaming.streams(self.selection, self.spec.cluster, self.spec.faults)

    def config(self) -> _core.NodeConfig:
        """Return the core's configuration of this node."""
        spec = self.spec
        placed = None
        if spec.tensors is not None and self.node.role in ("server", "global_server"):
            placed = wiring.shards(spec.cluster, self.selection, spec.tensors)
        config = wiring.node_config(
            spec.cluster,
            self.selection,
            self.node,
            phantom=False,
            runtime=spec.runtime,
            faults=spec.faults,
            live=True,
            seed=spec.seed,
            experiment_json=spec.to_json() if self.node.role == "scheduler" else "",
            placed=placed,
        )
        config.absent = list(spec.event_schedule.late)
        return config

    def _shape(self, at: NodeSpec) -> _core.Shape:
        """Return the emulation of this node's links, from the place of `at` in the network."""
        spec = self.spec
        return links.shape(
            spec.cluster, self.selection, self.node, spec.tcp, spec.seed, spec.usage_file, at
        )

    def _share_of_cores(self) -> int:
        """Return this machine's cores divided by the number of members on it."""
        hosts = [address.rsplit(":", 1)[0] for address in self._roster.values()]
        here = self._roster[self.node.name].rsplit(":", 1)[0]
        return max(1, len(os.sched_getaffinity(0)) // hosts.count(here))

    def wait_started(self, patience_s: float = 0.0) -> None:
        """Wait, at least for `JOIN_TIMEOUT_S`, until all nodes are connected: time 0 of the run.

        Raises:
            NodeLost: A node was lost, or did not join.
        """
        with naming_the_lost(self.loop):
            self.started_s = self.loop.wait_started(max(JOIN_TIMEOUT_S, patience_s))
        if self.spec.event_schedule:
            nodes = wiring.peers(self.spec.cluster, self.selection, self.node)
            self.disturbances = Disturbances(self, [node.id for node in nodes])
            self.disturbances.start()

    def close(self, failed: str = "") -> None:
        """Close the loop, and wait for threads that wait in it; tell peers the error, if any."""
        line = failed.strip().partition("\n")[0][:500]  # a farewell must be short
        self.loop.close("".join(each if each.isprintable() else " " for each in line))
        if self.disturbances is not None:
            self.disturbances.end()

    def consult(self, report: Report, not_before_s: float = 0.0) -> list[float]:
        """Send a report to a coordinator after all earlier pushes, and return its reply.

        Args:
            report: The report and its coordinator.
            not_before_s: Earliest time of sending, in seconds since the start of the run.

        Returns:
            The values of the reply. The wait has no time limit.

        Raises:
            NodeLost: A node was lost.
        """
        limit_s, number = self.spec.runtime.failure_timeout_s, report.coordinator
        with naming_the_lost(self.loop):
            self.loop.report(report.host, number, report.values, not_before_s)
            try:
                return self.loop.wait_reply(number, limit_s)
            except TimeoutError:
                self.on_wait(
                    f"an answer of {self.selection.coordinator(self.spec.cluster, number)}"
                )
            answer = self.loop.wait_reply(number, FOREVER_S)
        self.on_wait("")
        return answer

    def now(self) -> float:
        """Return the seconds since the start of the run."""
        return _core.clock_s() - self.started_s

    @property
    def may_leave(self) -> bool:
        """Whether others continue when this node leaves: none plans its steps with theirs."""
        return self.spec.faults.continues and not self.selection.coordinators(self.spec.cluster)

    def wait_stopped(self, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until all workers have left.

        Args:
            until: The wait ends within a second after this returns True.

        Raises:
            NodeLost: A node was lost before.
        """
        with naming_the_lost(self.loop):
            while not until() and not self.loop.wait_stopped(1.0):
                pass
