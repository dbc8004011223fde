"""stalls: reports iterations that take much longer than the worker's usual ones.

A slow link or a busy machine shows as iterations of some workers that take several times the
median. The plugin observes the events of a run, changes nothing, and prints one line for each: in
simulations on standard error, in live runs into the worker's log.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt, Unit

import geomx
from geomx.events import Event, Events

geomx_api = "2.0"

ENOUGH = 5
"""Iterations of a worker before its median is one."""


@dataclass(frozen=True)
class StallsConfig:
    """Options of stalls."""

    times: Annotated[float, Gt(1), Unit("medians")] = 3.0
    """An iteration that takes longer than this is reported."""


class Stalls:
    """Reports iterations that take several times as long as the worker's median."""

    lossless = True

    def __init__(self, config: StallsConfig) -> None:
        self.config = config
        self._ends: dict[str, float] = {}
        self._taken: dict[str, list[float]] = defaultdict(list)

    @geomx.hookimpl
    def geomx_events(self, events: Events) -> None:
        """Observe the ends of iterations."""
        events.subscribe(self.observe)

    def observe(self, events: Sequence[Event]) -> None:
        """Compare each iteration with those before it of the same worker."""
        for event in events:
            if event.kind != "iteration":
                continue
            taken = self._taken[event.node]
            if event.node in self._ends:
                lasted = event.time_s - self._ends[event.node]
                if len(taken) >= ENOUGH and lasted > self.config.times * statistics.median(taken):
                    text = f"iteration {event.round} took {lasted:.3g} s"
                    print(f"{event.node}: {text}", file=sys.stderr, flush=True)
                taken.append(lasted)
            self._ends[event.node] = event.time_s


@geomx.hookimpl
def geomx_register(register) -> None:
    """Register ``accel=[stalls]``."""
    register("accel", "stalls", StallsConfig, Stalls)
