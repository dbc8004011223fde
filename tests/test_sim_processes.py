"""SimPy processes of plugins: their clock, and observation without side effects."""

from __future__ import annotations

import math
import operator
from collections.abc import Generator, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import geomx
from geomx.sim.clock import FOREVER, Clock
from tests.laws import Build, registry_with, same

pytestmark = pytest.mark.interpreter  # generators

MS = 1_000_000


class Sleepers:
    """A plugin whose SimPy processes only sleep; `woken` contains when each of them woke."""

    def __init__(self, naps: Sequence[Sequence[Any]]) -> None:
        self.naps = naps
        self.woken: list[list[Any]] = [[] for _ in naps]

    @geomx.hookimpl
    def geomx_sim(self, simulation: Any) -> None:
        def sleep(number: int) -> Generator[simpy.Event, Any, None]:
            for delay in self.naps[number]:
                yield simulation.env.timeout(delay)
                self.woken[number].append(simulation.env.now)

        for number in range(len(self.naps)):
            simulation.env.process(sleep(number))


def left(run: Any) -> dict[str, bytes]:
    """Return a run's files without summary and page, which contain wall-clock times."""
    names = ("iterations.csv", "evaluations.csv", "links.csv", "trace.json")
    return {name: (run.results.directory / name).read_bytes() for name in names}


def due(naps: Sequence[Any]) -> list[int]:
    """Return when a sleeper wakes in an infinite run: each delay is rounded up separately."""
    known: list[int] = []
    for delay in naps:
        if math.isinf(delay):
            break
        known.append(math.ceil(delay))
    return list(accumulate(known, operator.add))


DELAYS = st.one_of(
    st.just(0),
    st.integers(0, 20 * MS),
    st.floats(0, 20 * MS),
    st.floats(0, 2),
    st.sampled_from([1e6, 2e6 + 0.5, 3 * MS, 1e-300, math.inf, 1e30, 2**70]),
)


@pytest.mark.slow
@given(naps=st.lists(st.lists(DELAYS, max_size=20), min_size=1, max_size=5))
@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_processes_that_only_observe_change_nothing(
    naps: list[list[Any]], network: Build, tiny: Any, simulate: Build
) -> None:
    """For all delays, the run ends with the same results, and processes wake on time."""
    sleepers = Sleepers([*naps, naps[0]])  # two processes always wake at the same time
    run, plain = (_with(one, network, tiny, simulate) for one in (sleepers, Sleepers([])))
    assert left(run) == left(plain)
    assert same(run.parameters, plain.parameters)
    end_ns = round(run.results.summary["seconds"] * 1e9)
    for delays, woken in zip(sleepers.naps, sleepers.woken, strict=True):
        times = due(delays)
        assert woken == times[: len(woken)]
        assert all(type(time) is int for time in woken)
        assert all(time >= end_ns for time in times[len(woken) :])


def _with(sleepers: Sleepers, network: Build, tiny: Any, simulate: Build) -> Any:
    registry = registry_with(sleepers=("accel", sleepers))
    return simulate(network(2, 1), tiny, accel=["sleepers"], registry=registry)


@pytest.mark.parametrize("start", [0, 2**53, 2**60])
@pytest.mark.parametrize(
    ("delay", "whole"),
    [
        (0.25, 1),
        (1.0, 1),
        (np.float32(2.5), 3),
        (np.int64(2**55 + 1), 2**55 + 1),
        (float(2**54), 2**54),
        (Fraction(7, 2), 4),
        (Decimal("1.1"), 2),
        (True, 1),
    ],
)
def test_delays_are_rounded_up_exactly(start: int, delay: Any, whole: int) -> None:
    clock, woken = Clock(), []
    clock.timeout(start).callbacks.append(
        lambda _: clock.timeout(delay).callbacks.append(lambda _: woken.append(clock.now))
    )
    clock.run()
    assert woken == [start + whole]
    assert type(clock.now) is int


def test_infinite_and_invalid_delays() -> None:
    clock = Clock()
    for endless in (math.inf, np.inf, 1e19, FOREVER, 10**30, Decimal("Infinity")):
        clock.timeout(endless)
    clock.run()
    assert clock.now == 0
    for wrong in (math.nan, np.float64("nan"), Decimal("nan")):
        with pytest.raises((ValueError, ArithmeticError), match=r"(?i)nan|InvalidOperation"):
            clock.timeout(wrong)
    with pytest.raises(ValueError, match="Negative delay"):
        clock.timeout(-0.5)
