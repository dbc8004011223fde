"""What the computing of a script takes in virtual time: measured, or a constant per step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from geomx.errors import ConfigError
from geomx.training.pace import NS

MEASURED = "measured"
CONSTANT = "constant"
_FORMS = "measured, or constant:SECONDS, such as constant:0.05 for 50 ms per local step"


@dataclass(frozen=True)
class Computing:
    """How long a worker of speed 1 computes.

    Attributes:
        step_s: Seconds of a local step, which pass before its first push, or before the script
            tells that the step is computed; all else takes no time. None: the time that the
            worker's process has measured.
    """

    step_s: float | None = None

    @classmethod
    def read(cls, text: str) -> Computing:
        """Read what the option ``--compute`` says.

        Raises:
            ConfigError: It says something else.
        """
        kind, _, number = text.partition(":")
        if text == MEASURED:
            return cls()
        try:
            seconds = float(number)
        except ValueError:
            seconds = math.nan
        if kind != CONSTANT or not 0 <= seconds < math.inf:
            raise ConfigError("--compute", text, f"must be {_FORMS}")
        return cls(seconds)

    def __str__(self) -> str:
        """Return the text that `read` reads."""
        return MEASURED if self.step_s is None else f"{CONSTANT}:{self.step_s:g}"

    @property
    def measured(self) -> bool:
        """Whether measured times count."""
        return self.step_s is None

    def between_calls(self, measured_ns: int, speed: float) -> int:
        """Return the nanoseconds that pass between two calls of a store.

        Args:
            measured_ns: What the process has measured.
            speed: The worker's, by which it is divided.
        """
        return round(measured_ns / speed) if self.step_s is None else 0

    def threads(self, measured_ns: int, processor_ns: int) -> float:
        """Return how many threads have computed at a time, on average; 1 of a constant.

        Args:
            measured_ns: How long the process has computed.
            processor_ns: Processor time of its threads.
        """
        if not self.measured or measured_ns == 0:
            return 1.0
        return max(1.0, processor_ns / measured_ns)

    def of_step(self, speed: float) -> int:
        """Return the nanoseconds that pass once in every step, for a worker of a speed."""
        return 0 if self.step_s is None else round(self.step_s / speed * NS)
