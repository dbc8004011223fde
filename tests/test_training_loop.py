"""The training loop: its rules, and equal calls of a sync policy by all drivers."""

from __future__ import annotations

import gc
import importlib
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geomx import _core, kv
from geomx.cluster import Cluster, NodeSpec
from geomx.errors import GeomxError, NodeLost
from geomx.kv.local import LocalCluster, unshaped
from geomx.live.files import Reader
from geomx.live.journal import Notes
from geomx.live.member import Member
from geomx.live.spec import Spec
from geomx.live.worker import LiveWorker
from geomx.plugin.coordination import Site
from geomx.plugin.parts import Native
from geomx.plugin.registry import Registry
from geomx.plugin.sync import SyncPolicy, WorkerSync
from geomx.training.pace import Pace
from geomx.training.steps import UNKNOWN, Report, Steps
from geomx.workload import Workload
from tests.laws import Build, by_all_workers
from tests.ledger import LATE_S, MODULE, Schedule, completed, expected, installed, schedules

PARTIES = {"east": 2, "west": 1}
Calls = dict[str, list[tuple[Any, ...]]]
Driver = Callable[[Schedule, Path], None]

# ---- passes over the layers ----

S = 1_000_000_000


def clock(forward_s: list[float], backward_s: list[float]) -> _core.PassClock:
    """Return the clock of a worker with one key per layer, whose initial values have arrived."""
    pace = _core.Pace(
        [round(each * S) for each in forward_s], [round(each * S) for each in backward_s]
    )
    made = _core.PassClock(list(range(len(forward_s))), pace)
    assert made.arrived([(0, key, 0) for key in made.awaited()]) == 0
    return made


def test_a_computation_continues_after_a_pause() -> None:
    passes = clock([0.2, 0.2], [0.5, 0.5])
    for start_s, end_s in ((0.1, 0.6), (0.7, 0.8), (2.1, 2.2), (4.0, 5.0)):
        passes.pause(round(start_s * S), round(end_s * S))
    passes.forward(0)
    assert passes.arrived([]) == 1.0 * S
    pushes = passes.backward("gradients", False, False, S)
    assert pushes == [(1, 1.5 * S), (0, 2.0 * S)]
    # Which changes nothing for who waits, nor for what begins afterwards.
    assert passes.arrived([(2_300_000_000, 0, 1)]) == 2_300_000_000
    passes.forward(2_300_000_000)
    assert passes.arrived([(3 * S, 1, 1)]) == 3.2 * S
    # What would begin within a pause begins after it.
    passes.backward("gradients", True, False, round(4.2 * S))
    assert passes.now_ns == 6.0 * S


def test_layers_wait_in_order_and_gradients_are_pushed_in_reverse() -> None:
    passes = clock([0.1, 0.2, 0.0], [0.3, 0.4, 0.5])
    passes.forward(0)
    assert passes.awaited() == []
    assert passes.arrived([]) == 0.3 * S
    assert passes.backward("gradients", False, False, 300_000_000) == [
        (2, 0.8 * S), (1, 1.2 * S), (0, 1.5 * S)
    ]  # fmt: skip
    assert passes.now_ns == 1.5 * S
    assert passes.awaited() == [0]  # the first layer of the next step
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


def test_parameters_are_pushed_by_layer_like_gradients_and_the_last_step_waits_for_all() -> None:
    passes = clock([0.5, 0.5], [1.0, 1.0])
    passes.forward(2 * S)
    end = passes.arrived([])
    assert passes.backward("parameters", True, False, end) == [(1, 4 * S), (0, 5 * S)]
    assert passes.awaited() == [0, 1]
    assert passes.arrived([(7 * S, 0, 1), (6 * S, 1, 1)]) == 7 * S


