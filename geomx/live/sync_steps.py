"""The steps after which a script must exchange parameters, as the job's sync algorithm decides.

    for step in (rhythm := store.rhythm(steps)):
        ...                             # a local step, by this worker's own optimizer
        if rhythm.due():
            ...                         # push parameters * rhythm.scale, and pull them
            rhythm.exchanged()

Such a script works with every sync algorithm under which workers run their own optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from geomx.errors import GeomxError
from geomx.live.exchange import Exchange
from geomx.live.member import Member
from geomx.training.steps import Steps, computing_s


class Store(Protocol):
    """The methods of a store that `SyncSteps` uses."""

    member: Member
    exchange: Exchange

    def take_arrivals(self) -> float:
        """Return the latest arrival of a pulled value since the last call, in s since the start."""
        ...


class SyncSteps:
    """The steps of one worker.

    Args:
        store: The worker's store.
        steps: Number of local steps; of the slowest worker, if the algorithm plans steps by speed.
    """

    def __init__(self, store: Store, steps: int) -> None:
        self._store = store
        member = store.member
        self._steps = Steps(member.policy, member.spec.cluster, member.node, steps)
        self._began_s = self._compute_s = 0.0
        self._asked = self._told = False  # in the current step: `due`, `exchanged`
        self.scale = float(self._steps.scale)
        """The factor for pushed parameters that makes their sum a mean."""

    def resume(self, rounds: int) -> None:
        """Continue after `rounds` exchanges, in place of a lost worker."""
        self._steps.resume(rounds)

    def leave(self) -> None:
        """Let the next step be the last."""
        self._steps.leave()

    @property
    def last(self) -> bool:
        """Whether the current step is the last, whose exchange is the last of all keys."""
        return self._steps.last

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers of the worker's steps, from 0.

        Raises:
            GeomxError: The script did not call `due` in the last step, or did not call `exchanged`
                although an exchange was due.
        """
        while not self._steps.last:
            self._asked = self._told = False
            step = self._steps.begin()
            self._store.member.begins()
            self._began_s = self._store.member.now()
            yield step
            self._check_exchanged()

    def due(self) -> bool:
        """Return whether to exchange now; call it in every step, after the update."""
        self._asked = True
        self._store.member.computed()
        arrived_s, now_s = self._store.take_arrivals(), self._store.member.now()
        self._compute_s = computing_s(self._began_s, arrived_s, now_s)
        return self._steps.synchronises()

    def exchanged(self) -> None:
        """Report to the coordinator, if there is one, and wait for its reply.

        Call it after all parameters of the step have been pushed and pulled.

        Raises:
            NodeLost: The reply will never arrive.
        """
        self._told = True
        report = self._steps.report(self._compute_s)
        if report is not None:
            self._store.exchange.flush()
            self._steps.reply(self._store.member.consult(report))

    def _check_exchanged(self) -> None:
        step, missing = self._steps.step, ""
        if self._steps.synchronises():
            if not self._asked:
                missing = "ask rhythm.due() in every step"
            elif self._steps.consults and not self._told:
                missing = "call rhythm.exchanged() when parameters have been pushed and pulled"
        if missing:
            raise GeomxError(f"step {step} must be exchanged: {missing}")
