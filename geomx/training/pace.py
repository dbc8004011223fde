"""What a step of computing takes a worker, by layer and in all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from geomx import _core

NS = 1_000_000_000


@dataclass(frozen=True)
class Pace:
    """What workers of one speed take for a step.

    Attributes:
        seconds: Of computing.
        native: The same by layer, for the core.
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
