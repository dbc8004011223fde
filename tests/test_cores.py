"""Workers of a script that compute on the same machine share its cores."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from geomx.options.costs import FIGURES
from geomx.sim.computing import Computing
from geomx.sim.cores import Cores
from geomx.virtual.stopwatch import Stopwatch
from tests.test_simulate import TRAIN, simulated

Job = tuple[int, int, int]
"""When it begins, how long it computes, and with how many threads."""
TIMES = st.integers(0, 1000), st.integers(1, 1000)
JOBS = st.lists(st.tuples(*TIMES, st.integers(1, 3)), min_size=1, max_size=8)


def ends(jobs: list[Job], count: int) -> list[int]:
    """Return when each job has computed."""
    env = simpy.Environment()
    cores = Cores(env, count)
    ended = [0] * len(jobs)

    def run(
        number: int, begins: int, lasts: int, threads: int
    ) -> Generator[simpy.Event, Any, None]:
        yield env.timeout(begins * 1000)
        yield cores.compute(lasts * 1000, threads)
        ended[number] = env.now

    for number, job in enumerate(jobs):
        env.process(run(number, *job))
    env.run()
    return ended


def shared(jobs: list[Job], count: int) -> list[float]:
    """Return the same, from one beginning or end to the next."""
    left = [float(lasts * 1000) for _, lasts, _ in jobs]
    ended = [0.0] * len(jobs)
    now = 0.0
    while any(left):
        there = [n for n, (begins, _, _) in enumerate(jobs) if begins * 1000 <= now and left[n] > 0]
        rate = min(1.0, count / sum(jobs[n][2] for n in there)) if there else 1.0
        next_ends = [now + left[n] / rate for n in there]
        begins_ns = [begins * 1000.0 for begins, _, _ in jobs if begins * 1000 > now]
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
def test_a_core_for_each_thread_is_as_good_as_a_machine_each(jobs: list[Job]) -> None:
    count = sum(threads for _, _, threads in jobs)
    assert ends(jobs, count) == [1000 * (begins + lasts) for begins, lasts, _ in jobs]


@given(
    count=st.integers(1, 4), lasts=st.integers(1, 1000), threads=st.integers(1, 6),
    used=st.floats(0, 0.9),
)  # fmt: skip
def test_threads_share_what_nodes_leave(count: int, lasts: int, threads: int, used: float) -> None:
    """Nodes use `used` of the cores all the time."""
    env = simpy.Environment()
    cores = Cores(env, count, lambda: used * count * env.now)
    env.run(cores.compute(lasts * 1000, threads))
    expected = lasts * 1000 / min(1.0, (1 - used) * count / threads)
    assert env.now == pytest.approx(expected, rel=1e-6, abs=100)


def test_what_nodes_use_at_once_is_used_once() -> None:
    """A node works for 5 us from 2 us on, on the only core: a process ends as much later."""
    env = simpy.Environment()
    cores = Cores(env, 1, lambda: 5000.0 if env.now >= 2000 else 0.0)
    env.run(cores.compute(10_000))
    assert env.now == 15_000
    env.run(cores.compute(1000))
    assert env.now == 16_000


def test_processor_time_of_all_threads_is_told_beside_the_time_that_passes() -> None:
    """As if a hundred threads computed; what is measured in parts adds up."""
    watch = Stopwatch(lambda: 100 * time.perf_counter_ns())
    watch.start()
    time.sleep(0.02)
    first = watch.until(100 * (now_ns := time.perf_counter_ns()), now_ns)
    time.sleep(0.02)
    both = first + watch.read()
    assert 40_000_000 <= both.ns < both.processor_ns
    assert Computing().threads(first.ns, first.processor_ns) > 1
    assert Computing(0.05).threads(first.ns, first.processor_ns) == 1
    assert Computing().threads(1000, 500) == Computing().threads(0, 1) == 1


@pytest.mark.slow
def test_workers_of_a_script_share_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second begins after the first, and both compute for as long as they overlap besides."""
    monkeypatch.chdir(tmp_path)
    lasts_s = []
    for count in (1, 2):
        words = [f"costs.cores={count}", "network.parties.there.speed=1"]
        words += [f"costs.{figure}=0" for figure in FIGURES]  # nodes use nothing
        results = simulated(tmp_path, TRAIN, *words, where=str(count))
        lasts_s.append([row["compute_s"] for row in results.iterations if row["iteration"] == 0])
    (one, other), apart = lasts_s
    assert apart == pytest.approx([0.05, 0.05], abs=1e-9)
    assert 0.05 < one < 0.1
    assert one == pytest.approx(other, abs=1e-6)
