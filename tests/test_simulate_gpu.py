"""Scripts whose tensors are on a GPU, in virtual time: the GPU is played by a clock.

No machine of the tests has a GPU. What would ask one for the time (`Events`) is replaced by a queue
of operations that take real time, so that the process waits for it as it would for a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomx.virtual.loop import VirtualLoop
from geomx.virtual.requests import Engine
from geomx.virtual.stopwatch import Stopwatch
from tests.test_simulate import simulated

torch = pytest.importorskip("torch")

MS = 1_000_000
LASTS = st.integers(0, 50)


class Played:
    """`Events` of a GPU whose operations take the time that is queued.

    Attributes:
        over_ns: When all that is queued has been done.
    """

    def __init__(self) -> None:
        self.over_ns = time.perf_counter_ns()
        self._now_ns = 0

    def queue(self, ns: int) -> None:
        self.over_ns = max(self.over_ns, time.perf_counter_ns()) + ns

    def use(self, tensor: Any) -> None:
        pass

    def record(self, tensor: Any) -> int:
        return max(self.over_ns, time.perf_counter_ns())

    def finish(self) -> None:
        while (left_ns := self.over_ns - time.perf_counter_ns()) > 0:
            time.sleep(left_ns / 1e9)
        self._now_ns = time.perf_counter_ns()

    def before_ns(self, moments: Sequence[int]) -> list[int]:
        return [self._now_ns - moment for moment in moments]


class Loop:
    """What `Gpus` uses of a `VirtualLoop`."""

    def __init__(self) -> None:
        self.watch = Stopwatch()

    def run_beside(self, engine: Engine) -> None:
        self.watch = Stopwatch(engine.used_ns)

    def ignore(self, ns: int) -> None:
        self.watch.ignored_ns += ns


def playing() -> tuple[Loop, Played, Any]:
    from geomx.virtual.torch_exchange import Gpus

    loop, played = Loop(), Played()
    return loop, played, Gpus(cast(VirtualLoop, loop), played)


def test_a_push_leaves_when_the_gpu_has_computed_it() -> None:
    """The script queues all at once; the GPU computes one after the other."""
    loop, played, gpus = playing()
    played.queue(200 * MS)
    since_ns = time.perf_counter_ns()
    for key, lasts_ms in enumerate((30, 20, 50)):
        played.queue(lasts_ms * MS)
        gpus.push(key, torch.full((3,), float(key)), 0.5, key == 2)
    played.queue(40 * MS)
    assert time.perf_counter_ns() < since_ns + 200 * MS, "this machine stood still"
    executed = gpus.executed()
    assert [each.key for each in executed] == [0, 1, 2]
    assert [each.last for each in executed] == [False, False, True]
    assert executed[1].value.tolist() == [1, 1, 1]
    took_ns = [loop.watch.until(each.used_ns, each.passed_ns).ns for each in executed]
    assert took_ns[1:] == [20 * MS, 50 * MS]
    assert 40 * MS <= loop.watch.read().ns < 40 * MS + time.perf_counter_ns() - played.over_ns
    assert gpus.executed() == []


def test_what_the_gpu_had_done_before_leaves_with_the_push() -> None:
    _, played, gpus = playing()
    played.queue(5 * MS)
    time.sleep(0.02)
    before_ns = time.perf_counter_ns()
    gpus.push(0, torch.zeros(1), 0.0, False)
    (executed,) = gpus.executed()
    assert executed.passed_ns >= before_ns


def test_copies_of_the_simulation_do_not_count() -> None:
    loop, played, gpus = playing()
    loop.watch.start()
    with gpus.uncounted():
        until_ns = time.process_time_ns() + 30 * MS
        while time.process_time_ns() < until_ns:
            pass
        played.queue(30 * MS)
    assert loop.watch.read().ns < 30 * MS
    assert loop.watch.waited_ns < 30 * MS


def test_waiting_outside_the_gpu_is_not_computing() -> None:
    loop, played, _ = playing()
    loop.watch.start()
    time.sleep(0.05)
    played.queue(20 * MS)
    computed_ns = loop.watch.read().ns
    assert 20 * MS <= computed_ns < 60 * MS
    assert loop.watch.waited_ns >= 40 * MS


SCRIPT = """
import numpy as np, torch
import geomx.torch
from geomx.virtual import torch_exchange
from tests.test_simulate_gpu import Played

played = Played()
if PLAYED:
    torch_exchange.on_gpu = lambda tensor: True
    torch_exchange.SimulatedTensorExchange.events = played
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 400), torch.nn.Linear(400, 2))
for layer in model:
    layer.register_forward_hook(lambda *_: played.queue(20_000_000))
    layer.weight.register_post_accumulate_grad_hook(lambda _: played.queue(30_000_000))
optimizer = geomx.torch.Optimizer(torch.optim.SGD(model.parameters(), 0.05), model, steps=4)
generator = torch.Generator().manual_seed(optimizer.rank)
while not optimizer.done:
    inputs = torch.randn(8, 4, generator=generator)
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
optimizer.wait()
if optimizer.rank == 0:
    np.savez("values.npz", *[value.numpy() for value in model.state_dict().values()])
"""


@pytest.mark.slow(3)
def test_a_script_on_a_gpu_is_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps compute for as long as the GPU does; the values are those of the processor."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
    monkeypatch.chdir(tmp_path)
    values = []
    for played in (True, False):
        script = SCRIPT.replace("PLAYED", str(played))
        results = simulated(tmp_path, script, compute="measured", where=str(played))
        values.append(dict(np.load("values.npz")))
        if played:
            # 0.1 s, but for moments in which the processor did something else.
            assert min(row["compute_s"] for row in results.iterations) > 0.05
    for name, value in values[0].items():
        np.testing.assert_array_equal(value, values[1][name])


@given(
    gaps=st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(-40, 90)), min_size=1
    ),
    rest=st.tuples(st.integers(0, 50), st.integers(0, 50)),
)
def test_computing_is_what_the_processor_or_the_gpu_does(
    gaps: list[tuple[int, int, int]], rest: tuple[int, int]
) -> None:
    """No tensor leaves before its push or in another order, and no time counts twice."""
    from geomx.virtual.torch_exchange import Moment, computed

    calls, ends, at, latest = [], [], Moment(1000, 1000), 0
    for used, idle, lasts in gaps:
        at = Moment(at.used_ns + used, at.passed_ns + used + idle)
        calls.append(at)
        latest = max(latest, at.passed_ns + lasts)  # one GPU does one thing after the other
        ends.append(latest)
    passed = max(at.passed_ns + sum(rest), latest)
    end = Moment(at.used_ns + min(rest[0], passed - at.passed_ns), passed)
    there, end_ns = computed(calls, ends, end)
    assert there == sorted(there)
    for call, ended, moment in zip(calls, ends, there, strict=True):
        assert moment.passed_ns == max(call.passed_ns, ended)
        assert moment.used_ns >= call.used_ns
    assert end.used_ns <= end_ns <= calls[0].used_ns + end.passed_ns - calls[0].passed_ns
    if ends[0] >= end.passed_ns:  # the GPU was never idle
        assert end_ns - calls[0].used_ns == end.passed_ns - calls[0].passed_ns
