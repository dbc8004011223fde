"""Carries out the scenario of an experiment in the nodes of a live run.

Every node knows the complete scenario and the start of the run, and carries out its own part: it
cuts its ends of links, breaks connections, and stops or kills its own process. Scenarios therefore
work in the same way on one machine and on several.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection
from itertools import count
from typing import Protocol

from geomx import _core
from geomx.cluster import NodeSpec
from geomx.live.spec import Spec
from geomx.scenario import Act, Iterations, NodeActs, Scenario, check_slow

NS = 1_000_000_000
AHEAD_NS = 600 * NS
"""More than a step takes."""

LASTING = ("cut", "heal")
"""Acts that still apply to a process that resumes a killed one."""


class ActNotes(Protocol):
    """Where a process notes what a scenario does to it."""

    @property
    def begun(self) -> Collection[int]:
        """Numbers of the events that an earlier process of the node has noted."""

    def killed(self, event: int, restart_s: float | None) -> None:
        """Note which event kills this process now, and the seconds until its replacement."""

    def begins(self, event: int, time_s: float) -> None:
        """Note that an event with ``at_iteration`` begins, in seconds since the start."""


class Disturbed(Protocol):
    """A node that has joined a run (`geomx.live.member.Member`)."""

    loop: _core.Loop
    spec: Spec
    node: NodeSpec
    started_s: float
    late: bool
    resumed: bool
    on_leave: Callable[[], None]
    act_notes: ActNotes | None
    disturbances: Disturbances | None


class Disturbances(threading.Thread):
    """Carries out one node's part of a scenario, until the process ends.

    What happens at an iteration of the first worker is heard from the scheduler.

    Args:
        member: The node, of a run that has started. Where another process was this node before,
            that one carried out the earlier acts.
        peers: Ids of the nodes with which it has links.
    """

    def __init__(self, member: Disturbed, peers: Collection[int]) -> None:
        super().__init__(name="scenario", daemon=True)
        self._member, self._peers = member, frozenset(peers)
        self._loop, self._node = member.loop, member.node.id
        self._scenario, self._started_s = member.spec.event_schedule, member.started_s
        anew = member.late or member.resumed
        self._since_s = _core.clock_s() - self._started_s if anew else -1.0
        self._hearing = threading.Thread(target=self._hear, daemon=True)

    def start(self) -> None:
        """Start to wait for the acts."""
        if self._scenario.by_iteration:
            self._hearing.start()
        super().start()

    def end(self) -> None:
        """Wait, once the loop is closed, for the thread that waited in it.

        The interpreter must not end before: a thread that takes its lock again ends the process.
        """
        if self._hearing.is_alive() and threading.current_thread() is not self._hearing:
            self._hearing.join()

    def run(self) -> None:
        """Wait for each act in turn, and carry it out."""
        for act in self._scenario.acts():
            # Also for acts of others: they may repeat without end, and be the only ones left.
            time.sleep(max(0.0, self._started_s + act.at_ns / NS - _core.clock_s()))
            if act.at_ns / NS >= self._since_s or act.what in LASTING:
                self._carry_out(act)

    def begin(self, act: Act, noted: bool) -> None:
        """Carry out an act now, and in time the one that ends its event.

        Args:
            act: The act.
            noted: Whether this process notes that its event has begun.
        """
        if noted and self._member.act_notes is not None:
            self._member.act_notes.begins(act.event, act.at_ns / NS)
        self._carry_out(act)
        if (end := self._scenario.end(act)) is not None:
            timer = threading.Timer(act.for_ns / NS, self._carry_out, (end,))
            timer.daemon = True
            timer.start()

    def _hear(self) -> None:
        """Begin the events at iterations of the first worker, as the scheduler tells of them."""
        noted = self._member.node.role == "scheduler"  # for all nodes
        # A killed process may not have acknowledged what killed it: its successor is told again.
        notes = self._member.act_notes
        earlier = () if notes is None else notes.begun
        for number in count():
            if (begun := self._loop.await_iteration(number)) is None:
                return
            iteration, heard_s = begun  # this thread may run later than what other nodes do then
            at_ns = round((heard_s - self._started_s) * NS)
            for event, at in self._scenario.by_iteration.items():
                if at != iteration or event in earlier:
                    continue
                if self._scenario.worker_of(event) is None:
                    self.begin(self._scenario.act(event, at_ns), noted)

    def _carry_out(self, act: Act) -> None:
        """Carry out this node's part of an act."""
        peers = act.peers_of(self._node) & self._peers
        if not act.other and self._node in act.one:
            self._do_to_myself(act)
        elif peers:
            self._do(act, peers)

    def _do_to_myself(self, act: Act) -> None:
        if act.what == "kill":
            if self._member.act_notes is not None:
                restart_s = act.for_ns / NS if act.for_ns else None
                self._member.act_notes.killed(act.event, restart_s)
            os.kill(os.getpid(), signal.SIGKILL)
        elif act.what == "leave":
            self._member.on_leave()  # as it is then: a store sets it after the start
        elif act.what == "pause":
            wake = f"sleep {act.for_ns / NS:.9f}; kill -CONT {os.getpid()}"
            waker = subprocess.Popen(["sh", "-c", wake], start_new_session=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            waker.wait()

    def _do(self, act: Act, peers: Collection[int]) -> None:
        for peer in sorted(peers):
            if act.what == "cut":
                self._loop.cut(peer)
            elif act.what == "heal":
                self._loop.heal(peer)
            elif self._node < peer:  # one end breaks the connection
                self._loop.reset(peer)


class StepEvents:
    """Lets the events at iterations begin with a worker's steps.

    Args:
        scenario: The scenario.
        member: The worker.
    """

    def __init__(self, scenario: Scenario, member: Disturbed) -> None:
        self._scenario, self._member = scenario, member
        self._iterations = Iterations(scenario)
        if member.late or member.resumed:
            begun = member.act_notes.begun if member.act_notes is not None else ()
            self._iterations.renew(member.node.id, begun)

    def begin(self, step: int, time_ns: int) -> None:
        """Let the events begin that do so with a step of this worker, once it begins.

        Args:
            step: The number of the step.
            time_ns: When it begins, in nanoseconds of the run. A worker with a nominal pace knows
                it in advance, as it computes faster than that.
        """
        for number in self._iterations.begins(self._member.node.id, step):
            time.sleep(max(0.0, self._member.started_s + time_ns / NS - _core.clock_s()))
            if self._scenario.worker_of(number) is None:
                self._member.loop.begin_iteration(self._scenario.by_iteration[number])
                continue
            act = self._scenario.act(number, time_ns)
            self._lengthen(act)
            assert self._member.disturbances is not None
            self._member.disturbances.begin(act, noted=True)

    def _lengthen(self, act: Act) -> None:
        """Let computing take longer, where this process decides how long it takes."""


class WorkerEvents(StepEvents):
    """What a scenario does to a worker of geomx's own as it trains.

    Its clock is told of what lengthens its computing: pauses, and times when it is slow.

    Args:
        clock: The clock of its passes.
        scenario: The scenario.
        member: The worker.
    """

    def __init__(self, clock: _core.PassClock, scenario: Scenario, member: Disturbed) -> None:
        super().__init__(scenario, member)
        self._clock = clock
        self._acts = NodeActs(scenario, ("pause", "slow"), member.node.id)
        self._slow: list[tuple[int, float]] = []  # end, and times; those that may not have ended

    def tell(self, time_ns: int) -> None:
        """Tell of what begins within ten minutes of a time, in nanoseconds of the run.

        Raises:
            GeomxError: So many times overlap that the worker would stand still.
        """
        for act in self._acts.until(time_ns + AHEAD_NS):
            self._lengthen(act)

    def _lengthen(self, act: Act) -> None:
        end_ns = act.at_ns + act.for_ns
        if act.what == "pause":
            self._clock.pause(act.at_ns, end_ns)
        elif act.what == "slow":
            times = self._scenario.event(act).times or 1.0
            self._slow = [*(each for each in self._slow if each[0] > act.at_ns), (end_ns, times)]
            check_slow(self._member.node.name, (each for _, each in self._slow))
            self._clock.slow(act.at_ns, end_ns, times)
