"""The training loop exists once: its rules, and that all drivers ask the same of a sync policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from geomx import _core, kv
from geomx.kv.local import LocalCluster, unshaped
from geomx.live.journal import Notes
from geomx.live.member import Member
from geomx.live.spec import Spec
from geomx.live.worker import LiveWorker
from geomx.plugin.registry import Registry
from geomx.training.pace import Pace
from tests.laws import Build
from tests.ledger import Schedule, completed, expected, installed, schedules

PARTIES = {"east": 2, "west": 1}
Calls = dict[str, list[tuple[Any, ...]]]
Driver = Callable[[Schedule, Path], None]

# ---- passes over the layers ----

S = 1_000_000_000


def clock(forward_s: list[float], backward_s: list[float]) -> _core.PassClock:
    """Of a worker with one key per layer, whose initial values have come at once."""
    pace = _core.Pace(
        [round(each * S) for each in forward_s], [round(each * S) for each in backward_s]
    )
    made = _core.PassClock(list(range(len(forward_s))), pace)
    assert made.arrived([(0, key, 0) for key in made.awaited()]) == 0
    return made


def test_layers_wait_one_by_one_and_gradients_leave_backwards() -> None:
    passes = clock([0.1, 0.2, 0.0], [0.3, 0.4, 0.5])
    passes.forward(0)
    assert passes.awaited() == []
    assert passes.arrived([]) == 0.3 * S
    assert passes.backward("gradients", False, False, 300_000_000) == [
        (2, 0.8 * S), (1, 1.2 * S), (0, 1.5 * S)
    ]  # fmt: skip
    assert passes.now_ns == 1.5 * S
    assert passes.awaited() == [0]  # what the next step begins with
    assert passes.arrived([(2 * S, 0, 1)]) == 2 * S
    passes.take_spans()
    passes.forward(2 * S)
    assert passes.awaited() == [1, 2]
    assert passes.arrived([(3 * S, 1, 1), (S, 2, 1)]) == 3.2 * S
    assert passes.take_spans() == [
        ("forward", {}, 2 * S, 2.1 * S),
        ("wait", {"key": 1, "round": 1}, 2.1 * S, 3 * S),
        ("forward", {}, 3 * S, 3.2 * S),
    ]


def test_parameters_leave_when_the_pass_is_over_and_the_last_step_waits_for_all() -> None:
    passes = clock([0.5, 0.5], [1.0, 1.0])
    passes.forward(2 * S)
    end = passes.arrived([])
    assert passes.backward("parameters", True, False, end) == [(1, 5 * S), (0, 5 * S)]
    assert passes.awaited() == [0, 1]
    assert passes.arrived([(7 * S, 0, 1), (6 * S, 1, 1)]) == 7 * S


def test_a_reply_is_waited_for_like_a_value() -> None:
    passes = clock([1.0], [1.0])
    for reply, end in ((5 * S, 5 * S), (S // 2, 3 * S)):
        passes.forward(0)
        forward = passes.arrived([])
        pushes = passes.backward("parameters", False, True, forward)
        assert pushes == [(0, 2 * S)]
        assert passes.arrived([(3 * S, 0, 1)], reply) == end


def test_a_step_that_pushes_nothing_waits_for_nothing() -> None:
    passes = clock([1.0], [1.0])
    passes.forward(0)
    assert passes.backward("nothing", False, False, passes.arrived([])) == []
    assert passes.awaited() == []
    assert passes.arrived([]) == 2 * S


def test_orders_out_of_turn_are_refused() -> None:
    passes = clock([1.0], [1.0])
    passes.forward(0)
    with pytest.raises(RuntimeError, match="still being carried out"):
        passes.forward(0)
    passes.backward("gradients", False, False, passes.arrived([]))
    with pytest.raises(RuntimeError, match="not told of"):
        passes.arrived([])
    with pytest.raises(ValueError, match="nothing, gradients or parameters"):
        passes.backward("everything", False, False, 0)
    with pytest.raises(ValueError, match="belongs to no layer"):
        _core.PassClock([1], _core.Pace([1], [1]))


# ---- one schedule, all drivers ----


def spec(schedule: Schedule) -> Spec:
    """The schedule as an experiment of sizes alone, on links as fast as the machine."""
    workload = Registry.discover().workload("synthetic", options(schedule))
    return replace(
        unshaped(PARTIES),
        sync=schedule.sync,
        workload=("synthetic", options(schedule)),
        times_s=tuple((layer.forward_s, layer.backward_s) for layer in workload.layers),
        iterations=schedule.steps,
        runtime=replace(unshaped(PARTIES).runtime, pace=schedule.switch),
    )


def options(schedule: Schedule) -> dict[str, Any]:
    return {"elements": schedule.elements, "forward_ms": 1.3, "backward_ms": 2.1}


def everyone(spec: Spec, train: Callable[[Member], None]) -> None:
    """Have every worker of a cluster in this process train, all at once."""
    cluster = LocalCluster(spec)
    try:
        with ThreadPoolExecutor(len(cluster.workers)) as pool:
            list(pool.map(train, cluster.workers))
    finally:
        cluster.close()


def live(schedule: Schedule, folder: Path) -> None:
    """As workers of a live experiment."""

    def train(member: Member) -> None:
        notes = folder / member.node.name.replace("/", "-")
        LiveWorker(member, Notes(notes)).run()
        member.loop.leave()
        member.wait_stopped()

    everyone(spec(schedule), train)


def scripts(schedule: Schedule, train: Callable[[kv.KVStore], None]) -> None:
    """As workers of a job of scripts."""

    def join(member: Member) -> None:
        store = kv.KVStore(member)
        train(store)
        store.close()

    everyone(replace(unshaped(PARTIES), sync=schedule.sync), join)


def numpy_scripts(schedule: Schedule, _: Path) -> None:
    """Scripts with a loop of their own."""

    def train(store: kv.KVStore) -> None:
        keys = list(range(len(schedule.elements)))
        values = [np.zeros(count, np.float32) for count in schedule.elements]
        store.init(keys, values)
        for _ in (rhythm := store.rhythm(schedule.steps)):
            if rhythm.due():
                store.push(keys, [value * rhythm.scale for value in values])
                store.pull(keys, out=values)
                rhythm.exchanged()

    scripts(schedule, train)


def mxnet_scripts(schedule: Schedule, _: Path) -> None:
    """The same with MXNet, whose engine pushes and pulls when it comes to that."""
    from geomx.mxnet import EngineExchange, KVStore, mx

    def train(plain: kv.KVStore) -> None:
        plain.use(EngineExchange(plain.member.loop))
        store = KVStore(plain, "dist_sync")
        keys = list(range(len(schedule.elements)))
        values = [mx.nd.zeros(count) for count in schedule.elements]
        store.init(keys, values)
        for _ in (rhythm := store.rhythm(schedule.steps)):
            for value in values:
                value.wait_to_read()
            if rhythm.due():
                store.push(keys, [value * rhythm.scale for value in values])
                store.pull(keys, out=values)
                rhythm.exchanged()
        for value in values:
            value.wait_to_read()

    scripts(schedule, train)


def torch_scripts(schedule: Schedule, _: Path) -> None:
    """Scripts with PyTorch's optimizer, wrapped."""
    import torch

    import geomx.torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [torch.nn.Linear(count, 1, bias=False) for count in schedule.elements]
            self.layers = torch.nn.ModuleList(layers)

        def forward(self) -> Any:
            return sum(layer(torch.ones(layer.in_features)).sum() for layer in self.layers)

    def train(store: kv.KVStore) -> None:
        net = Net()
        optimizer = geomx.torch.Optimizer(
            torch.optim.SGD(net.parameters(), lr=0.01),
            net,
            steps=schedule.steps,
            overlap=schedule.switch,
            store=store,
        )
        while not optimizer.done:
            optimizer.zero_grad()
            net().backward()
            optimizer.step()

    scripts(schedule, train)


