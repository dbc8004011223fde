"""The key-value store: sums over workers, initial values, optimizers, errors, complete jobs."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geomx import _core, kv
from geomx.errors import ConfigError, GeomxError, NodeLost
from geomx.experiment import streaming
from geomx.kv.keys import Keys
from geomx.kv.local import LocalCluster, unshaped
from geomx.kv.values import devices, optimizer_numbers, pairs, to_float32
from geomx.plugin.registry import Registry

pytestmark = pytest.mark.interpreter  # buffers

Stores = list[kv.KVStore]


def cluster(**workers: int) -> LocalCluster:
    """Return a cluster in this process, from the number of workers by party."""
    return LocalCluster(unshaped(workers, global_servers=2))


def everyone(stores: Stores, action: Callable[[kv.KVStore], Any]) -> list[Any]:
    """Run `action` for all workers concurrently; return the results."""
    with ThreadPoolExecutor(len(stores)) as pool:
        return list(pool.map(action, stores))


@pytest.fixture
def stores() -> Iterator[Stores]:
    """Return the stores of two parties of two workers."""
    with_everyone = cluster(east=2, west=2)
    stores = [kv.KVStore(member) for member in with_everyone.workers]
    yield stores
    everyone(stores, lambda store: store.close())
    with_everyone.close()


@pytest.fixture
def alone() -> Iterator[kv.KVStore]:
    """Return the store of a script that was not launched by geomx."""
    store = kv.create()
    yield store
    store.close()


def test_a_script_runs_alone(alone: kv.KVStore) -> None:
    assert (alone.rank, alone.num_workers, alone.num_all_workers) == (0, 1, 1)
    assert alone.is_master_worker
    assert alone.type == "dist_sync"
    assert kv.create("dist_sync") is alone
    alone.init(3, np.arange(6.0).reshape(2, 3))
    assert np.array_equal(alone.pull(3), np.arange(6.0).reshape(2, 3))
    alone.push(3, np.full((2, 3), 2.0))
    out = np.empty((2, 3), np.float64)
    assert alone.pull(3, out=out) is out
    assert (out == 2).all()
    alone.barrier()


@pytest.mark.slow
def test_after_closing_a_new_store_can_be_created() -> None:
    first = kv.create()
    first.close()
    second = kv.create()
    assert second is not first
    second.init("w", np.ones(2))
    second.close()
    weights = ("w", np.ones(2))
    calls = [(call, weights) for call in (second.push, second.pushpull, second.pull, second.init)]
    for call, arguments in (*calls, (second.barrier, ()), (second.set_optimizer, ("sgd",))):
        with pytest.raises(GeomxError, match=r"^the store was closed, which ends"):
            call(*arguments)


def test_keys_and_values_may_be_lists(alone: kv.KVStore) -> None:
    alone.init(["w", "b"], [np.ones((2, 2)), np.zeros(3)])
    alone.push(["w", "b"], [[np.ones((2, 2)), np.ones((2, 2))], np.arange(3.0)])
    weight, bias = alone.pull(["w", "b"])
    assert (weight == 2).all()
    assert np.array_equal(bias, [0, 1, 2])
    twice = [np.empty(3, np.float32), np.empty(3, np.float16)]
    alone.pull("b", out=twice)
    assert np.array_equal(twice[0], twice[1])
    value = np.full(3, 5.0, np.float32)
    alone.pushpull("b", value)
    assert (value == 5).all()


def test_a_pushed_array_may_be_changed_at_once(alone: kv.KVStore) -> None:
    alone.init(0, np.zeros(1000, np.float32))
    value = np.ones(1000, np.float32)
    alone.push(0, value)
    value[:] = 7
    assert (alone.pull(0) == 1).all()


@pytest.mark.slow
def test_roles_and_ranks(stores: Stores) -> None:
    assert [store.rank for store in stores] == [0, 1, 0, 1]
    assert [store.global_rank for store in stores] == [0, 1, 2, 3]
    assert [store.is_master_worker for store in stores] == [True, False, False, False]
    assert {(store.num_workers, store.num_all_workers) for store in stores} == {(2, 4)}


@pytest.mark.slow
def test_all_workers_start_from_the_masters_value(stores: Stores) -> None:
    def start(store: kv.KVStore) -> np.ndarray:
        store.init(0, np.full(4, float(store.global_rank)))
        return store.pull(0)

    assert all((value == 0).all() for value in everyone(stores, start))


@pytest.mark.parametrize("seed", range(3))
def test_pull_returns_the_sum_over_all_workers(stores: Stores, seed: int) -> None:
    generator = np.random.default_rng(seed)
    shapes = [tuple(generator.integers(1, 40, dims)) for dims in (1, 2, 3)]
    values = [
        [generator.integers(-1000, 1000, shape).astype(np.float32) for shape in shapes]
        for _ in range(len(stores) * 3)
    ]
    keys = list(range(len(shapes)))

    def train(store: kv.KVStore) -> list[list[np.ndarray]]:
        store.init(keys, [np.zeros(shape) for shape in shapes])
        results = []
        for step in range(3):
            store.push(keys, values[step * len(stores) + store.global_rank])
            results.append(store.pull(keys))
        return results

    results = everyone(stores, train)
    for step in range(3):
        pushed = values[step * len(stores) : (step + 1) * len(stores)]
        for key in keys:
            expected = sum(arrays[key] for arrays in pushed)
            for worker in results:
                assert np.array_equal(worker[step][key], expected), f"seed {seed}, step {step}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("mpq", marks=pytest.mark.needs("mpq", "bisparse", "fp16")),
        *(
            pytest.param(each, marks=pytest.mark.needs(each))
            for each in ("bisparse", "demo", "powersgd", "sparseloco")
        ),
    ],
)
def test_workers_that_update_themselves_receive_the_same_sums(name: str, seed: int) -> None:
    """Without an optimizer on servers, no party adds what its own codec has not sent."""
    shape = (40, 100)

    def train(store: kv.KVStore) -> list[np.ndarray]:
        generator = np.random.default_rng(seed + store.global_rank)
        store.init("w", np.zeros(shape, np.float32))
        sums = []
        for _ in range(3):
            store.push("w", generator.standard_normal(shape, np.float32))
            sums.append(store.pull("w"))
        store.close()
        return sums

    together = LocalCluster(replace(unshaped({"east": 1, "west": 2}), accel=((name, {}),)))
    first, *others = everyone([kv.KVStore(member) for member in together.workers], train)
    together.close()
    assert all(value.any() for value in first)
    for sums in others:
        assert np.array_equal(sums, first)


@pytest.mark.slow
def test_the_optimizer_runs_on_the_global_server(stores: Stores) -> None:
    numbers = {"learning_rate": 0.1, "momentum": 0.9, "rescale_grad": 0.25}
    start, gradient = np.linspace(-1, 1, 50, dtype=np.float32), np.ones(50, np.float32)

    def train(store: kv.KVStore) -> np.ndarray:
        store.init("w", start)
        store.set_optimizer({"name": "sgd", **numbers})
        for _ in range(3):
            store.push("w", gradient * store.global_rank)
            weight = store.pull("w")
        return weight

    expected = start.copy()
    optimizer = _core.Optimizer("sgd\n" + "".join(f"{n} {v}\n" for n, v in numbers.items()), 0)
    for _ in range(3):
        optimizer.update(expected, gradient * 6)
    for weight in everyone(stores, train):
        assert np.allclose(weight, expected, rtol=1e-6)


@pytest.mark.slow
def test_many_keys_move_like_single_ones(stores: Stores) -> None:
    """Small arrays move together; others, and those of other types, between them and in order."""
    large = streaming.STREAMED_ELEMENTS + 7  # two shards
    shapes = [*[(number % 5 + 1,) for number in range(40)], (large,), (2, 3), (4,), (5,)]
    keys = [*range(len(shapes)), 3]  # the last is pushed and pulled twice

    def value(rank: int, number: int) -> np.ndarray:
        shape = shapes[keys[number]]
        return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + rank + number

    def run(store: kv.KVStore) -> list[np.ndarray]:
        store.init(keys[:-1], [np.zeros(shape, np.float32) for shape in shapes])
        pushed: list[Any] = [value(store.global_rank, number) for number in range(len(keys))]
        pushed[7] = pushed[7].astype(np.float64)
        pushed[41] = np.asfortranarray(pushed[41])
        store.push(keys, pushed)
        for array in pushed:
            array[...] = -1  # as soon as it returns
        return store.pull(keys, [np.full_like(array, -2) for array in pushed])

    assert len(stores[0]._keys._cut([(0, large, 0, 0)])) == 2
    for pulled in everyone(stores, run):
        for number, array in enumerate(pulled):
            last = len(keys) - 1 if number == 3 else number
            assert np.array_equal(array, sum(value(rank, last) for rank in range(4))), number


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 100_000])
def test_what_is_pushed_and_filled_at_once_is_not_copied(stores: Stores, count: int) -> None:
    """Unless one of the arrays is filled while others of its memory are being sent."""

    def run(store: kv.KVStore) -> list[np.ndarray]:
        mine = [np.full(count, 1.0 + store.global_rank + key, np.float32) for key in range(3)]
        both, parts = np.full(count, 2.0, np.float32), np.ones(2 * count, np.float32)
        arrays = [*mine, both, both, parts[:count], parts[count:]]
        keys = list(range(len(arrays)))
        store.init(keys, [np.zeros(count, np.float32) for _ in keys])
        filled = store.pushpull(keys[:3], mine)
        assert all(one is other for one, other in zip(filled, mine, strict=True))
        store.pushpull(keys[3:], arrays[3:])
        return [array.copy() for array in arrays]

    for arrays in everyone(stores, run):
        assert [set(array) for array in arrays] == [{10}, {14}, {18}, {8}, {8}, {4}, {4}]


def test_pushes_before_a_wrong_one_count(alone: kv.KVStore) -> None:
    alone.init([0, 1], [np.zeros(2, np.float32), np.zeros(2, np.float32)])
    with pytest.raises(GeomxError, match="shape"):
        alone.push([0, 1], [np.ones(2, np.float32), np.ones(3, np.float32)])
    assert [array[0] for array in alone.pull([0, 1])] == [1, 0]


@pytest.mark.parametrize(
    ("sync", "accel", "streams", "whole"),
    [
        ("fsa", (), True, True),
        ("fsa", ("p3",), True, True),
        ("fsa", ("fp16",), False, True),
        ("fsa", ("dgt",), False, False),
        ("hfa", (), False, True),
    ],
)
def test_large_shards_are_divided_only_where_no_value_changes(
    alone: kv.KVStore, sync: str, accel: tuple[str, ...], streams: bool, whole: bool
) -> None:
    """And arrays are pushed without a copy only where nothing of them leaves after the answer."""
    spec = alone.member.spec
    selection = Registry.discover().select((sync, {}), [(name, {}) for name in accel])
    assert streaming.streams(selection, spec.cluster, spec.faults) == streams
    assert streaming.answered_whole(selection, spec.cluster, spec.faults) == whole
    assert alone.member.streams
    quorum = replace(spec.faults, quorum=1, deadline_s=1.0, on_loss="continue")
    assert not streaming.streams(alone.member.selection, spec.cluster, quorum)
    assert not streaming.answered_whole(alone.member.selection, spec.cluster, quorum)


@given(sizes=st.lists(st.integers(1, 3 * streaming.STREAMED_ELEMENTS), min_size=1, max_size=4))
def test_divided_shards_cover_the_tensor_on_the_same_servers(sizes: list[int]) -> None:
    offsets = [0, *accumulate(sizes)]
    shards = [(offsets[i], size, i % 2, -i) for i, size in enumerate(sizes)]
    pieces = streaming.streamed(shards)
    assert [first for first, *_ in pieces] == list(
        accumulate((n for _, n, *_ in pieces), initial=0)
    )[:-1]
    assert max(elements for _, elements, *_ in pieces) <= streaming.STREAMED_ELEMENTS
    totals = Counter[tuple[int, int]]()
    for _, elements, server, priority in pieces:
        totals[server, priority] += elements
    assert totals == {(i % 2, -i): size for i, size in enumerate(sizes)}


@pytest.mark.slow
def test_a_barrier_waits_for_the_last(stores: Stores) -> None:
    def meet(store: kv.KVStore) -> float:
        time.sleep(0.1 * store.global_rank)
        came = time.monotonic()
        store.barrier()
        return came - time.monotonic()

    waits = everyone(stores, meet)
    assert waits[0] <= -0.25


class SGD:
    """An optimizer with a name that MXNet has, too, but of another framework."""


def test_invalid_calls_are_errors(alone: kv.KVStore) -> None:
    alone.init(0, np.zeros((2, 3)))
    for mistake, words in (
        (lambda: alone.push(1, np.zeros(2)), "key 1 was never initialised"),
        (lambda: alone.pull("x"), "key 'x' was never initialised"),
        (lambda: alone.init(0, np.zeros(2)), "key 0 is initialised twice: a process has one store"),
        (lambda: alone.init("w", np.zeros(2)), "all integers or all strings"),
        (lambda: alone.init(1, np.zeros((2, 0))), "has no elements"),
        (lambda: alone.init(-1, np.zeros(2)), "key -1 is neither"),
        (lambda: alone.push(0, np.zeros((3, 2))), r"has shape \(2, 3\), not \(3, 2\)"),
        (lambda: alone.pull(0, out=np.zeros(6)), r"has shape \(2, 3\), not \(6,\)"),
        (lambda: alone.push([0, 0], np.zeros((2, 3))), "2 keys need a list of 2 values"),
        (lambda: alone.push(0, np.full((2, 3), 1e300)), "too large for float32"),
        (lambda: alone.push(0, np.full((2, 3), "x")), "not made of numbers"),
    ):
        with pytest.raises(GeomxError, match=words):
            mistake()
    for mistake in (
        lambda: kv.create("local"),
        lambda: alone.set_optimizer("adadelta"),
        lambda: alone.set_optimizer("sgd", beta1=0.9),
        lambda: alone.set_optimizer({"learning_rate": 0.1}),
        lambda: alone.set_optimizer("sgd", learning_rate=None),
        lambda: alone.set_optimizer(SGD()),
        lambda: alone.rhythm(0),
        lambda: alone.rhythm(-3),
        lambda: alone.rhythm(2.5),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError):
            mistake()
    assert (alone.pull(0) == 0).all()


ZIP = r"gradient_compression=zip: no such type; .*2bit, .*bsc, .*none"


@pytest.mark.needs("bisparse", "fp16", "twobit")
@pytest.mark.parametrize(
    ("accel", "asked", "refusal"),
    [
        ([], {"type": "none"}, ""),
        ([], {"type": "zip"}, ZIP),
        ([("twobit", {})], {"type": "2bit"}, ""),
        ([("twobit", {"threshold": 0.5})], {"type": "2bit", "threshold": 0.5}, ""),
        ([("twobit", {})], {"type": "2bit", "threshold": 0.5}, r"accel\.twobit\.threshold=0\.5"),
        ([("bisparse", {"ratio": 0.02})], {"type": "bsc", "threshold": 0.02}, ""),
        ([("bisparse", {})], {"type": "bsc", "rato": 0.02}, r"rato=0\.02: .* mean ratio\?"),
        ([("fp16", {})], {"type": "none"}, "which runs with accel fp16: launch it without"),
        (
            [],
            {"type": "2bit", "threshold": 0.5},
            r"launch it with '\+accel=\[twobit\]' accel\.twobit\.threshold=0\.5",
        ),
        ([], {"type": "bsc"}, r"launch it with '\+accel=\[bisparse\]'$"),
    ],
)
def test_compression_accepts_mxnets_names(
    accel: list[tuple[str, dict[str, Any]]], asked: dict[str, Any], refusal: str
) -> None:
    spec = replace(unshaped({"east": 1}), accel=tuple(accel))
    job = LocalCluster(spec)
    store = kv.KVStore(job.workers[0])
    with pytest.raises(ConfigError, match=refusal) if refusal else contextlib.nullcontext():
        store.set_gradient_compression(asked)
    job.close()


@pytest.mark.needs("mixedsync")
@pytest.mark.parametrize(
    ("chosen", "refusal"),
    [
        ({"staleness_bound": 2}, ""),
        ({"optimizer": "sgd"}, ""),
        ({"learning_rate": 0.1}, ""),
        ({"optimizer": "sgd", "momentum": 0.5}, "chooses momentum=0.5, .* in the script"),
        ({"learning_rate": 0.2}, "chooses learning_rate=0.2, .* these options of sync=mixedsync"),
        ({"optimizer": "dcasgd", "learning_rate": 0.1}, "optimizer=sgd: .* chooses dcasgd, "),
    ],
    ids=str,
)
def test_an_optimizer_that_the_job_replaces_is_refused(
    chosen: dict[str, Any], refusal: str
) -> None:
    job = LocalCluster(replace(unshaped({"east": 1}), sync=("mixedsync", chosen)))
    store = kv.KVStore(job.workers[0])
    with pytest.raises(ConfigError, match=refusal) if refusal else contextlib.nullcontext():
        store.set_optimizer("sgd", learning_rate=0.1, wd=0.01)
    job.close()


def test_asynchronous_needs_an_asynchronous_job(monkeypatch: pytest.MonkeyPatch) -> None:
    together = cluster(east=2)
    monkeypatch.setattr("geomx.kv.joining._stores", [kv.KVStore(together.workers[0])])
    with pytest.raises(ConfigError, match="sync=fsa"):
        kv.create("dist_async")
    together.close()


@pytest.mark.slow
def test_a_lost_worker_is_named_by_all_waiting_workers() -> None:
    together = cluster(east=1, west=1)
    first, second = (kv.KVStore(member) for member in together.workers)
    everyone([first, second], lambda store: store.init(0, np.zeros(10)))
    first.push(0, np.ones(10))
    began = time.monotonic()
    second.member.loop.close()
    with pytest.raises(NodeLost) as caught:
        first.pull(0)
    assert caught.value.name == "west/worker0"
    with pytest.raises(NodeLost):
        first.barrier()
    assert time.monotonic() - began < 5
    together.close()


def test_values_are_converted_to_float32_if_necessary() -> None:
    half = to_float32(0, np.array([1.5, 65504], np.float16))
    assert half.dtype == np.float32
    assert np.array_equal(half, [1.5, 65504])
    assert np.isinf(to_float32(0, np.array([np.inf]))).all()
    array = np.zeros(3, np.float32)
    assert to_float32(0, array) is array
    assert pairs(np.int64(4), array) == [(4, array)]
    assert devices([array, array]) == [array, array]


def test_an_optimizer_is_sent_as_a_name_and_numbers() -> None:
    assert optimizer_numbers("sgd", {"momentum": 0.5}) == {"name": "sgd", "momentum": 0.5}

    class AdaDelta:
        lr = 0.1

    with pytest.raises(ConfigError, match="sgd, nag, adam"):
        optimizer_numbers(AdaDelta(), {})


# ---- many keys, wrong shapes ----


class Counted(int):
    """A key that counts how often it is hashed or compared."""

    looks = 0

    def __hash__(self) -> int:
        Counted.looks += 1
        return super().__hash__()


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 50])
def test_the_work_of_adding_keys_is_linear(alone: kv.KVStore, batch: int) -> None:
    """By counts instead of times: the last keys need as many lookups and lines as the first."""
    keys = Keys(alone.member.spec.cluster, alone.member.selection)
    looks = []
    for first in range(0, 2000, batch):
        before = Counted.looks, calls(keys, first, batch)
        looks.append((Counted.looks - before[0], before[1]))
    early, late = looks[2], looks[-1]
    assert late[0] == early[0]
    assert late[1] <= 1.1 * early[1]  # lines, including occasional work of Python


def calls(keys: Keys, first: int, batch: int) -> int:
    """Return the number of Python calls and lines executed to add a batch of keys."""
    lines = 0

    def count(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += 1
        return count

    sys.settrace(count)
    try:
        keys.admit([(Counted(key), (4,)) for key in range(first, first + batch)])
    finally:
        sys.settrace(None)
    return lines


@pytest.mark.slow
def test_different_shapes_are_an_error_with_both_shapes(stores: Stores) -> None:
    def introduce(store: kv.KVStore) -> str:
        try:
            store.init("w", np.zeros(3 + (store.global_rank == 3)))
            store.barrier()
        except GeomxError as error:
            return str(error)
        return ""

    for heard in everyone(stores, introduce):
        differ = re.search(
            r"was lost: broke the protocol: key 0 \(piece 0\) has (\d) elements at (\S+) and "
            r"(\d) at (\S+): all workers must give a key the same shape",
            heard,
        )
        assert differ, heard
        sizes = {differ[1]: differ[2], differ[3]: differ[4]}
        assert sizes["4"] in ("west/worker1", "west/server")
        assert sizes["3"] != sizes["4"]


@pytest.mark.slow
def test_a_worker_that_was_refused_does_not_wait_for_its_server_at_its_end() -> None:
    spec = unshaped({"east": 1, "west": 2})
    spec = replace(spec, runtime=replace(spec.runtime, failure_timeout_s=30.0))  # so long it waited
    for _ in range(6):  # it is refused before it leaves, or, in half of the runs, after
        with_everyone = LocalCluster(spec)
        stores = [kv.KVStore(member) for member in with_everyone.workers]

        def introduce(store: kv.KVStore) -> None:
            with contextlib.suppress(GeomxError):
                store.init("w", np.zeros(3 + (store.global_rank == 2)))
                store.barrier()

        everyone(stores, introduce)
        began = time.monotonic()
        everyone(stores, lambda store: store.close())
        assert time.monotonic() - began < 15
        with_everyone.close()


ENDS = """
import atexit, gc, os, sys, threading
from geomx.errors import Left
from geomx.kv.ending import failing, watch_exit

