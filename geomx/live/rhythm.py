"""When a script exchanges parameters: as the job's sync algorithm says, asked step by step.

    for step in (rhythm := store.rhythm(steps)):
        ...                             # a local step, by this worker's own optimizer
        if rhythm.due():
            ...                         # push parameters * rhythm.scale, and pull them
            rhythm.exchanged()

The same script then serves every sync algorithm under which workers update by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from geomx.live.member import Member, naming_the_lost


class Rhythm:
    """One worker's steps.

    Args:
        member: The worker's membership.
        steps: Local steps to make; where the algorithm plans them by speed, those of the slowest.
    """

    def __init__(self, member: Member, steps: int) -> None:
        cluster, policy = member.spec.cluster, member.policy
        self._member = member
        self._sync = policy.worker(cluster, member.node, steps)
        self._step = -1
        self._last = False
        self._began_s = self._took_s = 0.0
        self.scale = policy.push_scale(cluster, member.node)
        """What to multiply pushed parameters by, so that their sum is a mean."""

    def __iter__(self) -> Iterator[int]:
        """The numbers of the steps, from 0, until the last that this worker is to make."""
        while not self._last:
            self._step += 1
            self._last = self._sync.finished(self._step)
            self._began_s = time.monotonic()
            yield self._step

    def due(self) -> bool:
        """Whether to exchange now; to be asked when a step's results are there, once."""
        self._took_s = time.monotonic() - self._began_s
        return self._last or self._sync.after_step(self._step)

    def exchanged(self) -> None:
        """The exchange is under way: hear what is next, if somebody plans it.

        Raises:
            NodeLost: The planner never will answer.
        """
        number = self._sync.coordinator
        if number is None:
            return
        member = self._member
        host = member.policy.coordinators(member.spec.cluster)[number].host
        with naming_the_lost(member.loop):
            member.loop.report(host.id, number, self._sync.report(self._took_s))
        self._sync.reply(member.hear(number))
