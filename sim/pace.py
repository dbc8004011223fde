"""What a step of computing takes a simulated worker, by layer and in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geomx import _core
from geomx.sim.worker import NS
from geomx.workload import Layer


@dataclass(frozen=True)
class Pace:
    """What workers of one speed take for a step.

    Attributes:
        seconds: Of computing.
        native: The same by layer, for the fabric.
    """

    seconds: float
    native: _core.Pace

    @classmethod
    def of(cls, layers: Sequence[Layer], speed: float) -> Pace:
        """The pace of workers of this speed; 1.0 is the workload's own layer times."""
        forward_ns = [round(layer.forward_s / speed * NS) for layer in layers]
        backward_ns = [round(layer.backward_s / speed * NS) for layer in layers]
        seconds = (sum(forward_ns) + sum(backward_ns)) / NS
        return cls(seconds, _core.Pace(forward_ns, backward_ns))