gc.freeze()  # each process below would search all modules for garbage at its end
watch_exit()

class Subclass(SystemExit):
    pass

def left():
    raise Left

def raised():
    raise SystemExit(4)

def subclass():
    raise Subclass(5)

def caught():
    try:
        sys.exit(6)
    except SystemExit as error:
        assert error.code == 6

def in_a_thread():
    thread = threading.Thread(target=sys.exit, args=(7,))
    thread.start()
    thread.join()

def error():
    raise ValueError

ends = [lambda: None, sys.exit, error, left, raised, subclass, caught, in_a_thread]
ends += [lambda code=code: sys.exit(code) for code in (0, 1, 255, 256, -1, 2**80, "text", True)]
for number, end in enumerate(ends):
    if os.fork() == 0:
        atexit.register(lambda: print(number, failing(), flush=True))
        end()
        break
    _, status = os.wait()
    print(number, status != 0, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", [False, True])
def test_a_program_knows_at_its_end_whether_it_fails(tmp_path: Path, module: bool) -> None:
    (tmp_path / "ends.py").write_text(ENDS)
    command = [sys.executable, *(["-m", "ends"] if module else ["ends.py"])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = done.stdout.splitlines()
    assert len(said) == 32, done.stderr
    assert said[::2] == said[1::2]
