"""The behaviour that MXNet's own tests of key-value stores check, in new tests of geomx's store.

Three workers in two parties run in this process, each in its own thread with the same function. One
cluster serves many checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx import kv
from geomx.errors import ConfigError, GeomxError
from geomx.kv.local import LocalCluster, unshaped

pytestmark = pytest.mark.slow

try:
    from geomx.mxnet import EngineExchange, KVStore, mx
except ConfigError as error:
    pytest.skip(str(error), allow_module_level=True)

SHAPE, BIG = (4, 3), (700, 600)
RATE = 2.0


class Workers:
    """The stores of all workers; `everyone` runs a function for each, concurrently."""

    def __init__(self, stores: list[KVStore]) -> None:
        self.stores = stores
        self._pool = ThreadPoolExecutor(len(stores))

    def everyone(self, action: Callable[[KVStore], Any]) -> list[Any]:
        return list(self._pool.map(action, self.stores))


@contextmanager
def workers(*accel: tuple[str, dict[str, Any]], **parties: int) -> Iterator[Workers]:
    """Start a cluster with these numbers of workers by party, and two global servers."""
    spec = replace(unshaped(parties, global_servers=2), accel=accel)
    cluster = LocalCluster(spec)
    stores = []
    for member in cluster.workers:
        store = kv.KVStore(member)
        store.use(EngineExchange(member.loop))
        stores.append(KVStore(store, "dist_sync"))
    together = Workers(stores)
    try:
        yield together
        together.everyone(lambda store: store.close())
    finally:
        cluster.close()


def devices(value: Any) -> list[Any]:
    """Return a copy of `value` on each of four devices."""
    return [mx.nd.array(value, ctx=mx.Context("cpu", number)) for number in range(4)]


def same(array: Any, expected: Any) -> None:
    """Check that an array of MXNet has exactly these values."""
    values = array.asnumpy()
    assert np.array_equal(values, np.broadcast_to(expected, values.shape).astype(values.dtype))


# ---- values ----


@pytest.mark.parametrize("names", [[3, 5, 7, 90, 91], ["w", "b", "c", "big", "half"]])
def test_dense_keys_sum_the_pushes_of_all_workers(names: list[Any]) -> None:
    one, two, three, big, half = names

    def train(store: KVStore) -> None:
        me, everybody = store.global_rank + 1, 1 + 2 + 3
        store.init(one, mx.nd.full(SHAPE, 4) * me)  # the first worker's value is used
        store.init([two, three], [mx.nd.zeros(SHAPE)] * 2)
        store.init([big], [[mx.nd.ones(BIG)]])
        store.init(half, mx.nd.ones(BIG, dtype="float16"))
        out = mx.nd.empty(SHAPE)
        store.pull(one, out=out)
        same(out, 4)
        store.set_optimizer(mx.optimizer.create("test", rescale_grad=RATE))
        store.barrier()
        # Sums of several rounds, of large and small arrays, with 16 and 32 bits.
        for step in (1, 2, 3):
            for key, shape, dtype in (
                (one, SHAPE, "float32"), (big, BIG, "float32"), (half, BIG, "float16"),
            ):  # fmt: skip
                store.push(key, mx.nd.full(shape, me, dtype=dtype))
                value = mx.nd.zeros(shape, dtype=dtype)
                store.pull(key, out=value)
                same(value, (4 if key == one else 1) + step * RATE * everybody)
                assert value.dtype == np.dtype(dtype)
        # Arrays of several devices are added, and all receive the answer; several keys at once.
        outs = [mx.nd.empty(SHAPE, ctx) for ctx in (mx.cpu(0), mx.cpu(1))]
        store.push(two, devices(np.full(SHAPE, me)))
        store.pull(two, out=outs)
        for each in outs:
            same(each, 4 * RATE * everybody)
        store.pushpull([two, three], [devices(np.ones(SHAPE))] * 2, out=[outs, out])
        same(outs[1], 4 * RATE * (everybody + 3))
        same(out, 4 * RATE * 3)
        kept = devices(np.zeros(SHAPE))
        store.pushpull(three, kept)  # in place
        for each in kept:
            same(each, 4 * RATE * 3)
        values = [mx.nd.ones(SHAPE)] * 2
        store.push([two, three], values)
        values[0][:] = 77  # allowed as soon as push has returned
        fresh = mx.nd.empty(SHAPE)
        store.broadcast("a" * 9 if isinstance(one, str) else 8, mx.nd.ones(SHAPE) * me, out=fresh)
        same(fresh, 1)
        store.pull(three, out=out)
        same(out, RATE * 15)

    with workers(east=2, west=1) as together:
        together.everyone(train)


def test_row_sparse_arrays_are_pushed_and_rows_of_them_pulled(seed: int) -> None:
    shape = (8, 5)
    generator = np.random.default_rng(seed)
    pushed = [generator.integers(-9, 9, shape) * (generator.random((8, 1)) < 0.5) for _ in "abc"]
    ids = generator.integers(0, 8, (2, 3))
    total = 1 + RATE * sum(pushed)
    kept = np.where(np.isin(np.arange(8), ids)[:, None], total, 0)

    def sparse(value: Any, dtype: str = "float32") -> Any:
        return mx.nd.array(value, dtype=dtype).tostype("row_sparse")

    def train(store: KVStore) -> None:
        keys, big = ["e", "half"], "big"
        store.init(keys, [sparse(np.ones(shape)), sparse(np.ones(shape), "float16")])
        store.init(big, sparse(np.ones(BIG)))
        store.set_optimizer(mx.optimizer.create("test", rescale_grad=RATE))
        store.barrier()
        rows = mx.nd.array(ids)
        for key, dtype in zip(keys, ("float32", "float16"), strict=True):
            store.push(key, sparse(pushed[store.global_rank], dtype))
            out = mx.nd.sparse.zeros("row_sparse", shape, dtype=dtype)
            store.row_sparse_pull(key, out=out, row_ids=rows)
            assert out.stype == "row_sparse"
            assert out.dtype == np.dtype(dtype)
            same(out, kept)
        # No rows; all rows; several arrays, with individual or common rows.
        store.row_sparse_pull("e", out=out, row_ids=mx.nd.array([]))
        same(out, 0)
        outs = [mx.nd.sparse.zeros("row_sparse", shape, ctx=mx.Context("cpu", i)) for i in (0, 1)]
        store.row_sparse_pull("e", out=outs, row_ids=[rows, mx.nd.arange(8)])
        same(outs[0], kept)
        same(outs[1], total)
        store.row_sparse_pull(keys, out=[outs, out], row_ids=rows)
        same(outs[1], kept)
        same(out, kept)
        # By default, pull ignores sparse arrays, but never dense ones.
        dense = mx.nd.empty(shape)
        store.pull("e", out=[outs[0], dense])
        same(outs[0], kept)
        same(dense, total)
        store.pull("e", out=outs, ignore_sparse=False)
        same(outs[0], total)
        # An empty push changes nothing.
        store.push(big, mx.nd.sparse.zeros("row_sparse", BIG))
        large = mx.nd.sparse.zeros("row_sparse", BIG)
        store.row_sparse_pull(big, out=large, row_ids=mx.nd.arange(BIG[0]))
        same(large, 1)
        store.push("e", [sparse(np.eye(8, 5)), sparse(np.eye(8, 5))])
        store.pull("e", out=dense)
        same(dense, total + 6 * RATE * np.eye(8, 5))
        with pytest.raises(GeomxError, match="has 8 rows, there is no row 9"):
            store.row_sparse_pull("e", out=outs[0], row_ids=mx.nd.array([9]))
        with pytest.raises(GeomxError, match="2 arrays need 2 arrays of row numbers, not 3"):
            store.row_sparse_pull("e", out=outs, row_ids=[rows] * 3)

    with workers(east=2, west=1) as together:
        together.everyone(train)


def two_bits(gradient: Any, residual: Any, threshold: float) -> tuple[Any, Any]:
    """Return the sent value and the residual of MXNet's documented compression."""
    waiting = residual + gradient
    sent = threshold * ((waiting >= threshold) * 1.0 - (waiting <= -threshold) * 1.0)
    return sent.astype(np.float32), (waiting - sent).astype(np.float32)


