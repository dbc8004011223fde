"""The steps after which a script exchanges parameters, as the job's sync algorithm decides.

    for step in (rhythm := store.rhythm(steps)):
        ...                             # a local step, by this worker's own optimizer
        if rhythm.due():
            ...                         # push parameters * rhythm.scale, and pull them
            rhythm.exchanged()

The same script then serves every sync algorithm under which workers update by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from geomx.errors import GeomxError
from geomx.live.exchange import Exchange
from geomx.live.member import Member
from geomx.training.steps import Steps, computing_s


class Store(Protocol):
    """What a rhythm needs of the store whose exchanges it times."""

    member: Member
    exchange: Exchange

    def take_arrivals(self) -> float:
        """Return the last arrival of pulled values since the last call, in s since the start."""
        ...


class SyncSteps:
    """One worker's steps.

    Args:
        store: The worker's.
        steps: Local steps to make; where the algorithm plans them by speed, those of the slowest.
    """

    def __init__(self, store: Store, steps: int) -> None:
        self._store = store
        member = store.member
        self._steps = Steps(member.policy, member.spec.cluster, member.node, steps)
        self._began_s = self._compute_s = 0.0
        self._asked = self._told = False  # in the current step: `due`, `exchanged`
        self.scale = float(self._steps.scale)
        """What to multiply pushed parameters by, so that their sum is a mean."""

    def resume(self, rounds: int) -> None:
        """Go on after `rounds` exchanges, in the place of a worker that was lost."""
        self._steps.resume(rounds)

    @property
    def last(self) -> bool:
        """Whether the current step is the last one, whose exchange is the last of all keys."""
        return self._steps.last

    def __iter__(self) -> Iterator[int]:
        """The numbers of the steps, from 0, until the last that this worker is to make.

        Raises:
            GeomxError: The step that is over was to be exchanged, and the script did not ask for
                that, or did not say that it has done so.
        """
        while not self._steps.last:
            self._asked = self._told = False
            step = self._steps.begin()
            self._began_s = self._store.member.now()
            yield step
            self._check_exchanged()

    def due(self) -> bool:
        """Return whether to exchange now; call it in every step, when its results exist."""
        self._asked = True
        arrived_s, now_s = self._store.take_arrivals(), self._store.member.now()
        self._compute_s = computing_s(self._began_s, arrived_s, now_s)
        return self._steps.synchronises()

    def exchanged(self) -> None:
        """The exchange is under way: report to the coordinator, if there is one, and hear it.

        Raises:
            NodeLost: The answer will never come.
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
