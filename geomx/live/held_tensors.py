"""Names the tensors that only some workers of a script have, for which the others wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from geomx.errors import GeomxError


class HeldTensors:
    """The tensors that each worker of a script has initialised."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = defaultdict(set)

    def add(self, worker: str, names: Iterable[str]) -> None:
        """Note that a worker has initialised tensors."""
        self._names[worker].update(names)

    def forget(self, worker: str) -> None:
        """Note that another process of a worker begins."""
        self._names.pop(worker, None)

    def differing(self, workers: Sequence[str]) -> GeomxError | None:
        """Return the error that workers train different models; None: they have the same tensors.

        Args:
            workers: Names of the workers that take part.
        """
        if not self._names:
            return None
        for worker in workers[1:]:
            for has, lacks in ((workers[0], worker), (worker, workers[0])):
                if more := sorted(self._names[has] - self._names[lacks]):
                    others = f" and {len(more) - 1} more" if len(more) > 1 else ""
                    return GeomxError(
                        f"{has} has initialised {more[0]}{others}, and {lacks} has not, and all "
                        "wait: all workers must initialise the same keys"
                    )
        return None