def test_two_bit_compression_equals_mxnets(seed: int) -> None:
    """Each worker is a separate party, which compresses its pushes, as in MXNet's own jobs."""
    threshold, shape = 0.5, (37, 41)

    def train(store: KVStore) -> None:
        store.set_gradient_compression({"type": "twobit", "threshold": threshold})
        store.init([0, 1, 2], [mx.nd.zeros(shape), mx.nd.ones(shape), mx.nd.zeros(shape)])
        store.set_optimizer(mx.optimizer.create("test", rescale_grad=RATE))
        store.barrier()
        out = mx.nd.empty(shape)
        store.pull(1, out=out)
        same(out, 1)  # initial values are not compressed
        value = 0.0
        for pushed, said in ((0.0, 0), (0.4, 0), (0.1, 1), (0.2, 0), (0.3, 1), (0.5, 1)):
            store.push(0, mx.nd.full(shape, pushed))
            store.pull(0, out=out)
            value += said * threshold * RATE * 3
            assert np.allclose(out.asnumpy(), value), pushed
        generator = np.random.default_rng(seed)  # equal in all workers
        residual, expected = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        for _ in range(4):
            gradient = generator.normal(0, 0.5, shape).astype(np.float32)
            sent, residual = two_bits(gradient, residual, threshold)
            expected += sent * RATE * 3
            store.push(2, mx.nd.array(gradient))
            store.pull(2, out=out)
            assert np.allclose(out.asnumpy(), expected, atol=1e-5)

    with workers(("twobit", {"threshold": threshold}), a=1, b=1, c=1) as together:
        together.everyone(train)


