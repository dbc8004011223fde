"""Workers of a script that compute on the same machine share its cores."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from geomx.sim.cores import Cores
from tests.test_simulate import TRAIN, simulated

JOBS = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 1000)), min_size=1, max_size=8)


def ends(jobs: list[tuple[int, int]], count: int) -> list[int]:
    """Return when each job, which begins at a time and computes for a time, has computed."""
    env = simpy.Environment()
    cores = Cores(env, count)
    ended = [0] * len(jobs)

    def run(number: int, begins: int, lasts: int) -> Generator[simpy.Event, Any, None]:
        yield env.timeout(begins * 1000)
        yield cores.compute(lasts * 1000)
        ended[number] = env.now

    for number, (begins, lasts) in enumerate(jobs):
        env.process(run(number, begins, lasts))
    env.run()
    return ended


def shared(jobs: list[tuple[int, int]], count: int) -> list[float]:
    """Return the same, from one beginning or end to the next."""
    left = [float(lasts * 1000) for _, lasts in jobs]
    ended = [0.0] * len(jobs)
    now = 0.0
    while any(left):
        there = [n for n, (begins, _) in enumerate(jobs) if begins * 1000 <= now and left[n] > 0]
        rate = min(1.0, count / len(there)) if there else 1.0
        next_ends = [now + left[n] / rate for n in there]
        begins_ns = [begins * 1000.0 for begins, _ in jobs if begins * 1000 > now]
        until = min(next_ends + begins_ns)
        for n in there:
            left[n] -= (until - now) * rate
            if left[n] < 1e-6:
                left[n], ended[n] = 0.0, until
        now = until
    return ended


@given(jobs=JOBS, count=st.integers(1, 4))
def test_cores_are_shared_fairly(jobs: list[tuple[int, int]], count: int) -> None:
    assert ends(jobs, count) == pytest.approx(shared(jobs, count), abs=3 * len(jobs))


@given(jobs=JOBS)
def test_a_core_each_is_as_good_as_a_machine_each(jobs: list[tuple[int, int]]) -> None:
    assert ends(jobs, len(jobs)) == [1000 * (begins + lasts) for begins, lasts in jobs]


@pytest.mark.slow(weight=4)
def test_workers_of_a_script_share_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second begins after the first, and both compute for as long as they overlap besides."""
    monkeypatch.chdir(tmp_path)
    lasts_s = []
    for count in (1, 2):
        words = f"costs.cores={count}", "network.parties.there.speed=1"
        results = simulated(tmp_path, TRAIN, *words, where=str(count))
        lasts_s.append([row["compute_s"] for row in results.iterations if row["iteration"] == 0])
    (one, other), apart = lasts_s
    assert apart == pytest.approx([0.05, 0.05], abs=1e-9)
    assert 0.05 < one < 0.1
    assert one == pytest.approx(other, abs=1e-6)
