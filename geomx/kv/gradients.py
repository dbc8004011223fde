"""A warning for scripts that push gradients to a job whose workers exchange parameters.

Such a script trains wrongly, and `push` accepts gradients and parameters alike. They differ in
direction: after a few steps a parameter points nearly where it pointed before, while a gradient is
nearly orthogonal to its parameter.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from geomx.kv.values import Key, to_float32
from geomx.live.exchange import Exchange, received
from geomx.live.member import Member

ELEMENTS = 400
"""At least: the cosine of unrelated directions has the standard deviation 1 / sqrt(elements)."""

COSINE = 0.1
"""At most: two standard deviations for the smallest array."""


class GradientWarning(UserWarning):
    """A script seems to push gradients where the sync algorithm exchanges parameters."""


class GradientCheck:
    """Compares what a worker pushes first for each key with the key's initial value.

    Args:
        member: The worker.
    """

    def __init__(self, member: Member) -> None:
        self._member = member
        self._looks = member.policy.exchange == "parameters"
        self._seen: set[int] = set()

    def look(self, exchange: Exchange, key: int, name: Key, value: Any) -> None:
        """Warn, once, if an array looks like a gradient.

        Args:
            exchange: The worker's.
            key: Number of the key.
            name: Its name, for the message.
            value: What is about to be pushed.
        """
        if not self._looks or key in self._seen:
            return
        self._seen.add(key)
        if isinstance(value, list):  # of one tensor per device, to be added up
            value = value[0]
        pushed = to_float32(name, value.asnumpy() if hasattr(value, "asnumpy") else value).ravel()
        if pushed.size < ELEMENTS:
            return
        held = received(exchange, self._member.loop, key, pushed.size)
        length = float(np.linalg.norm(pushed)) * float(np.linalg.norm(held))
        if not 0 < length < np.inf or float(pushed @ held) / length > COSINE:
            return
        self._looks = False
        sync, _ = self._member.spec.sync
        warnings.warn(
            f"key {name!r}: what this worker pushes looks like a gradient, and under sync={sync} "
            "workers exchange parameters: update and exchange them in the script, within "
            "`for step in store.rhythm(steps)` (docs/moving.md), or choose a sync algorithm that "
            "adds up gradients",
            GradientWarning,
            stacklevel=_script_level(),
        )


def _script_level() -> int:
    """Return the `stacklevel` with which a warning of the caller names the script's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("geomx."):
        level, frame = level + 1, frame.f_back
    return level