def test_errors_are_also_mxnet_errors() -> None:
    with workers(alone=1) as together:
        (store,) = together.stores
        store.init("w", mx.nd.zeros(SHAPE))
        value, sparse = mx.nd.ones(SHAPE), mx.nd.ones(SHAPE).tostype("row_sparse")
        rows = mx.nd.array([1])
        for mistake, words in (
            (lambda: store.push("x", value), "key 'x' was never initialised: call init first"),
            (lambda: store.pull("x", out=value), "never initialised"),
            (lambda: store.pull("x", out=sparse, ignore_sparse=False), "never initialised"),
            (lambda: store.row_sparse_pull("x", out=sparse, row_ids=rows), "never initialised"),
            (lambda: store.push("w", mx.nd.ones((3, 4))), r"has shape \(4, 3\), not \(3, 4\)"),
            (lambda: store.pull("w", out=[value, mx.nd.ones(3)]), r"has shape .* not \(3,\)"),
            (lambda: store.init("w", value), "initialised twice"),
            (lambda: store.init(9, value), "keys must be either all integers or all strings"),
            (lambda: store.push(9, value), "never initialised"),
            (lambda: store.push("w", np.zeros(SHAPE)), "is not an array of MXNet"),
            (lambda: store.push(["w", "w"], [value]), "2 keys need a list of 2 values"),
            (lambda: store.row_sparse_pull("w", out=value, row_ids=rows), "row-sparse arrays, not"),
            (lambda: store.row_sparse_pull("w", out=sparse), "the rows that are wanted"),
            (lambda: store.pull("w"), "needs the arrays to fill"),
            (lambda: store._set_updater(print), "run optimizers by name"),
        ):
            with pytest.raises(mx.base.MXNetError, match=words):
                mistake()
            with pytest.raises(GeomxError, match=words):
                mistake()
        out = mx.nd.empty(SHAPE)
        store.pull("w", out=out)
        same(out, 0)


