"""When a worker whose script was asked to leave its job does so: at the end of a step."""

from __future__ import annotations

from collections import Counter

from geomx.errors import GeomxError, Left
from geomx.live.member import Member


class Departure:
    """Whether a worker must leave, and where its steps end.

    A step ends when every key that was pushed in it was pushed as often as any other.

    Args:
        member: Its membership.

    Attributes:
        asked: Whether it must leave.
    """

    def __init__(self, member: Member) -> None:
        self.asked = False
        self._member = member
        self._pushes: Counter[int] = Counter()

    def ask(self) -> None:
        """Let the worker leave.

        Raises:
            GeomxError: The others would not continue, or the worker is a group of processes.
        """
        why = ""
        if not self._member.spec.faults.continues:
            why = "the job has no faults.on_loss=continue"
        elif not self._member.may_leave:
            sync, _ = self._member.spec.sync
            why = f"sync={sync} plans the steps of all workers"
        elif self._member.grouped:
            why = "the processes of a group (geomx.torch.PartyHook) do not leave in step"
        if why:
            raise GeomxError(f"{self._member.node.name} cannot leave the job: {why}")
        self.asked = True

    @property
    def steps(self) -> int:
        """The number of steps that have begun with a push."""
        return max(self._pushes.values(), default=0)

    def count(self, key: int) -> None:
        """Count a push of a key.

        Raises:
            Left: It would begin another step, and the worker must leave.
        """
        if self.asked and self._pushes[key] >= self.steps:
            raise Left
        self._pushes[key] += 1
