"""Sync policies: when nodes synchronise, what they exchange, and where optimizers run.

A plugin's hook ``geomx_sync_policy`` returns a `SyncPolicy`. The part of workers is always Python;
that of local servers may be native.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.cluster import Cluster, NodeSpec, Party
from geomx.plugin.coordination import Site
from geomx.plugin.parts import Native
from geomx.plugin.party import PartyModel, PartySync
from geomx.plugin.rounds import RoundPolicy

__all__ = ["SyncPolicy", "WorkerSync"]


class SyncPolicy:
    """When workers synchronise, what they exchange, and where the optimizer runs.

    The base class is the fully synchronous algorithm: every worker pushes its gradient after every
    local step, and the global server updates the weights with the mean of all gradients. Override
    what differs. Results must depend on the arguments only, because every node has its own policy.
    A worker's is a deep copy of what the hook returned; what it remembers of earlier steps is best
    kept in the `WorkerSync` that `worker` returns.

    Attributes:
        exchange: ``gradients``: workers push gradients and receive new weights. ``parameters``:
            workers run their own optimizer, push parameters, and receive new ones.
        together: Whether a global server waits for all parties before it updates and answers. If
            not, it applies and answers each party's push separately.
        workers_together: Whether a local server waits for all workers of its party before it sends
            or answers. If not, it applies and answers each worker's push separately, by the native
            policy or `PartyModel` of `party_policy`.
        staleness_bound: If `together` is False, the number of rounds by which a party may be ahead
            of the slowest; None for no limit.
        delay: Number of steps for which a worker trains on before it applies an answer: what is
            sent after step t is answered and applied after step t + delay, before a push of the
            same step. 0: before the next step. More needs `exchange` = ``parameters``.

    Example:
        >>> class EverySecond(SyncPolicy):
        ...     def after_step(self, step, steps):
        ...         return step % 2 == 1 or step + 1 == steps
        >>> [step for step in range(5) if EverySecond().after_step(step, 5)]
        [1, 3, 4]
    """

    exchange: str = "gradients"
    together: bool = True
    workers_together: bool = True
    staleness_bound: int | None = None
    delay: int = 0

    def after_step(self, step: int, steps: int) -> bool:
        """Decide whether a worker synchronises after a local step.

        Args:
            step: Number of the step that has just ended, from 0.
            steps: Total number of the worker's local steps.

        Returns:
            True to synchronise. Must be a `bool`. For the last step the answer does not matter, as
            that step always synchronises.
        """
        return True

    def fragments(self, elements: Sequence[int]) -> Sequence[Sequence[int]]:
        """Divide the tensors into fragments, each of which is exchanged at steps of its own.

        Args:
            elements: Elements of each tensor, by key.

        Returns:
            The keys of each fragment; every key is in one. By default, one fragment of all. Several
            need `exchange` = ``parameters``.
        """
        return [range(len(elements))]

    def due(self, step: int, steps: int, fragments: int) -> Collection[int]:
        """Decide which fragments a worker exchanges after a local step.

        Called instead of `after_step` where there are several fragments, a delay or a merge.

        Args:
            step: Number of the step that has just ended, from 0.
            steps: Total number of the worker's local steps.
            fragments: Number of fragments.

        Returns:
            Numbers of fragments, none of which is in flight. By default, all if `after_step`. Not
            called for the last step, after which all are exchanged.
        """
        return range(fragments) if self.after_step(step, steps) else ()

    def merge(
        self, key: int, local: NDArray[np.float32], value: NDArray[np.float32], age: int
    ) -> NDArray[np.float32]:
        """Return what a worker makes of its own tensor and an answer.

        Not called in simulations without gradients, nor for the last step, whose answers are taken
        as they are, so that all workers end with the same model. Needs `exchange` =
        ``parameters``.

        Args:
            key: Number of the tensor.
            local: The worker's own tensor now, flat.
            value: The answer to its push, flat.
            age: Number of steps made since the push.

        Returns:
            The worker's tensor from now on, a float32 array of the same length. By default, the
            answer.
        """
        return value

    def push_scale(self, cluster: Cluster, worker: NodeSpec) -> float:
        """Return the factor by which a worker multiplies what it pushes.

        Servers add and never divide, so the mean of parameters requires a factor of 1 / (number of
        workers).

        Args:
            cluster: All nodes.
            worker: The worker that pushes.

        Returns:
            A finite factor.
        """
        return 1.0

    def global_optimizer(self, optimizer: Mapping[str, Any], workers: int) -> dict[str, Any] | None:
        """Return the optimizer of the global servers.

        Args:
            optimizer: The workload's optimizer: its ``name`` and numbers such as ``learning_rate``.
            workers: Number of workers that contribute to a sum.

        Returns:
            An optimizer in the same form; None if global servers only add.
        """
        return {**optimizer, "rescale_grad": 1.0 / workers}

    def local_optimizer(self, optimizer: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the optimizer that every worker applies after each local step.

        Args:
            optimizer: The workload's optimizer: its ``name`` and numbers such as ``learning_rate``.

        Returns:
            An optimizer in the same form. None if workers do not update, which those must that
            exchange parameters.
        """
        return None

    def coordinators(self, cluster: Cluster) -> Sequence[Site]:
        """Return the coordinators of the policy.

        Args:
            cluster: All nodes.

        Returns:
            Coordinators with the nodes that they run on. `WorkerSync.coordinator` is a position in
            this list.
        """
        return ()

    def worker(self, cluster: Cluster, worker: NodeSpec, steps: int) -> WorkerSync:
        """Return one worker's part of the policy.

        Args:
            cluster: All nodes.
            worker: The worker.
            steps: Total number of its local steps; under a policy that plans steps by speed, the
                number from which it plans, as that of the slowest worker.

        Returns:
            By default, an object that calls `after_step` and ends after `steps` steps.
        """
        return Stepwise(self, steps)

    def party_policy(
        self, cluster: Cluster, party: Party
    ) -> Native | PartySync | PartyModel | None:
        """Return a local server's part of the policy.

        Args:
            cluster: All nodes.
            party: The party of the local server.

        Returns:
            An object that decides whether the party's sum is sent to the global servers, and that
            may change it; None if every sum is sent unchanged. If `workers_together` is False, a
            `PartyModel`, or a native policy with its methods.
        """
        return None

    def round_policy(self, cluster: Cluster) -> Native | RoundPolicy | None:
        """Return the global servers' part of the policy.

        Args:
            cluster: All nodes.

        Returns:
            An object that decides when a round closes without parties that are late, and what each
            contribution counts; None if every round waits for all parties. Needs `together` and
            `workers_together`, and no coordinators. Parties then have no overlays between them, and
            optimizers stay at the global servers.
        """
        return None

    def party_round_policy(self, cluster: Cluster, party: Party) -> Native | RoundPolicy | None:
        """Return what closes the rounds of a party, to which its workers contribute.

        Args:
            cluster: All nodes.
            party: The party of the local server.

        Returns:
            An object that decides when a round closes without workers that are late, and what each
            contribution counts; None if every round waits for all workers of the party. The sum
            then stands for all of them. Needs `workers_together`, and no coordinators. There are
            then no overlays, and optimizers stay at the global servers, whose rounds wait for all
            parties that will still push (or as `round_policy` says).
        """
        return None


