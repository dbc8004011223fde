"""Tells that a worker of a script has left while others still train."""

from __future__ import annotations

from geomx.terminal.log import say


class LeftEarly:
    """Compares how many local steps the workers of a script make.

    A worker whose share of the data is smaller, or that stops early, leaves, and the others train
    on without it: that may be meant, or be a mistake in the script.

    Args:
        planned: Whether the sync algorithm itself gives workers different numbers of steps.
        continues: Whether rounds complete without a worker that has left. Otherwise the run ends
            with an error if it lacks in a further one, and not if others make local steps only.
    """

    def __init__(self, planned: bool, continues: bool = True) -> None:
        self._planned = planned
        self._others = "others train on without it" if continues else "others make more"
        self._left: dict[str, int] = {}  # steps of workers that have left
        self._most = 0  # steps of any worker

    def made(self, steps: int) -> None:
        """Note that some worker has made so many steps."""
        self._most = max(self._most, steps)

    def left(self, worker: str, steps: int) -> None:
        """Note that a worker has left after so many steps."""
        self._left[worker] = steps

    def tell(self) -> None:
        """Write a line for each worker that has left before another one began a further step."""
        for worker, steps in list(self._left.items()):
            if steps < self._most and not self._planned:
                del self._left[worker]
                say(f"{worker} has left after {steps:,} steps, {self._others}", "info")
