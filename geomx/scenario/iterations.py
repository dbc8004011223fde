"""The events of a scenario that begin with local steps of workers (``at_iteration``)."""

from __future__ import annotations

from collections.abc import Collection

from geomx.scenario.acts import Scenario


class Iterations:
    """Finds the events that begin as workers begin their local steps, each once.

    An event that happens to one worker begins with a step of that worker, any other with that of
    the first worker to begin it.

    Args:
        scenario: The scenario.

    Attributes:
        waiting: Numbers of the events that have not begun.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._at = scenario.by_iteration
        self._workers = {number: scenario.worker_of(number) for number in self._at}
        self._begun: dict[int, int] = {}  # the latest step of each worker
        self._anew: set[int] = set()
        self.waiting = set(self._at)

    def renew(self, worker: int, begun: Collection[int] = ()) -> None:
        """Take note that another process takes a worker's place: what its first step began is past.

        Args:
            worker: Id of the worker.
            begun: Numbers of events that have begun, if another object has found them. The new
                process may repeat local steps since the last synchronisation.
        """
        self._anew.add(worker)
        self.waiting.difference_update(begun)

    def begins(self, worker: int, step: int) -> list[int]:
        """Return the numbers of the events that begin now.

        Args:
            worker: Id of a worker that begins a local step.
            step: The number of the step, from 1; some steps may be left out.
        """
        known = self._begun.get(worker, 0)
        before = step if worker in self._anew or (known == 0 and step > 1) else known
        self._anew.discard(worker)
        self._begun[worker] = step
        due = [n for n in sorted(self.waiting) if self._workers[n] in (None, worker)]
        due = [number for number in due if before < self._at[number] <= step]
        self.waiting.difference_update(due)
        return due
