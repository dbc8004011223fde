"""Names what only some workers of a script have, tensors or an optimizer, while all wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from geomx.errors import GeomxError


class HeldTensors:
    """The tensors that each worker of a script has initialised, and which set an optimizer."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = defaultdict(set)
        self._optimizers: set[str] = set()

    def add(self, worker: str, names: Iterable[str]) -> None:
        """Note that a worker has initialised tensors."""
        self._names[worker].update(names)

    def sets_optimizer(self, worker: str) -> None:
        """Note that a worker has set an optimizer, before which servers use none of its pushes."""
        self._optimizers.add(worker)

    def forget(self, worker: str) -> None:
        """Note that another process of a worker begins."""
        self._names.pop(worker, None)
        self._optimizers.discard(worker)

    def differing(self, workers: Sequence[str], first: str) -> GeomxError | None:
        """Return the error that workers differ in what they have to have; None: they do not.

        Args:
            workers: Names of the workers that take part.
            first: The worker whose optimizer the servers run.
        """
        if not self._names:
            return None
        with_one = [worker for worker in workers if worker in self._optimizers]
        if with_one and first in workers and first not in self._optimizers:
            return GeomxError(
                f"{with_one[0]} has set an optimizer, and {first} has not, and all wait: all "
                "workers must call set_optimizer"
            )
        for worker in workers[1:]:
            for has, lacks in ((workers[0], worker), (worker, workers[0])):
                if more := sorted(self._names[has] - self._names[lacks]):
                    others = f" and {len(more) - 1} more" if len(more) > 1 else ""
                    return GeomxError(
                        f"{has} has initialised {more[0]}{others}, and {lacks} has not, and all "
                        "wait: all workers must initialise the same keys"
                    )
        return None
