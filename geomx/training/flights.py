"""Which tensors a worker exchanges after a step, and when it applies the answers.

Most sync policies exchange all tensors at once, and the next step waits for the answers. Others
divide the tensors into fragments, each with steps of its own, or train on while answers are in
flight (`SyncPolicy.fragments`, `SyncPolicy.delay`, `WorkerSync.merge`). `Flights` counts for those.

A fragment that was exchanged after step t is in flight until its answer is applied, which is after
step t + delay, and before the last step begins. It must not be due in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomx.errors import PluginError
from geomx.plugin.contracts import exchanges_at_once
from geomx.plugin.sync import SyncPolicy, WorkerSync


class Answer(NamedTuple):
    """The answer to an exchange of a tensor, which is to be applied.

    Attributes:
        key: Number of the tensor.
        age: Number of steps made since it was pushed, which `WorkerSync.merge` receives; None if
            the value is taken as it is.
    """

    key: int
    age: int | None


class Flights:
    """The fragments of one worker.

    Args:
        policy: The sync policy.
        sync: The policy's part for this worker.
        elements: Elements of each tensor, by key.

    Attributes:
        plain: Whether all tensors are exchanged at once, and the next step takes the answers.

    Raises:
        PluginError: The fragments are not a partition of the tensors.
    """

    def __init__(self, policy: SyncPolicy, sync: WorkerSync, elements: Sequence[int]) -> None:
        self._sync, self._delay = sync, policy.delay
        self._fragments = [list(keys) for keys in policy.fragments(elements)]
        self._merges: bool = getattr(sync, "merges", False)
        self.plain = exchanges_at_once(policy, sync, len(self._fragments))
        self._since: dict[int, int] = {}  # fragment in flight: step after which it was pushed
        self._rounds = [0] * len(self._fragments)  # exchanges that were made, or left out
        self._reached = [0] * len(self._fragments)
        self._sent: list[int] = []
        self._due: list[Answer] = []
        self._early: list[Answer] = []

    # ---- the current step ----

    def begin(self, step: int, last: bool) -> None:
        """Begin a step: answers that could be applied in no later one are needed now."""
        over = [
            number for number, since in self._since.items() if last or since + self._delay < step
        ]
        self._early += [answer for number in over for answer in self._apply(number, step - 1)]

    def send(self, step: int, last: bool) -> bool:
        """Decide which fragments are exchanged after a step; return whether any is.

        Raises:
            PluginError: One of them is in flight.
        """
        due = self._asked(step, last)
        for number in due:
            if number in self._since:
                label = getattr(self._sync, "label", type(self._sync).__name__)
                raise PluginError(
                    f"{label}: fragment {number} is due after step {step}, although the "
                    f"answer to its exchange after step {self._since[number]} is not applied yet; "
                    f"the delay of {self._delay} steps must be smaller"
                )
            self._since[number] = step
        self._sent = due
        arrived = [n for n, since in self._since.items() if last or since + self._delay <= step]
        self._due += [answer for n in arrived for answer in self._apply(n, step, last)]
        return bool(due)

    def _asked(self, step: int, last: bool) -> list[int]:
        count = len(self._fragments)
        due = list(range(count)) if last else sorted(self._sync.due(step, count))
        for number in due:
            self._rounds[number] += 1
        return due

    def _apply(self, number: int, step: int, last: bool = False) -> list[Answer]:
        age = step - self._since.pop(number)
        merged = self._merges and not last
        return [Answer(key, age if merged else None) for key in self._fragments[number]]

    @property
    def sent(self) -> list[int]:
        """The keys that are exchanged after the current step."""
        return sorted(key for number in self._sent for key in self._fragments[number])

    @property
    def due(self) -> list[int]:
        """The keys whose answers the next step needs."""
        return sorted(answer.key for answer in self._due)

    @property
    def early(self) -> list[int]:
        """The keys whose answers the current step needs beside those."""
        return sorted(answer.key for answer in self._early)

    def take_due(self) -> list[Answer]:
        """Return the answers of `due`, all of which have arrived, to apply them; once."""
        taken, self._due = self._due, []
        return taken

    def take_early(self) -> list[Answer]:
        """Return the answers of `early`, all of which have arrived, to apply them; once."""
        taken, self._early = self._early, []
        return taken

    def merge(
        self, answer: Answer, local: NDArray[np.float32], value: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return what the worker makes of an answer.

        Args:
            answer: Which one.
            local: The worker's own tensor, flat.
            value: The value that has arrived, flat.
        """
        if answer.age is None:
            return value
        return self._sync.merge(answer.key, local, value, answer.age)

    # ---- steps that are left out ----

    def leave_out(self, step: int) -> None:
        """Leave a step out, and the exchanges after it."""
        self._asked(step, False)

    def reach(self, rounds: Sequence[tuple[int, int]]) -> None:
        """Note (key, rounds) that other parties have completed."""
        reached = dict(rounds)
        for number, keys in enumerate(self._fragments):
            there = [reached[key] for key in keys if key in reached]
            self._reached[number] = max(self._reached[number], *there, 0)

    @property
    def behind(self) -> bool:
        """Whether other parties have completed rounds for which a step has to be left out."""
        return any(made < other for made, other in zip(self._rounds, self._reached, strict=True))

    def resume(self, rounds: int) -> int | None:
        """Return the step that follows `rounds` exchanges of every fragment; None if none does."""
        step = 0
        while min(self._rounds) < rounds:
            if self._sync.finished(step):
                return None
            self._asked(step, False)
            step += 1
        self._rounds = [rounds] * len(self._rounds)
        self._reached = list(self._rounds)
        return step

    def schedule(self, step: int) -> list[int]:
        """Return the fragments that are due after a step, other than the last."""
        return sorted(self._sync.due(step, len(self._fragments)))

    def shift(self, steps: int) -> None:
        """Count `steps` repeated steps, after which all is as before."""
        self._since = {number: since + steps for number, since in self._since.items()}

    def state(self, step: int) -> Any:
        """Return what the following steps depend on, with steps relative to `step`."""
        return tuple((number, step - since) for number, since in sorted(self._since.items()))
