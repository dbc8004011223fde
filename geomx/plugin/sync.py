"""Sync policies: when nodes synchronise, what they exchange, and where optimizers run.

A plugin answers ``geomx_sync_policy`` with a `SyncPolicy`. Decisions about local steps are always
taken in Python; a local server's side may be native.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from geomx.cluster import Cluster, NodeSpec, Party
from geomx.plugin.coordination import Site
from geomx.plugin.parts import Native

__all__ = ["PartySync", "SyncPolicy", "WorkerSync"]


class SyncPolicy:
    """When workers synchronise, what they exchange, and where the optimizer runs.

    The base class is the fully synchronous algorithm: every worker pushes its gradient after every
    local step, and the global server updates the weights with the mean of all gradients. Override
    what differs. A policy decides by its arguments alone, because every node has its own copy.

    Attributes:
        exchange: What a worker pushes and pulls: its ``gradients`` (the answer is new weights), or
            its ``parameters`` (the worker runs an optimizer of its own between two exchanges).
        together: Whether a global server waits for all parties before it updates and answers. If
            not, it applies and answers each party's push on its own.
        staleness_bound: Where `together` is False, how many rounds a party may be ahead of the
            slowest one; None for any number.

    Example:
        >>> class EverySecond(SyncPolicy):
        ...     def after_step(self, step, steps):
        ...         return step % 2 == 1 or step + 1 == steps
        >>> [step for step in range(5) if EverySecond().after_step(step, 5)]
        [1, 3, 4]
    """

    exchange: str = "gradients"
    together: bool = True
    staleness_bound: int | None = None

    def after_step(self, step: int, steps: int) -> bool:
        """Decide whether a worker synchronises after a local step.

        Args:
            step: Number of the step that has just ended, from 0.
            steps: How many local steps the worker makes in all.

        Returns:
            True to synchronise; a `bool` and nothing like it. The last step must synchronise.
        """
        return True

    def push_scale(self, cluster: Cluster, worker: NodeSpec) -> float:
        """Choose the factor by which a worker multiplies what it pushes.

        Servers sum and never divide, so a mean of parameters needs a factor of one over the number
        of workers.

        Args:
            cluster: All nodes.
            worker: The worker that pushes.

        Returns:
            A finite factor.
        """
        return 1.0

    def global_optimizer(self, optimizer: Mapping[str, Any], workers: int) -> dict[str, Any] | None:
        """Choose what the global servers run.

        Args:
            optimizer: The workload's optimizer: its ``name`` and numbers such as ``learning_rate``.
            workers: How many workers contribute to a sum.

        Returns:
            An optimizer in the same form; None where global servers only sum.
        """
        return {**optimizer, "rescale_grad": 1.0 / workers}

    def local_optimizer(self, optimizer: Mapping[str, Any]) -> dict[str, Any] | None:
        """Choose what every worker runs after each local step.

        Args:
            optimizer: The workload's optimizer: its ``name`` and numbers such as ``learning_rate``.

        Returns:
            An optimizer in the same form; None where workers do not update.
        """
        return None

    def coordinators(self, cluster: Cluster) -> Sequence[Site]:
        """List the coordinators that the policy needs.

        Args:
            cluster: All nodes.

        Returns:
            Coordinators with the nodes that they run on. A worker names the one that it reports to
            by its position in this list (`WorkerSync.coordinator`).
        """
        return ()

    def worker(self, cluster: Cluster, worker: NodeSpec, steps: int) -> WorkerSync:
        """Make one worker's side of the policy.

        Args:
            cluster: All nodes.
            worker: The worker.
            steps: How many local steps it makes in all; where a policy plans steps by speed, how
                many the slowest worker makes.

        Returns:
            By default an object that asks `after_step` and ends after `steps` steps.
        """
        return Stepwise(self, steps)

    def party_policy(self, cluster: Cluster, party: Party) -> Native | PartySync | None:
        """Make a local server's side of the policy.

        Args:
            cluster: All nodes.
            party: The party of the local server.

        Returns:
            What decides whether a sum of the party goes on to the global servers, and in which
            form; None where every round goes on as it is.
        """
        return None


class WorkerSync:
    """When one worker synchronises, and when it ends; it may listen to a coordinator.

    Attributes:
        coordinator: Position of its coordinator among `SyncPolicy.coordinators`; None for none.
    """

    coordinator: int | None = None

    def after_step(self, step: int) -> bool:
        """Decide whether to synchronise after a local step.

        Args:
            step: Number of the step, from 0.

        Returns:
            True to synchronise; a `bool` and nothing like it.
        """
        raise NotImplementedError

    def finished(self, step: int) -> bool:
        """Decide whether a step is this worker's last; the worker synchronises after its last step.

        Args:
            step: Number of the step, from 0.

        Returns:
            True if no step follows.
        """
        raise NotImplementedError

    def resume(self, rounds: int) -> int | None:
        """Find where a worker goes on that takes the place of a lost one.

        It is asked before the first step. By default `after_step` is asked for all steps before.

        Args:
            rounds: Synchronisations that are over, with the lost worker or without.

        Returns:
            The number of the step with which it begins; None if none is left.
        """
        step = 0
        while rounds > 0:
            if self.finished(step):
                return None
            rounds -= self.after_step(step)
            step += 1
        return step

    def report(self, step_s: float) -> list[float]:
        """Say what the coordinator gets at a synchronisation.

        Args:
            step_s: Seconds of computing in one local step, without waiting.

        Returns:
            Numbers; the coordinator gets them as ``values``.
        """
        return []

    def reply(self, values: Sequence[float]) -> None:
        """Handle the coordinator's answer, which always comes before the next local step.

        Args:
            values: The numbers that the coordinator sent.
        """


@dataclass(frozen=True)
class Stepwise(WorkerSync):
    """Synchronise as the policy says, a fixed number of steps."""

    policy: SyncPolicy
    steps: int

    def after_step(self, step: int) -> bool:
        """See `WorkerSync.after_step`."""
        return self.policy.after_step(step, self.steps)

    def finished(self, step: int) -> bool:
        """See `WorkerSync.finished`."""
        return step + 1 == self.steps


@runtime_checkable
class PartySync(Protocol):
    """A local server's side of a sync policy, written in Python; every server has a deep copy.

    Where sizes alone are simulated all arrays are empty, and what is made of them must be empty
    too. Two more methods are called where they exist: ``initial(shard, value)`` gets the initial
    values before anything is pushed, and ``answer(shard, value)`` turns the global server's answer
    into what the workers get.
    """

    def complete(
        self, shard: tuple[int, int], round_number: int, last: bool, total: NDArray[np.float32]
    ) -> tuple[bool, NDArray[np.float32]]:
        """Decide what becomes of a round whose contributions are all in.

        Args:
            shard: (key of the tensor, number of the shard).
            round_number: Of this shard, from 1.
            last: Whether this is the shard's last round.
            total: Sum of what the party's workers pushed, float32 of the shard's length.

        Returns:
            Whether the round goes on to the global server (True) or straight back to the workers
            (False), and the float32 array that goes there.
        """
        ...
