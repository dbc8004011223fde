"""One worker's local steps, and the calls of its sync policy.

For every local step, the policy is called in this order:

1. `WorkerSync.finished`, when the step begins.
2. `WorkerSync.after_step`, once, before any gradient of the step is sent; not in the last step,
   which always synchronises.
3. If the step synchronises and the worker has a coordinator: `WorkerSync.report`, whose result is
   sent after all pushes of the worker, and `WorkerSync.reply` with the coordinator's reply, before
   the next step begins.

Before the first step, `SyncPolicy.worker` and `SyncPolicy.push_scale` are called once and, if the
worker has a coordinator, `SyncPolicy.coordinators`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from geomx.cluster import Cluster, NodeSpec
from geomx.plugin.sync import SyncPolicy, WorkerSync

UNKNOWN = 2**53
"""Number of steps of a worker whose script did not give one."""


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
        steps: Number of local steps; of the slowest worker, if the policy plans steps by speed.

    Attributes:
        step: Number of the current local step, from 0; -1 before the first.
        last: Whether the current step is the last.
        exchange: The pushed values: ``gradients`` or ``parameters``.
        scale: Factor on pushed values, as float32; the store adds and never divides.
        sync: The policy's part for this worker.

    Raises:
        PluginError: The policy broke its contract. All methods raise it.
    """

    def __init__(
        self, policy: SyncPolicy, cluster: Cluster, worker: NodeSpec, steps: int = UNKNOWN
    ) -> None:
        self.step = -1
        self.last = False
        self.exchange = policy.exchange
        self.sync: WorkerSync = policy.worker(cluster, worker, steps)
        self.scale = np.float32(policy.push_scale(cluster, worker))
        self._synchronises: bool | None = None
        self._reply_due = self._leaves = False
        self._rounds = 0  # synchronisations that were made, or left out
        self._reached = 0
        number = self.sync.coordinator
        self._host = None if number is None else policy.coordinators(cluster)[number].host

    def resume(self, rounds: int) -> None:
        """Continue after `rounds` synchronisations, in place of a lost process of this worker."""
        self._rounds = self._reached = rounds
        step = self.sync.resume(rounds)
        self.last = step is None
        self.step = -1 if step is None else step - 1

    def reach(self, rounds: int) -> None:
        """Let the next step be the one that follows `rounds` synchronisations of other parties.

        Steps that these have made meanwhile are left out, except for the last one. No effect if
        this worker has made as many.
        """
        self._reached = max(self._reached, rounds)

    def leave(self) -> None:
        """Let the next step be the last."""
        self._leaves = True

    def begin(self) -> int:
        """Begin the next local step, and return its number."""
        if self._reply_due:
            raise RuntimeError(f"step {self.step} waits for its coordinator's reply")
        self._next()
        while self._rounds < self._reached and not self.last:
            self.synchronises()
            self._next()
        return self.step

    def _next(self) -> None:
        self.step += 1
        self._synchronises = None
        self.last = self._leaves or self.sync.finished(self.step)

    def synchronises(self) -> bool:
        """Return whether the current step synchronises."""
        if self._synchronises is None:
            self._synchronises = self.last or self.sync.after_step(self.step)
            self._rounds += self._synchronises
        return self._synchronises

    @property
    def consults(self) -> bool:
        """Whether there is a coordinator."""
        return self._host is not None

    def report(self, compute_s: float) -> Report | None:
        """Return the report to send after the pushes of the current step; None if there is none.

        Args:
            compute_s: Seconds of computing per local step, without waiting.

        Returns:
            The report with its coordinator.
        """
        if self._host is None or not self.synchronises():
            return None
        assert self.sync.coordinator is not None
        self._reply_due = True
        return Report(self._host.id, self.sync.coordinator, self.sync.report(compute_s))

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
