"""Passes the records of a run to experiment trackers.

Curves are means over workers, because a tracker with a curve for each of a thousand workers shows
nothing. An iteration is passed on when all workers have ended it, or when the fastest worker is
`AHEAD` iterations further: some may have left, and asynchronous workers differ in speed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from geomx.plugin.tracking import Tracker
from geomx.results.files import Row
from geomx.tracking.apart import Apart

AHEAD = 32
"""Iterations by which a curve may lag behind the fastest worker."""


class Following:
    """The trackers of one run.

    Args:
        trackers: Each with its plugin, as named in errors.
        workers: Number of workers.
    """

    def __init__(self, trackers: Sequence[tuple[str, Tracker]], workers: int) -> None:
        self._trackers = [Apart(label, tracker) for label, tracker in trackers]
        self._workers = workers
        self._open: dict[int, list[Row]] = {}  # iterations that some workers have ended
        self._passed = -1  # the last iteration that was passed on

    def iteration(self, row: Row) -> None:
        """Take a row of ``iterations.csv``; one that comes too late for its mean is left out."""
        number = row["iteration"]
        if not self._trackers or number <= self._passed:
            return
        self._open.setdefault(number, []).append(row)
        full = len(self._open[number]) == self._workers
        self._pass_until(number if full else number - AHEAD)

    def evaluation(self, row: Row) -> None:
        """Take a row of ``evaluations.csv``."""
        values = {
            f"evaluation/{name}": row[name]
            for name in ("accuracy", "loss")
            if row[name] is not None
        }
        self._tell(lambda tracker: tracker.scalars(dict(values), row["iteration"], row["time_s"]))

    def fault(self, row: Mapping[str, Any]) -> None:
        """Take an entry of ``faults`` of the summary."""
        self._tell(lambda tracker: tracker.fault(dict(row)))

    def end(self, summary: Mapping[str, Any]) -> None:
        """Pass on what is left, and the summary."""
        self._pass_until(max(self._open, default=-1))
        self._tell(lambda tracker: tracker.end(deepcopy(dict(summary))))
        for tracker in self._trackers:
            tracker.close()
        self._trackers.clear()

    def _pass_until(self, last: int) -> None:
        for number in sorted(number for number in self._open if number <= last):
            rows = self._open.pop(number)
            values, time_s = means(rows), max(row["end_s"] for row in rows)
            self._tell(lambda tracker: tracker.scalars(dict(values), number, time_s))  # noqa: B023
        self._passed = max(self._passed, last)

    def _tell(self, call: Callable[[Tracker], None]) -> None:
        for tracker in tuple(self._trackers):
            if (what := tracker.tell(call)) is not None:
                self._trackers.remove(tracker)
                tracker.close()
                text = f"{tracker.label} failed, and follows the run no longer: {what}"
                warnings.warn(text, stacklevel=3)


def means(rows: Sequence[Row]) -> dict[str, float]:
    """Return the values of one iteration over all workers that have ended it.

    Args:
        rows: Their rows of ``iterations.csv``, at least one.

    Returns:
        ``train/step_s``, the mean duration; ``train/wait_share``, the fraction of all durations
        that was waiting; ``train/samples_per_s`` of all together; and ``train/loss``, the mean, if
        the run computes losses.
    """
    steps_s = [row["end_s"] - row["start_s"] for row in rows]
    total_s, waited_s = sum(steps_s), sum(row["wait_s"] for row in rows)
    values = {"train/step_s": total_s / len(rows)}
    if total_s > 0:
        values["train/wait_share"] = waited_s / total_s
        values["train/samples_per_s"] = sum(row["samples"] for row in rows) * len(rows) / total_s
    losses = [row["loss"] for row in rows if row["loss"] is not None]
    if losses:
        values["train/loss"] = sum(losses) / len(losses)
    return values
