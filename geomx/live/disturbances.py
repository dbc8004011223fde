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

from geomx import _core
from geomx.cluster import NodeSpec
from geomx.scenario import Act, NodeActs, Scenario, check_slow

NS = 1_000_000_000
AHEAD_NS = 600 * NS
"""More than a step takes."""

LASTING = ("cut", "heal")
"""Acts that still apply to a process that resumes a killed one."""


class Disturbances(threading.Thread):
    """Carries out one node's part of a scenario, until the process ends.

    Args:
        loop: The node's driver.
        node: Its id.
        peers: Ids of the nodes with which it has links.
        scenario: The scenario.
        started_s: Start of the run, in seconds of `geomx._core.clock_s`.
        resumed: Whether earlier acts were carried out by another process of this node.
        on_kill: Called before this process is killed, with the seconds until its replacement; None
            for no replacement.
        on_leave: Called when this worker must leave.
    """

    def __init__(
        self,
        loop: _core.Loop,
        node: int,
        peers: Collection[int],
        scenario: Scenario,
        started_s: float,
        resumed: bool = False,
        on_kill: Callable[[float | None], None] = lambda restart_s: None,
        on_leave: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name="scenario", daemon=True)
        self._loop, self._node, self._peers = loop, node, frozenset(peers)
        self._scenario, self._started_s = scenario, started_s
        self._since_s = _core.clock_s() - started_s if resumed else -1.0
        self._on_kill, self._on_leave = on_kill, on_leave

    def run(self) -> None:
        """Wait for each act in turn, and carry it out."""
        for act in self._scenario.acts():
            # Also for acts of others: they may repeat for ever, and be the only ones that are left.
            time.sleep(max(0.0, self._started_s + act.at_ns / NS - _core.clock_s()))
            peers = act.peers_of(self._node) & self._peers
            myself = not act.other and self._node in act.one
            past = act.at_ns / NS < self._since_s
            if (not peers and not myself) or (past and act.what not in LASTING):
                continue
            if myself:
                self._do_to_myself(act)
            else:
                self._do(act, peers)

    def _do_to_myself(self, act: Act) -> None:
        if act.what == "kill":
            self._on_kill(act.for_ns / NS if act.for_ns else None)
            os.kill(os.getpid(), signal.SIGKILL)
        elif act.what == "leave":
            self._on_leave()
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


class ClockEvents:
    """Tells a worker's clock of what lengthens its computing: pauses, and times when it is slow.

    Args:
        clock: The clock of its passes.
        scenario: The scenario.
        node: The worker.
    """

    def __init__(self, clock: _core.PassClock, scenario: Scenario, node: NodeSpec) -> None:
        self._clock, self._scenario, self._name = clock, scenario, node.name
        self._acts = NodeActs(scenario, ("pause", "slow"), node.id)
        self._slow: list[tuple[int, float]] = []  # end, and times; those that may not have ended

    def tell(self, time_ns: int) -> None:
        """Tell of what begins within ten minutes of a time, in nanoseconds of the run.

        Raises:
            GeomxError: So many times overlap that the worker would stand still.
        """
        for act in self._acts.until(time_ns + AHEAD_NS):
            end_ns = act.at_ns + act.for_ns
            if act.what == "pause":
                self._clock.pause(act.at_ns, end_ns)
                continue
            times = self._scenario.event(act).times or 1.0
            self._slow = [*(each for each in self._slow if each[0] > act.at_ns), (end_ns, times)]
            check_slow(self._name, (each for _, each in self._slow))
            self._clock.slow(act.at_ns, end_ns, times)
