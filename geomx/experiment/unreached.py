"""Warns of events that never happened, because the run ended before them.

A time in the wrong unit would otherwise read as a run that survives its faults.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence

from geomx.scenario import Scenario

MOST_NAMED = 3


class ScenarioWarning(UserWarning):
    """An event of the scenario never happened."""


def warn_of_unreached(scenario: Scenario, end_s: float, waiting: Collection[int] = ()) -> None:
    """Warn, in one line, of the events whose first time is after the end of a run.

    Args:
        scenario: The scenario.
        end_s: End of the run, in seconds since its start.
        waiting: The events with ``at_iteration`` that did not begin.
    """
    if missed := scenario.unreached(end_s, waiting):
        _warn(scenario, missed, f"the run ended before {_them(missed)}, after {end_s:.3g} s")


def warn_of_unreached_in_many(scenario: Scenario, ends: Sequence[tuple[float, int]]) -> None:
    """Warn, in one line, of the events that never happened in some of many runs.

    Args:
        scenario: The scenario of all runs.
        ends: Of each run, its end in seconds since its start, and the local steps of a worker.
    """
    each = []
    for end_s, steps in ends:
        waiting = [number for number, step in scenario.by_iteration.items() if step >= steps]
        if missed := scenario.unreached(end_s, waiting):
            each.append(missed)
    if missed := sorted({number for numbers in each for number in numbers}):
        told = f"{len(each)} of {len(ends)} runs ended before {_them(missed)}"
        _warn(scenario, missed, told if len(missed) == 1 else f"{told}, or some of them")


def _them(missed: Sequence[int]) -> str:
    return "it" if len(missed) == 1 else "them"


def _warn(scenario: Scenario, missed: Sequence[int], told: str) -> None:
    named = [scenario.named(number) for number in missed[:MOST_NAMED]]
    if others := len(missed) - len(named):
        named.append(f"and {others} more")
    warnings.warn(f"{', '.join(named)}: {told}", ScenarioWarning, stacklevel=3)
