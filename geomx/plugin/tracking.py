"""Experiment trackers: the run that a tracker follows, and what it is told about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TrackedRun:
    """A run that is about to start.

    Attributes:
        name: Its algorithms: ``SYNC + ACCEL, ACCEL``.
        mode: ``sim`` or ``live``.
        directory: Directory of its files, which exists.
        began_s: Time of its creation, in seconds of the Unix epoch.
        parameters: Its options by dotted name (``sync.k1``, ``network.name``): numbers, strings,
            booleans and None.
    """

    name: str
    mode: str
    directory: Path
    began_s: float
    parameters: Mapping[str, Any]


class Tracker:
    """Follows one run, in the process that records it; subclass it and override some methods.

    Times are seconds since the start of the run: virtual in a simulation. An exception in a method
    does not end the run: the tracker is told nothing more, and a warning says why.

    Example:
        >>> class Printer(Tracker):
        ...     def scalars(self, values, iteration, time_s):
        ...         print(iteration, time_s, values)
        >>> Printer().scalars({"train/loss": 0.5}, 3, 1.25)
        3 1.25 {'train/loss': 0.5}
    """

    def scalars(self, values: Mapping[str, float], iteration: int, time_s: float) -> None:
        """Log values that belong to one iteration.

        Args:
            values: By name: ``train/loss``, ``train/step_s``, ``train/wait_share`` and
                ``train/samples_per_s`` over all workers, or ``evaluation/accuracy`` and
                ``evaluation/loss`` on held-out data.
            iteration: Number of the iteration, from 0; training values come in its order.
            time_s: Time at which the last worker ended it.
        """

    def fault(self, row: Mapping[str, Any]) -> None:
        """Log a fault or a change of the members.

        Args:
            row: An entry of ``faults`` in ``summary.json``, with `time_s` and `what`.
        """

    def end(self, summary: Mapping[str, Any]) -> None:
        """Finish; called once, when all files of the run are written.

        Args:
            summary: The content of ``summary.json``; an unfinished run has ``aborted`` in it.
        """
