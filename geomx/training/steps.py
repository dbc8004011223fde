"""One worker's local steps, and the calls of its sync policy.

For every local step, the policy is called in this order:

1. `WorkerSync.finished`, when the step begins.
2. `WorkerSync.merge`, for every tensor whose answer is applied (`geomx.training.flights`).
3. `WorkerSync.after_step`, once, before any gradient of the step is sent; not in the last step,
   which always synchronises. `WorkerSync.due` instead, where tensors are exchanged in fragments.
4. If the step synchronises and the worker has a coordinator: `WorkerSync.report`, whose result is
   sent after all pushes of the worker, and `WorkerSync.reply` with the coordinator's reply, before
   the next step begins.

Before the first step, `SyncPolicy.worker` and `SyncPolicy.push_scale` are called once and, if the
worker has a coordinator, `SyncPolicy.coordinators`; `SyncPolicy.fragments`, once the tensors are
known.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from geomx.cluster import Cluster, NodeSpec
from geomx.errors import ConfigError
from geomx.plugin.sync import SyncPolicy, WorkerSync
from geomx.training.flights import Flights

UNKNOWN = 2**53
"""Number of steps of a worker whose script did not give one."""


def checked_count(option: str, count: Any) -> int:
    """Return a number of steps, or the like, that a script gave.

    A step is the last by its number, so a fraction would leave it open which one is.

    Args:
        option: Name of the argument.
        count: What the script gave.

    Raises:
        ConfigError: It is not a whole number, or less than 1.
    """
    try:
        whole = operator.index(count)
    except TypeError:
        raise ConfigError(option, count, f"must be a whole number: int({option})") from None
    if whole < 1:
        raise ConfigError(option, count, "must be 1 or more")
    return whole


@dataclass(frozen=True)
class Report:
    """A worker's report to a coordinator.

    Attributes:
        host: Id of the node that runs the coordinator.
        coordinator: Its position in `SyncPolicy.coordinators`.
        values: The report as numbers.
    """

    host: int
    coordinator: int
    values: list[float]


class Steps:
    """Counts a worker's local steps and calls its sync policy, each method once per step.

    Args:
        policy: The sync policy.
        cluster: The nodes of the experiment.
        worker: The worker.
        steps: Number of local steps; if the policy plans steps by speed, that from which it plans.

    Attributes:
        step: Number of the current local step, from 0; -1 before the first.
        last: Whether the current step is the last.
        made: Number of steps that were begun, without those that were left out or repeated earlier
            ones.
        exchange: The pushed values: ``gradients`` or ``parameters``.
        scale: Factor on pushed values, as float32; the store adds and never divides.
        sync: The policy's part for this worker.
        flights: The fragments and answers in flight; None where all tensors are exchanged at once
            and the next step takes the answers.

    Raises:
        PluginError: The policy broke its contract. All methods raise it.
    """

    def __init__(
        self, policy: SyncPolicy, cluster: Cluster, worker: NodeSpec, steps: int = UNKNOWN
    ) -> None:
        self.step = -1
        self.last = False
        self.made = 0
        self.flights: Flights | None = None
        self._policy, self._asked = policy, steps
        self.exchange = policy.exchange
        self.sync: WorkerSync = policy.worker(cluster, worker, steps)
        self.scale = np.float32(policy.push_scale(cluster, worker))
        self._synchronises: bool | None = None
        self._reply_due = self._leaves = False
        self._rounds = 0  # synchronisations that were made, or left out
        self._reached = 0
        number = self.sync.coordinator
        self._host = None if number is None else policy.coordinators(cluster)[number].host

    def train(self, elements: Sequence[int]) -> None:
        """Take note of the tensors, before the first step and before `resume`.

        Args:
            elements: Elements of each tensor, by key.
        """
        flights = Flights(self._policy, self.sync, elements)
        self.flights = None if flights.plain else flights

    def resume(self, rounds: int) -> None:
        """Continue after `rounds` synchronisations, in place of a lost process of this worker.

        If no step is left, `step` is the last one of the steps that were asked for.
        """
        self._rounds = self._reached = rounds
        step = (self.flights or self.sync).resume(rounds)
        self.last = step is None
        self.step = (self._asked if step is None else step) - 1

    def follow(self, step: int) -> None:
        """Continue after a step that an earlier process has made with a checkpoint of this worker.

        Where a coordinator plans the steps, the policy counts them anew.

        Args:
            step: Its number; -1 if none was made.
        """
        self.step = step
        self.last = self.last or (step >= 0 and not self.consults and self.sync.finished(step))

    def reach(self, rounds: Sequence[tuple[int, int]]) -> None:
        """Let the next step be the one that follows what other parties have synchronised.

        Steps that these have made meanwhile are left out, except for the last one. No effect if
        this worker has made as many.

        Args:
            rounds: (key, rounds of other parties).
        """
        if self.flights is None:
            self._reached = max([self._reached, *(number for _, number in rounds)])
        else:
            self.flights.reach(rounds)

    def leave(self) -> None:
        """Let the next step be the last."""
        self._leaves = True

    def begin(self) -> int:
        """Begin the next local step, and return its number."""
        if self._reply_due:
            raise RuntimeError(f"step {self.step} waits for its coordinator's reply")
        self._next()
        while self._behind and not self.last:
            if self.flights is None:
                self.synchronises()
            else:
                self.flights.leave_out(self.step)
            self._next()
        self.made += 1
        if self.flights is not None:
            self.flights.begin(self.step, self.last)
        return self.step

    @property
    def _behind(self) -> bool:
        return self._rounds < self._reached if self.flights is None else self.flights.behind

    def _next(self) -> None:
        self.step += 1
        self._synchronises = None
        self.last = self._leaves or self.sync.finished(self.step)

    def synchronises(self) -> bool:
        """Return whether the current step synchronises."""
        if self._synchronises is None:
            if self.flights is None:
                self._synchronises = self.last or self.sync.after_step(self.step)
                self._rounds += self._synchronises
            else:
                self._synchronises = self.flights.send(self.step, self.last)
        return self._synchronises

    def skip(self, steps: int) -> None:
        """Count `steps` steps that repeat earlier ones."""
        self.step += steps
        if self.flights is not None:
            self.flights.shift(steps)

    def schedule(self, step: int) -> object:
        """Return what is exchanged after a step, by a policy that depends on its number only."""
        if self.flights is None:
            return self.sync.after_step(step)
        return self.flights.schedule(step)

    @property
    def consults(self) -> bool:
        """Whether there is a coordinator."""
        return self._host is not None

    def report(self, compute_s: float) -> Report | None:
        """Return the report to send after the pushes of the current step; None if there is none.

        Args:
            compute_s: Seconds of computing per local step, without waiting. Workloads may compute
                for no time; the policy is told a nanosecond then, as coordinators compare speeds.

        Returns:
            The report with its coordinator.
        """
        if self._host is None or not self.synchronises():
            return None
        assert self.sync.coordinator is not None
        self._reply_due = True
        return Report(self._host.id, self.sync.coordinator, self.sync.report(max(compute_s, 1e-9)))

    def reply(self, values: Sequence[float]) -> None:
        """Pass the coordinator's reply to the last `report` to the policy."""
        self._reply_due = False
        self.sync.reply(values)


def computing_s(began_s: float, arrived_s: float, ended_s: float) -> float:
    """Return the seconds of a step that were spent computing.

    Args:
        began_s: Start of the step.
        arrived_s: Arrival of the last value that it needed, by the same clock.
        ended_s: Time at which its results existed.

    Returns:
        Seconds, 0 or more.
    """
    return ended_s - max(began_s, arrived_s)