DRIVERS: dict[str, Driver] = {
    "live": live,
    "numpy": numpy_scripts,
    "mxnet": mxnet_scripts,
    "torch": torch_scripts,
}


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calls]:
    with installed(tmp_path_factory.mktemp("ledger")) as calls:
        yield calls


def asked(calls: Calls, schedule: Schedule, exact: bool) -> None:
    """Hold what was asked against what the documentation says.

    `exact`: a step takes what the workload says, to the last bit; otherwise it is measured.
    """
    workers = spec(schedule).cluster.workers
    for number, worker in enumerate(workers):
        heard = calls.get(worker.name, [])
        seconds = [call[1] for call in heard if call[0] == "report"]
        plain = [call[:1] if call[0] == "report" else call for call in heard]
        assert plain == expected(schedule, number), worker.name
        nominal = Pace.of(spec(schedule).times_s, worker.speed).seconds
        assert all(took == nominal if exact else 0 <= took < 5.0 for took in seconds)
    for party in PARTIES:
        assert sorted(calls.get(party, [])) == completed(schedule), party
    calls.clear()


@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(schedules(sum(PARTIES.values())))
def test_simulated_workers_ask_what_is_documented(
    calls: Calls, simulate: Build, schedule: Schedule
) -> None:
    calls.clear()
    experiment = spec(schedule)
    workload = Registry.discover().workload("synthetic", options(schedule))
    simulate(experiment.cluster, workload, schedule.sync, iterations=schedule.steps)
    asked(calls, schedule, exact=True)


@pytest.mark.parametrize("driver", DRIVERS)
@settings(
    deadline=None,
    max_examples=8,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(schedule=schedules(sum(PARTIES.values())))
def test_so_does_every_other_driver(
    calls: Calls, driver: str, schedule: Schedule, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if driver in ("mxnet", "torch") and find_spec(driver) is None:
        pytest.skip(f"{driver} is not installed")
    calls.clear()
    folder = tmp_path_factory.mktemp(driver)
    (folder / "nodes").mkdir()
    DRIVERS[driver](schedule, folder)
    asked(calls, schedule, exact=driver == "live" and schedule.switch)
