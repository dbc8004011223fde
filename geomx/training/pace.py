"""The computing time of a worker's step, in total and by layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from geomx import _core

NS = 1_000_000_000


@dataclass(frozen=True)
class Pace:
    """The computing time of a step, for workers of one speed.

    Attributes:
        seconds: The total in seconds.
        native: The times by layer, for the core.
    """

    seconds: float
    native: _core.Pace

    @classmethod
    def of(cls, times_s: Iterable[tuple[float, float]], speed: float) -> Pace:
        """Return the pace of workers of one speed.

        Args:
            times_s: Seconds forward and backward of each layer at speed 1.0.
            speed: Speed of the worker.

        Returns:
            The pace.
        """
        forward_ns, backward_ns = [], []
        for forward_s, backward_s in times_s:
            forward_ns.append(round(forward_s / speed * NS))
            backward_ns.append(round(backward_s / speed * NS))
        seconds = (sum(forward_ns) + sum(backward_ns)) / NS
        return cls(seconds, _core.Pace(forward_ns, backward_ns))
