"""One node's membership in a live run: it joins, connects, starts and leaves.

A node may be a separate process (`geomx.live.node`), a training script (`geomx.kv`), or one of
several in a process (`geomx.kv.local`); the steps and their order are the same.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from geomx import _core
from geomx.cluster import NodeSpec
from geomx.errors import GeomxError, NodeLost
from geomx.experiment import links, wiring
from geomx.live import descriptors
from geomx.live.access import paths
from geomx.live.disturbances import Disturbances
from geomx.live.relay import Patience
from geomx.live.spec import Spec
from geomx.options.schema import RuntimeOptions
from geomx.plugin.registry import Registry
from geomx.plugin.sync import SyncPolicy
from geomx.scenario import Scenario
from geomx.training.steps import Report

JOIN_TIMEOUT_S = 300.0
"""How long nodes wait for each other at the start; loading a framework and data takes a while."""

PORT_TIMEOUT_S = 10.0
"""How long a node that continues tries to have the port of its predecessor."""

FOREVER_S = 1e8
"""For waits that end when what they wait for happens or when a node is lost."""


def _await_name(address: str, patience_s: float) -> float:
    """Wait until the name in ``host:port`` means something: names too come late where machines do.

    Returns:
        Seconds that are left.

    Raises:
        GeomxError: It never did.
    """
    began_s = time.monotonic()
    patience = Patience(RuntimeOptions().failure_timeout_s)
    host, _, port = address.rpartition(":")
    while True:
        spent_s = time.monotonic() - began_s
        try:
            socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
            return patience_s - spent_s
        except (OSError, UnicodeError) as error:
            if spent_s >= patience_s:
                raise GeomxError(
                    f"cannot join the run: the scheduler's address {address} could not be resolved "
                    f"in {spent_s:.1f} s ({error}): check its spelling, "
                    "and this machine's name resolution"
                ) from error
        patience.waits("this node", lambda: f"the name in {address} to resolve")
        time.sleep(min(1.0, max(0.05, patience_s / 10)))


@contextmanager
def naming_the_lost(loop: _core.Loop) -> Iterator[None]:
    """Convert the loop's error about a lost node to `NodeLost`."""
    try:
        yield
    except RuntimeError as error:
        failure = loop.failure()
        if failure is None:
            raise
        raise NodeLost(*failure) from error


def _tell(whom: str) -> None:
    if whom:
        print(f"still waiting for {whom}", file=sys.stderr, flush=True)