class WorkerSync:
    """A worker's part of a sync policy: when the worker synchronises, and when it ends.

    Attributes:
        coordinator: Position in `SyncPolicy.coordinators` of the coordinator to which this worker
            reports; None for none.
    """

    coordinator: int | None = None

    def after_step(self, step: int) -> bool:
        """Decide whether to synchronise after a local step.

        Args:
            step: Number of the step, from 0.

        Returns:
            True to synchronise. Must be a `bool`.
        """
        raise NotImplementedError

    def due(self, step: int, fragments: int) -> Collection[int]:
        """Decide which fragments to exchange after a local step; see `SyncPolicy.due`.

        Args:
            step: Number of the step, from 0.
            fragments: Number of fragments.

        Returns:
            Numbers of fragments.
        """
        return range(fragments) if self.after_step(step) else ()

    def merge(
        self, key: int, local: NDArray[np.float32], value: NDArray[np.float32], age: int
    ) -> NDArray[np.float32]:
        """Return what this worker makes of its own tensor and an answer; see `SyncPolicy.merge`.

        Args:
            key: Number of the tensor.
            local: The worker's own tensor now, flat.
            value: The answer to its push, flat.
            age: Number of steps made since the push.

        Returns:
            The worker's tensor from now on, a float32 array of the same length.
        """
        return value

    def finished(self, step: int) -> bool:
        """Decide whether a step is this worker's last, after which it always synchronises.

        Args:
            step: Number of the step, from 0.

        Returns:
            True if no step follows.
        """
        raise NotImplementedError

    def resume(self, rounds: int) -> int | None:
        """Return the first step of a worker that replaces a lost one.

        Called before the first step. By default, `after_step` is called for all earlier steps, to
        find the step that follows `rounds` synchronisations. A worker with a `coordinator` must
        override it, because the replies to these synchronisations are not known any more.

        Args:
            rounds: Number of completed synchronisations, with or without the lost worker.

        Returns:
            The number of the worker's first step; None if no step is left.
        """
        step = 0
        while rounds > 0:
            if self.finished(step):
                return None
            rounds -= self.after_step(step)
            step += 1
        return step

    def report(self, step_s: float) -> list[float]:
        """Return the worker's report to its coordinator at a synchronisation.

        Args:
            step_s: Seconds of computing in one local step, without waiting; above 0.

        Returns:
            The report as numbers, which the coordinator receives as ``values``.
        """
        return []

    def reply(self, values: Sequence[float]) -> None:
        """Receive the coordinator's reply. Called before the next local step.

        Args:
            values: The reply as numbers.
        """


@dataclass(frozen=True)
class Stepwise(WorkerSync):
    """Synchronises as the policy's `SyncPolicy.after_step` decides, for a fixed number of steps."""

    policy: SyncPolicy
    steps: int

    def after_step(self, step: int) -> bool:
        """See `WorkerSync.after_step`."""
        return self.policy.after_step(step, self.steps)

    def due(self, step: int, fragments: int) -> Collection[int]:
        """See `WorkerSync.due`."""
        return self.policy.due(step, self.steps, fragments)

    def merge(
        self, key: int, local: NDArray[np.float32], value: NDArray[np.float32], age: int
    ) -> NDArray[np.float32]:
        """See `WorkerSync.merge`."""
        return self.policy.merge(key, local, value, age)

    def finished(self, step: int) -> bool:
        """See `WorkerSync.finished`."""
        return step + 1 >= self.steps