# ---- Gluon ----


class Text(mx.gluon.nn.Block):
    """An embedding, a frozen layer and a trained one."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        with self.name_scope():
            self.words = mx.gluon.nn.Embedding(20, 6, sparse_grad=sparse)
            self.frozen = mx.gluon.nn.Dense(8, in_units=6, flatten=False)
            self.last = mx.gluon.nn.Dense(2, in_units=8)
        self.frozen.collect_params().setattr("grad_req", "null")

    def forward(self, x: Any) -> Any:
        return self.last(self.frozen(self.words(x)).mean(axis=1))


def text(sparse: bool, contexts: list[Any]) -> Text:
    """Return a network with fixed initial values on several devices."""
    net = Text(sparse)
    mx.random.seed(4)
    net.initialize(mx.init.Xavier(), ctx=contexts)
    return net


def learn(net: Text, trainer: Any, parts: slice, batch: int, contexts: list[Any]) -> None:
    """Train three steps on a part of one batch, which is divided between the devices."""
    generator = np.random.default_rng(5)
    sentences = generator.integers(0, 12, (12, 4))[parts]  # words 12 to 19 do not occur
    labels = generator.integers(0, 2, 12)[parts]
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for _ in range(3):
        inputs = mx.gluon.utils.split_and_load(mx.nd.array(sentences), contexts)
        wanted = mx.gluon.utils.split_and_load(mx.nd.array(labels), contexts)
        with mx.autograd.record():
            losses = [loss_of(net(x), y) for x, y in zip(inputs, wanted, strict=True)]
        mx.autograd.backward(losses)
        trainer.step(batch)


def weights(net: Text, context: Any) -> list[np.ndarray]:
    return [each.data(context).asnumpy() for each in net.collect_params().values()]


@pytest.mark.parametrize("on_store", [True, False])
def test_gluon_with_several_workers_equals_one_worker(on_store: bool, tmp_path: Path) -> None:
    options = {"learning_rate": 0.5, "momentum": 0.9}
    here, both = [mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]
    alone = text(False, here)
    trainer = mx.gluon.Trainer(alone.collect_params(), "sgd", dict(options), kvstore=None)
    learn(alone, trainer, slice(None), 12, here)
    nets = [text(on_store, both) for _ in "abc"]  # sparse gradients if servers update

    def train(store: KVStore) -> None:
        net, rank = nets[store.global_rank], store.global_rank
        trainer = mx.gluon.Trainer(
            net.collect_params(), "sgd", dict(options), kvstore=store, update_on_kvstore=on_store
        )
        learn(net, trainer, slice(4 * rank, 4 * rank + 4), 12, both)
        path = str(tmp_path / f"states-{rank}")
        if on_store and rank > 0:
            with pytest.raises(GeomxError, match="are saved by the master worker"):
                trainer.save_states(path)
            return
        trainer.save_states(path)
        if on_store:  # see test_optimizer_states_of_servers_continue
            return
        states = trainer._updaters[0].states
        last = max(states)
        momentum = states[last].asnumpy()
        states[last][:] = 0
        trainer.load_states(path)
        assert np.array_equal(trainer._updaters[0].states[last].asnumpy(), momentum)
        assert momentum.any()

    with workers(east=2, west=1) as together:
        together.everyone(train)
        for net in nets:
            for context in both:
                for value, wanted in zip(
                    weights(net, context), weights(alone, here[0]), strict=True
                ):
                    assert np.allclose(value, wanted, rtol=1e-4, atol=1e-6)
    untouched = weights(text(False, here), here[0])
    changed = [
        not np.array_equal(a, b) for a, b in zip(untouched, weights(alone, here[0]), strict=True)
    ]
    assert changed == [True, False, False, True, True]


def test_sparse_weights_are_pulled_by_rows() -> None:
    nets = [mx.gluon.Parameter("x", shape=(5, 2), stype="row_sparse", grad_stype="row_sparse")
            for _ in "abc"]  # fmt: skip
    for each in nets:
        each.initialize(init="ones")

    def train(store: KVStore) -> None:
        x = nets[store.global_rank]
        trainer = mx.gluon.Trainer([x], "sgd", {"learning_rate": 1.0}, kvstore=store)
        rows = mx.nd.array([1, 3])
        with mx.autograd.record():
            y = (store.global_rank + 1) * x.row_sparse_data(rows)
        y.backward()
        trainer.step(1)
        same(x.row_sparse_data(rows), [[0], [1 - 6], [0], [1 - 6], [0]])

    with workers(east=2, west=1) as together:
        together.everyone(train)


def test_a_trainer_selects_where_to_update() -> None:
    with workers(alone=1) as together:
        (store,) = together.stores
        for stype, grad, given, expected in (
            ("default", "default", None, True), ("default", "default", True, True),
            ("default", "default", False, False), ("default", "row_sparse", None, True),
            ("default", "row_sparse", False, ValueError), ("row_sparse", "row_sparse", None, True),
            ("row_sparse", "row_sparse", False, ValueError),
        ):  # fmt: skip
            x = mx.gluon.Parameter("x", shape=(10, 1), stype=stype, grad_stype=grad)
            x.initialize(ctx=[mx.cpu(0), mx.cpu(1)], init="zeros")
            trainer = mx.gluon.Trainer(
                [x], "sgd", {"learning_rate": 0.1}, kvstore=store, update_on_kvstore=given
            )
            if isinstance(expected, bool):
                trainer._init_kvstore()
                assert trainer._update_on_kvstore is expected
                with pytest.raises(RuntimeError, match="Cannot reset distributed"):
                    trainer._reset_kvstore()
            else:
                with pytest.raises(expected):
                    trainer._init_kvstore()


# ---- the state of optimizers on global servers ----

STATEFUL = (
    lambda: mx.optimizer.SGD(learning_rate=0.1, momentum=0.9),
    lambda: mx.optimizer.Adam(learning_rate=0.01),
)


@pytest.mark.parametrize("make", STATEFUL)
def test_optimizer_states_of_servers_continue_in_another_job(
    make: Callable[[], Any], tmp_path: Path, seed: int
) -> None:
    """Training in two jobs ends with the bits of training in one."""
    shapes = {"a": (3, 2), "b": (700,), "c": (1,)}
    draw = np.random.default_rng(seed)
    start = {name: draw.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    pushes = draw.normal(size=(6, 2, 3)).astype("f4")
    path = str(tmp_path / "states")

    def job(values: dict[str, Any], steps: range, saves: bool, loads: bool) -> dict[str, Any]:
        ended: dict[str, Any] = {}

        def train(store: KVStore) -> None:
            for name, value in values.items():
                store.init(name, mx.nd.array(value))
            store.set_optimizer(make())
            if loads:
                store.load_optimizer_states(path)
            for step in steps:
                for number, (name, shape) in enumerate(shapes.items()):
                    gradient = pushes[step, store.global_rank, number]
                    store.push(name, mx.nd.full(shape, gradient))
            out = {name: mx.nd.empty(shape) for name, shape in shapes.items()}
            for name, array in out.items():
                store.pull(name, array)
            if store.is_master_worker:
                ended.update({name: array.asnumpy() for name, array in out.items()})
                if saves:
                    store.save_optimizer_states(path)
            store.barrier()

        with workers(east=1, west=1) as together:
            together.everyone(train)
        return ended

    whole = job(start, range(6), saves=False, loads=False)
    split = draw.integers(0, 6)
    half = job(start, range(split), saves=True, loads=False)
    rest = job(half, range(split, 6), saves=False, loads=True)
    for name, value in whole.items():
        assert np.array_equal(rest[name], value)
    if split > 0:
        forgotten = job(half, range(split, 6), saves=False, loads=False)
        assert not np.array_equal(forgotten["b"], whole["b"])