def test_a_step_waits_for_a_reply_like_for_a_value() -> None:
    passes = clock([1.0], [1.0])
    for reply, end in ((5 * S, 5 * S), (S // 2, 3 * S)):
        passes.forward(0)
        forward = passes.arrived([])
        pushes = passes.backward("parameters", False, True, forward)
        assert pushes == [(0, 2 * S)]
        assert passes.arrived([(3 * S, 0, 1)], reply) == end


def test_a_step_without_pushes_does_not_wait() -> None:
    passes = clock([1.0], [1.0])
    passes.forward(0)
    assert passes.backward("nothing", False, False, passes.arrived([])) == []
    assert passes.awaited() == []
    assert passes.arrived([]) == 2 * S


def test_a_step_may_push_some_keys_and_need_their_answers_later() -> None:
    passes = clock([1.0, 1.0], [1.0, 1.0])
    passes.forward(0)
    pushes = passes.backward("parameters", False, False, passes.arrived([]), ([1], []))
    assert pushes == [(1, 3 * S)]
    assert passes.awaited() == []
    assert passes.arrived([]) == 4 * S
    passes.forward(4 * S)  # while the answer is in flight
    assert passes.awaited() == []
    assert passes.backward("parameters", False, False, passes.arrived([]), ([0], [1])) == [
        (0, 8 * S)
    ]
    assert passes.arrived([]) == 8 * S  # the second layer may still wait
    passes.forward(8 * S)
    assert passes.awaited() == [1]
    assert passes.arrived([(11 * S, 1, 1)]) == 12 * S
    assert passes.backward("nothing", False, False, 12 * S, ([], [])) == []
    assert passes.arrived([]) == 14 * S
    passes.forward(14 * S, [0, 1])  # of these, only the first is in flight
    assert passes.awaited() == [0]
    assert passes.arrived([(13 * S, 0, 1)]) == 16 * S
    assert passes.backward("parameters", True, False, 16 * S, ([0, 1], [0, 1])) == [
        (1, 17 * S), (0, 18 * S)
    ]  # fmt: skip
    assert passes.awaited() == [0, 1]


def test_calls_in_the_wrong_order_are_refused() -> None:
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


@pytest.mark.needs("hfa")
def test_averaging_parameters_every_step_takes_as_long_as_gradients(
    simulate: Build, network: Build, sized: Build
) -> None:
    """Both leave layer by layer, so that both overlap with the rest of the backward pass."""
    workload = sized(*[250_000] * 8, forward_s=0.01, backward_s=0.03)
    times = [
        simulate(network(1, 1, mbps=100), workload, sync, iterations=5).results.summary["seconds"]
        for sync in (None, ("hfa", {"k1": 1, "k2": 1}))
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-6)
    assert times[0] < 5 * 8 * (0.04 + 8 * 250_000 * 2 / 12.5e6)


# ---- one schedule, all drivers ----


def spec(schedule: Schedule) -> Spec:
    """Return the schedule as an experiment without numerics, without emulated links."""
    workload = of_sizes(tuple(schedule.elements))
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


@cache
def of_sizes(elements: tuple[int, ...]) -> Workload:
    return Registry.discover().workload("synthetic", options(plain(elements=list(elements))))


def live(schedule: Schedule, folder: Path) -> None:
    """Run the schedule as a live experiment."""

    def train(member: Member) -> None:
        notes = folder / member.node.name.replace("/", "-")
        LiveWorker(member, Notes(notes)).run()
        member.loop.leave()
        member.wait_stopped()

    by_all_workers(LocalCluster(spec(schedule)), train)


def scripts(
    schedule: Schedule,
    train: Callable[[kv.KVStore], None],
    parties: dict[str, int] | None = None,
) -> None:
    """Run the schedule as a job of scripts."""

    def join(member: Member) -> None:
        store = kv.KVStore(member)
        train(store)
        store.close()

    job = replace(unshaped(parties or PARTIES), sync=schedule.sync)
    by_all_workers(LocalCluster(job), join)


def numpy_scripts(schedule: Schedule, _: Path) -> None:
    """Run scripts with their own loop."""

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
    """Run the same with MXNet, whose engine executes pushes and pulls asynchronously."""
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
    """Run scripts with PyTorch's wrapped optimizer."""
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
    """Compare the recorded calls with the documented ones.

    `exact`: the time of a step equals the workload's, bit by bit; otherwise it is measured.
    """
    made = spec(schedule)
    for number, worker in enumerate(made.cluster.workers):
        heard = calls.get(worker.name, [])
        seconds = [call[1] for call in heard if call[0] == "report"]
        plain = [call[:1] if call[0] == "report" else call for call in heard]
        assert plain == expected(schedule, number), worker.name
        nominal = Pace.of(made.times_s, worker.speed).seconds
        assert all(took == nominal if exact else 0 <= took < 5.0 for took in seconds)
    for party in PARTIES:
        assert sorted(calls.get(party, [])) == completed(schedule), party
    calls.clear()


@pytest.mark.slow
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(schedules(sum(PARTIES.values())))
def test_simulated_workers_make_the_documented_calls(
    calls: Calls, simulate: Build, schedule: Schedule
) -> None:
    calls.clear()
    workload = of_sizes(tuple(schedule.elements))
    simulate(spec(schedule).cluster, workload, schedule.sync, iterations=schedule.steps)
    asked(calls, schedule, exact=True)


@pytest.mark.slow
@pytest.mark.parametrize("driver", DRIVERS)
@settings(
    max_examples=8,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(schedule=schedules(sum(PARTIES.values())))
def test_all_other_drivers_make_the_documented_calls(
    calls: Calls, driver: str, schedule: Schedule, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if driver in ("mxnet", "torch") and find_spec(driver) is None:
        pytest.skip(f"{driver} is not installed")
    calls.clear()
    folder = tmp_path_factory.mktemp(driver)
    (folder / "nodes").mkdir()
    DRIVERS[driver](schedule, folder)
    asked(calls, schedule, exact=driver == "live" and schedule.switch)


# ---- guarantees for scripts ----


@pytest.mark.slow
def plain(**changes: Any) -> Schedule:
    """Return a schedule of two rounds of one step each, with a prompt coordinator."""
    given: dict[str, Any] = {
        "elements": [3],
        "rounds": [[1, 1]] * sum(PARTIES.values()),
        "exchange": "parameters",
        "scale": 1.0,
        "coordinator": "prompt",
        "inside": False,
        "parties": False,
        "switch": True,
    }
    return Schedule(**{**given, **changes})


@pytest.mark.slow
def test_a_report_is_sent_after_earlier_pushes(calls: Calls) -> None:
    """Also with an engine, while the pushed values are still being computed."""
    engine = pytest.importorskip("geomx.mxnet", reason="mxnet is not installed")
    schedule = plain(elements=[300, 300], rounds=[[1, 1]], inside=True, parties=True)
    calls.clear()

    def train(inner: kv.KVStore) -> None:
        mx = engine.mx
        inner.use(engine.EngineExchange(inner.member.loop))
        store = engine.KVStore(inner, "dist_sync")
        store.init([0, 1], [mx.nd.zeros(300)] * 2)
        large, out = mx.nd.ones((1500, 1500)) / 1500, mx.nd.zeros(300)
        large.wait_to_read()
        for _ in (rhythm := store.rhythm(schedule.steps)):
            assert rhythm.due()
            for key in (0, 1):
                product = large
                for _ in range(4):
                    product = mx.nd.dot(product, large)
                store.push(key, product[0, :300])
                store.pull(key, out=out)
            rhythm.exchanged()
        out.wait_to_read()

    scripts(schedule, train, {"east": 1})
    heard = [call[1] for call in calls["all"] if call[1] in ("complete", "on_report")]
    assert heard == ["complete", "complete", "on_report"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["sim", "live"])
def test_the_wait_for_a_late_reply_is_part_of_the_step(
    driver: str, calls: Calls, simulate: Build, tmp_path: Path
) -> None:
    schedule = plain(coordinator="late")
    experiment = spec(schedule)
    rows: list[dict[str, Any]]
    if driver == "sim":
        workload = of_sizes(tuple(schedule.elements))
        run = simulate(experiment.cluster, workload, schedule.sync, iterations=schedule.steps)
        rows = run.results.iterations
    else:
        (tmp_path / "nodes").mkdir()
        live(schedule, tmp_path)
        stems = [tmp_path / worker.name.replace("/", "-") for worker in experiment.cluster.workers]
        notes = [note for stem in stems for note in Reader(stem).new()]
        rows = [note for note in notes if "iteration" in note]
    assert len(rows) == 2 * sum(PARTIES.values())
    assert min(row["end_s"] - row["start_s"] for row in rows) >= LATE_S
    calls.clear()


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(late_s=st.floats(1e-10, 3.0))
def test_a_coordinators_timeout_is_not_early(
    calls: Calls, simulate: Build, monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    """Not even by a fraction of a nanosecond, as it would request the same time again, forever."""
    monkeypatch.setattr(importlib.import_module(MODULE), "LATE_S", late_s)
    schedule = plain(coordinator="late")
    experiment = spec(schedule)
    workload = Registry.discover().workload("synthetic", options(schedule))
    run = simulate(experiment.cluster, workload, schedule.sync, iterations=schedule.steps)
    assert len(run.results.iterations) == 2 * sum(PARTIES.values())
    woken = [call[2] for call in calls["all"] if call[1] == "on_timeout"]
    assert woken and 0 not in woken
    calls.clear()


def test_waiting_for_values_is_not_computing(calls: Calls) -> None:
    """A fast worker waits in pull for a value of a slow one."""
    schedule, slow_s = plain(rounds=[[1, 1, 1]] * 2), 0.4
    calls.clear()

    def train(store: kv.KVStore) -> None:
        value = np.zeros(3, np.float32)
        store.init(0, value)
        for step in (rhythm := store.rhythm(schedule.steps)):
            if step > 0:
                store.pull(0, out=value)
            if store.global_rank == 1:
                time.sleep(slow_s)
            if rhythm.due():
                store.push(0, value)
                rhythm.exchanged()
        store.pull(0, out=value)

    scripts(schedule, train, {"east": 2})
    for number in (0, 1):
        heard = calls[f"east/worker{number}"]
        seconds = [call[1] for call in heard if call[0] == "report"]
        assert len(seconds) == 3
        assert min(seconds) >= slow_s if number == 1 else max(seconds) < slow_s / 2


@pytest.mark.parametrize(
    ("asks", "said"), [(False, "ask rhythm.due"), (True, "call rhythm.exchan")]
)
def test_a_script_without_the_due_exchange_is_an_error(asks: bool, said: str, calls: Calls) -> None:
    def train(store: kv.KVStore) -> None:
        with pytest.raises(GeomxError, match=rf"step 0 must be exchanged: {said}"):
            for _ in (rhythm := store.rhythm(2)):
                assert not asks or rhythm.due()

    scripts(plain(rounds=[[1, 1]]), train, {"east": 1})
    calls.clear()


def test_a_coordinator_that_is_lost_is_named(calls: Calls) -> None:
    cluster = LocalCluster(replace(unshaped({"east": 1}), sync=plain(rounds=[[1, 1]]).sync))
    (member,) = cluster.workers
    for other in cluster.members:
        if other is not member:
            other.loop.close()
    with pytest.raises(NodeLost):
        member.consult(Report(0, 0, [1.0]))
    cluster.close()
    calls.clear()


class Counting(WorkerSync):
    """Synchronises after every second step; counts calls."""

    def __init__(self) -> None:
        self.asked = 0
        self.coordinator = 0

    def after_step(self, step: int) -> bool:
        self.asked += 1
        return step % 2 == 1

    def finished(self, step: int) -> bool:
        return step == 5


class Counted(SyncPolicy):
    def worker(self, cluster: Cluster, worker: NodeSpec, steps: int) -> WorkerSync:
        return Counting()

    def coordinators(self, cluster: Cluster) -> list[Site]:
        return [Site(cluster.scheduler, Native("coordinator", "nothing"))]


def test_each_step_calls_the_policy_once_and_waits_for_the_reply() -> None:
    cluster = unshaped(PARTIES).cluster
    steps = Steps(Counted(), cluster, cluster.workers[0], 6)
    assert isinstance(steps.sync, Counting)
    assert (steps.begin(), steps.synchronises(), steps.synchronises()) == (0, False, False)
    assert steps.sync.asked == 1
    assert steps.report(1.0) is None
    assert (steps.begin(), steps.synchronises()) == (1, True)
    assert steps.report(1.0) == Report(cluster.scheduler.id, 0, [])
    with pytest.raises(RuntimeError, match="step 1 waits for"):
        steps.begin()
    steps.reply([])
    assert [steps.begin() for _ in range(4)] == [2, 3, 4, 5]
    assert (steps.last, steps.synchronises(), steps.sync.asked) == (True, True, 2)


@pytest.mark.slow
def test_ddp_makes_the_same_calls(calls: Calls, tmp_path: Path) -> None:
    """Up to the first step without an exchange, which DDP does not support."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import geomx.torch

    schedule = plain(
        elements=[12], rounds=[[1, 1, 2]], exchange="gradients", coordinator="none", scale=0.5
    )
    calls.clear()
    sums, exchanges = [], []

    def train(store: kv.KVStore) -> None:
        model = torch.nn.Linear(12, 1, bias=False)
        hook = geomx.torch.PartyHook(model, store)
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        parallel.register_comm_hook(hook, geomx.torch.PartyHook.average)
        for _ in range(2):
            model.zero_grad()
            parallel(torch.ones(1, 12)).sum().backward()
            sums.append(model.weight.grad.sum().item())
        with pytest.raises(Exception, match="does not synchronise after step 2: DDP needs"):
            parallel(torch.ones(1, 12)).sum().backward()
        exchanges.append(weakref.ref(hook._exchange))
        hook.close()

    group = {"init_method": f"file://{tmp_path}/meeting", "rank": 0, "world_size": 1}
    torch.distributed.init_process_group("gloo", **group)
    try:
        scripts(schedule, train, {"east": 1})
    finally:
        torch.distributed.destroy_process_group()
    assert sums == [6.0, 6.0]
    gc.collect()
    assert exchanges[0]() is None  # although PyTorch keeps the hook until the process ends
    asked_of_it = expected(replace(schedule, rounds=[[1, 1, 1]]), 0)
    assert calls["east/worker0"] == [
        ("worker", UNKNOWN), *asked_of_it[1:-1], ("finished", 2), ("after_step", 2)
    ]  # fmt: skip
    calls.clear()