class Member:
    """A node of a run that has joined.

    Attributes:
        loop: The driver of its protocol node.
        spec: The experiment.
        node: Which node this is.
        policy: The sync policy in force.
        started_s: When the run started, in seconds of `time.monotonic`.
        on_wait: Is told for whom this node has waited for ``runtime.failure_timeout_s``, and ""
            when that is over.
        on_leave: Is told when the scenario has this worker leave.
        on_kill: Is told before a scenario kills this process; as for `Disturbances`.
        journal: Records the node, so that another process can continue it; None: nothing does.
        resumed: Whether this process continues another's node.
        late: Whether training goes on already, as another process of this node was lost.
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
        self.on_kill: Callable[[float | None], None] = lambda restart_s: None
        self.journal: _core.Journal | None = None
        self.resumed = False
        self.late = False

    @classmethod
    def open_scheduler(
        cls,
        spec: Spec,
        token: str,
        host: str = "127.0.0.1",
        tls: Path | None = None,
        insecure: bool = False,
    ) -> Member:
        """Be the scheduler of the run that `spec` describes; others can join once it is wired.

        Args:
            spec: The experiment.
            token: That others must show.
            host: The address to listen on.
            tls: Folder of this node's certificates (`geomx.live.access`); None: no TLS.
            insecure: Whether `host` may be beyond this machine without TLS.

        Raises:
            GeomxError: The port cannot be had, or must not be opened.
        """
        try:
            loop = _core.Loop(host, spec.runtime.port, token, paths(tls), insecure)
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
    ) -> Member:
        """Join the run whose scheduler is at ``host:port``; return when all nodes have joined.

        Args:
            scheduler: Its address. It may come later than this node, and so may its name.
            name: Of this node.
            id: Its number; None: the scheduler knows it by the name.
            token: Of the run.
            host: The address to listen on.
            tls: As for `open_scheduler`.
            patience_s: How long to try.
            insecure: As for `open_scheduler`.

        Raises:
            GeomxError: The scheduler was not reached, or refused.
            NodeLost: A node was lost meanwhile.
        """
        try:
            loop = _core.Loop(host, 0, token, paths(tls), insecure)
        except RuntimeError as error:
            raise GeomxError(str(error)) from error
        try:
            left_s = _await_name(scheduler, patience_s)
            with naming_the_lost(loop):
                text, roster = loop.join(scheduler, name, id, left_s)
            member = cls(loop, Spec.from_json(text), name, roster)
            member.late = loop.late
            return member
        except RuntimeError as error:
            loop.close()
            raise GeomxError(str(error)) from error
        except BaseException:
            loop.close()
            raise

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
        """Continue, once it is wired, a node whose process was killed: under its old address.

        Args:
            journal: Of the node.
            name: Of the node.
            token: Of the run.
            host: The address to listen on.
            tls: As for `open_scheduler`.
            insecure: As for `open_scheduler`.

        Raises:
            GeomxError: Another program has its port.
        """
        deadline_s = time.monotonic() + PORT_TIMEOUT_S
        while True:
            try:
                loop = _core.Loop(host, journal.port, token, paths(tls), insecure)
                break
            except RuntimeError as error:
                if time.monotonic() > deadline_s:
                    raise GeomxError(f"{name} cannot continue: {error}") from error
                time.sleep(0.1)
        member = cls(loop, Spec.from_json(journal.experiment), name, journal.roster)
        member.journal, member.resumed = journal, True
        return member

    def wire(self) -> None:
        """Build this node from the plugins and connect it to its peers.

        Raises:
            ConfigError: This process may not have as many connections.
            GeomxError: Its journal is damaged, or does not fit.
        """
        spec, cluster = self.spec, self.spec.cluster
        peers = wiring.peers(cluster, self.selection, self.node)
        descriptors.make_room(self.node.name, len(peers))
        scheduling = self.node.role == "scheduler"
        if not scheduling:  # it computes nothing
            _core.set_threads(spec.runtime.threads or self._share_of_cores())
        config = wiring.node_config(
            cluster,
            self.selection,
            self.node,
            phantom=False,
            runtime=spec.runtime,
            faults=spec.faults,
            live=True,
            seed=spec.seed,
            experiment_json=spec.to_json() if scheduling else "",
        )
        config.absent = list(Scenario(spec.scenario, cluster, spec.seed).late)
        shape = (
            links.shape(cluster, self.selection, self.node, spec.tcp, spec.seed, spec.usage_file)
            if spec.emulated
            else None
        )
        try:
            self.loop.run(config, self._roster, shape, spec.tcp.congestion, self.journal)
        except RuntimeError as error:
            if self.journal is None:
                raise
            raise GeomxError(str(error)) from error

    def _share_of_cores(self) -> int:
        """This machine's cores over the members on it."""
        hosts = [address.rsplit(":", 1)[0] for address in self._roster.values()]
        here = self._roster[self.node.name].rsplit(":", 1)[0]
        return max(1, len(os.sched_getaffinity(0)) // hosts.count(here))

    def wait_started(self) -> None:
        """Wait until all nodes are connected: time 0 of the run.

        Raises:
            NodeLost: A node was lost, or did not join.
        """
        with naming_the_lost(self.loop):
            self.started_s = self.loop.wait_started(JOIN_TIMEOUT_S)
        spec = self.spec
        scenario = Scenario(spec.scenario, spec.cluster, spec.seed)
        if scenario:
            peers = [peer.id for peer in wiring.peers(spec.cluster, self.selection, self.node)]
            Disturbances(
                self.loop,
                self.node.id,
                peers,
                scenario,
                self.started_s,
                self.resumed or self.late,
                self.on_kill,
                self.on_leave,
            ).start()

    def consult(self, report: Report, not_before_s: float = 0.0) -> list[float]:
        """Send a report to a coordinator after all earlier pushes, and return its reply.

        Args:
            report: The report and its coordinator.
            not_before_s: Earliest time of sending, in seconds since the start of the run.

        Returns:
            The values of the reply, for which this waits without a limit.

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
        return time.monotonic() - self.started_s

    def wait_stopped(self) -> None:
        """Wait until all workers have left.

        Raises:
            NodeLost: A node was lost before.
        """
        with naming_the_lost(self.loop):
            while not self.loop.wait_stopped(1.0):
                pass
