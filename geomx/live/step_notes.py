"""Where a worker of an experiment is, written to its journal and read from there.

A worker whose process was killed goes on in another (`geomx.live.resume`, and restarts by the
launcher). The journal repeats its protocol node. What the training loop knew is here. At each step
that begins with new values, a note says which step that is, what the steps since the note before
took and were answered (the sync policy is asked again, so that it reaches the same state), and
what the worker's own optimizers keep. The parameters are the values of that moment, which are in
the journal. Steps after the latest note are computed again from them: they are the same steps, as
a model's step follows from parameters and arguments alone. What was pushed is not pushed again.

Models that are to be evaluated at the end are kept in files beside the journal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx import _core
from geomx.results.files import read_arrays, write_arrays
from geomx.training.passes import Backward, Forward

Values = list[NDArray[np.float32]]
Kept = tuple[int, float, Values]
"""A model to evaluate: the step, its end in seconds since the start, the parameters."""

_END = "end_s"


@dataclass(frozen=True)
class Past:
    """Where a worker was.

    Attributes:
        step: The step that begins with these values.
        round: Of all keys.
        steps: Of each step before it: seconds of computing, and what its coordinator answered.
        values: The values of all keys.
        state: Of the worker's own optimizers, by key.
    """

    step: int
    round: int
    steps: list[tuple[float, list[float]]]
    values: dict[int, NDArray[np.float32]]
    state: list[bytes]


class StepNotes:
    """The notes of one worker.

    Args:
        loop: Its loop, which runs.
        journal: The path of its journal; None: nothing is noted.
        synced: Whether models that are kept survive a failure of the machine (faults.log_sync).
        first: The step with which this worker's run begins.
    """

    def __init__(
        self, loop: _core.Loop, journal: Path | None, synced: bool = False, first: int = 0
    ) -> None:
        self._loop = loop
        self._synced = synced
        self._first = first
        self._journal = journal
        self._steps: list[tuple[float, list[float]]] = []  # since the latest note
        self._round = -1  # of the latest note
        self._past: Past | None = None

    # ---- writing ----

    def finished(self, compute_s: float, answer: Sequence[float]) -> None:
        """Take note of what a step was asked and answered."""
        if self._journal is not None:
            self._steps.append((compute_s, list(answer)))

    def due(self, number: int) -> bool:
        """Return whether values of round `number`, which all have arrived, are not noted yet."""
        return self._journal is not None and number != self._round

    def note(self, step: int, number: int, state: Sequence[bytes]) -> None:
        """Note that `step` begins with the values of round `number`.

        Args:
            step: Number of the step.
            number: Round of all keys.
            state: Of the worker's own optimizers, by key.
        """
        text = json.dumps({"step": step, "round": number, "steps": self._steps})
        _core.note(self._loop, text, list(state))
        self._steps, self._round = [], number

    def keep(self, step: int, end_s: float, values: Values) -> None:
        """Keep a model that is to be evaluated, for another process."""
        if self._journal is not None:
            arrays: dict[str, NDArray[Any]] = {str(key): value for key, value in enumerate(values)}
            write_arrays(self._file(step), {**arrays, _END: np.array(end_s)}, self._synced)

    # ---- reading ----

    def past(self) -> Past | None:
        """Return where an earlier process was; None if there was none, or it had noted nothing.

        All tensors have been declared.
        """
        resumed = None if self._journal is None else _core.resumed(self._loop)
        if resumed is None:
            return None
        texts, state, rounds, values = resumed
        notes = [json.loads(text) for text in texts]
        steps = [(seconds, answer) for note in notes for seconds, answer in note["steps"]]
        step, self._round = notes[-1]["step"], notes[-1]["round"]
        assert len(steps) == step - self._first and set(rounds.values()) <= {self._round}
        self._past = Past(step, self._round, steps, values, state)
        return self._past

    def repeats(self, order: Forward | Backward, step: int) -> bool:
        """Fill in the answer to an order that an earlier process has carried out.

        Args:
            order: Of the training loop.
            step: Number of its step.

        Returns:
            False if it is to be carried out now.
        """
        if self._past is None or step >= self._past.step:
            return False
        compute_s, answer = self._past.steps[step - self._first]
        if isinstance(order, Forward):
            order.compute_s = compute_s
        else:
            order.answer = answer
        return True

    def kept(self) -> list[Kept]:
        """Return the models that an earlier process has kept of steps that are not repeated."""
        if self._past is None or self._journal is None:
            return []
        found = []
        for step in range(self._first, self._past.step):
            path = self._file(step)
            if not path.exists():
                continue
            arrays = read_arrays(path)
            values = [arrays[str(key)] for key in range(len(arrays) - 1)]
            found.append((step, float(arrays[_END]), values))
        return found

    def _file(self, step: int) -> Path:
        assert self._journal is not None
        return self._journal.with_name(f"{self._journal.stem}.step{step}.npz")
