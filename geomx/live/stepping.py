"""One worker's side of the job's sync policy, local step by local step.

Whoever trains asks the same questions in the same order, whether it is the worker of an experiment
(`geomx.live.worker`) or a script with a training loop of its own: is this the last step, does it
synchronise, what is the factor on what is pushed, and, afterwards, what does the coordinator say.
"""

from __future__ import annotations

import numpy as np

from geomx.live.member import Member

ENDLESS = 2**53
"""Steps of a job whose number of steps nobody has told."""


class Stepping:
    """Counts local steps and asks the sync policy about each.

    Args:
        member: A worker's membership.
        steps: Local steps that are planned in all; as many as come if nobody knows.

    Attributes:
        step: Number of the current local step, from 0; -1 before the first.
        last: Whether it is the last one. It then synchronises.
        gradients: Whether gradients are exchanged, rather than parameters.
        scale: Factor on what is pushed; the store sums and never divides.
    """

    def __init__(self, member: Member, steps: int = ENDLESS) -> None:
        policy, cluster = member.policy, member.spec.cluster
        self.step = -1
        self.last = False
        self.gradients = policy.exchange == "gradients"
        self.scale = np.float32(policy.push_scale(cluster, member.node))
        self._member = member
        self._sync = policy.worker(cluster, member.node, steps)

    def begin(self) -> None:
        """Begin the next local step."""
        self.step += 1
        self.last = self._sync.finished(self.step)

    def synchronises(self) -> bool:
        """Whether the current step does; to be asked once a step."""
        return self.last or self._sync.after_step(self.step)

    @property
    def consults(self) -> bool:
        """Whether there is a coordinator to `consult` after each synchronisation."""
        return self._sync.coordinator is not None

    def consult(self, compute_s: float, end_s: float) -> None:
        """Report to the coordinator, behind all that was pushed, and hear its answer.

        Args:
            compute_s: Seconds that one local step takes.
            end_s: When the current one ended, in seconds since the start of the run.

        Raises:
            NodeLost: Somebody was lost.
        """
        number = self._sync.coordinator
        if number is None:
            return
        member = self._member
        host = member.policy.coordinators(member.spec.cluster)[number].host
        member.loop.report(host.id, number, self._sync.report(compute_s), end_s)
        self._sync.reply(member.hear(number))
