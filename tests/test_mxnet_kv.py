"""The key-value store with MXNet: operations of its engine, and gluon.Trainer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geomx import kv
from geomx.errors import ConfigError, GeomxError, NodeLost
from geomx.kv.local import LocalCluster, unshaped

pytestmark = [pytest.mark.slow, pytest.mark.interpreter]

try:
    from geomx.mxnet import EngineExchange, KVStore, mx
except ConfigError as error:
    pytest.skip(str(error), allow_module_level=True)

PAUSE_S = 0.4


def two_workers() -> tuple[LocalCluster, list[KVStore]]:
    """Start one party of two workers in this process."""
    cluster = LocalCluster(unshaped({"east": 2}))
    stores = []
    for member in cluster.workers:
        store = kv.KVStore(member)
        store.use(EngineExchange(member.loop))
        stores.append(KVStore(store, "dist_sync"))
    return cluster, stores


@pytest.fixture
def pair() -> Iterator[list[KVStore]]:
    """Return two stores with one key, a vector of 1000 zeros."""
    cluster, stores = two_workers()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda store: store.init(0, mx.nd.zeros(1000)), stores))
        yield stores
        list(pool.map(lambda store: store.close(), stores))
    cluster.close()


@pytest.fixture
def alone() -> Iterator[KVStore]:
    """Return the store that `mx.kv.create` returns to a script that geomx did not launch."""
    store = mx.kv.create("dist_sync")
    yield store
    store.close()


def network() -> mx.gluon.nn.HybridSequential:
    """Return a small convolutional network with fixed initial values."""
    net = mx.gluon.nn.HybridSequential()
    net.add(
        mx.gluon.nn.Conv2D(8, 3, in_channels=1, activation="relu"),
        mx.gluon.nn.Dense(10, in_units=8 * 6 * 6),
    )
    mx.random.seed(5)
    net.initialize(mx.init.Xavier(), force_reinit=True)
    net.hybridize()
    return net


def train(net: mx.gluon.nn.HybridSequential, trainer: mx.gluon.Trainer) -> list[np.ndarray]:
    """Train three steps on the same batch; return the parameters."""
    generator = np.random.default_rng(7)
    inputs = mx.nd.array(generator.normal(size=(16, 1, 8, 8)))
    labels = mx.nd.array(generator.integers(0, 10, 16))
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for _ in range(3):
        with mx.autograd.record():
            loss = loss_of(net(inputs), labels)
        loss.backward()
        trainer.step(16)
    return [parameter.data().asnumpy() for parameter in net.collect_params().values()]


def test_mxnet_creates_our_store(alone: KVStore) -> None:
    assert isinstance(alone, mx.kvstore.KVStore)
    assert alone.type == "dist_sync"
    assert (alone.rank, alone.num_workers, alone.num_all_workers) == (0, 1, 1)
    assert alone.is_capable("optimizer")
    alone.init(["w", "b"], [mx.nd.ones((2, 3)), mx.nd.zeros(3)])
    alone.push(["w", "b"], [[mx.nd.ones((2, 3)), mx.nd.ones((2, 3))], mx.nd.arange(3)])
    weight, half = mx.nd.empty((2, 3)), mx.nd.empty(3, dtype="float16")
    alone.pull(["w", "b"], out=[weight, half])
    assert (weight.asnumpy() == 2).all()
    assert np.array_equal(half.asnumpy(), [0, 1, 2])


@pytest.mark.parametrize("name", ["dist", "dist_sync_device", "dist_async_device"])
def test_mxnets_other_names_of_distributed_stores_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"kvstore={name}: must be one of dist_sync, dist_"):
        mx.kv.create(name)


def test_push_and_pull_are_asynchronous_and_readers_wait(pair: list[KVStore]) -> None:
    first, second = pair
    out, other = mx.nd.empty(1000), mx.nd.empty(1000)
    began = time.monotonic()
    first.push(0, mx.nd.ones(1000))
    first.pull(0, out=out)
    doubled = out * 2
    assert time.monotonic() - began < PAUSE_S / 2
    timer = threading.Timer(PAUSE_S, lambda: second.push(0, mx.nd.ones(1000)))
    timer.start()
    assert (doubled.asnumpy() == 4).all()
    assert time.monotonic() - began >= PAUSE_S
    timer.join()
    second.pull(0, out=other)
    assert (other.asnumpy() == 2).all()


def test_a_pushed_gradient_may_be_overwritten(alone: KVStore) -> None:
    alone.init(0, mx.nd.zeros(100_000))
    gradient = mx.nd.ones(100_000)
    out = mx.nd.empty(100_000)
    for step in range(20):
        alone.push(0, gradient)
        alone.pull(0, out=out)
        assert gradient.asnumpy()[0] == step + 1
        gradient += 1
        assert (out.asnumpy() == step + 1).all()


def test_rounds_are_in_order_without_reads_in_between(alone: KVStore) -> None:
    alone.init(0, mx.nd.zeros(10))
    outs = [mx.nd.empty(10) for _ in range(50)]
    for step, out in enumerate(outs):
        alone.push(0, mx.nd.full(10, step))
        alone.pull(0, out=out)
    assert [out.asnumpy()[0] for out in outs] == list(range(50))


@pytest.mark.parametrize("on_store", [True, False])
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3}),
        ("adam", {"learning_rate": 0.01}),
        ("nag", {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3}),
        ("rmsprop", {"centered": True}),
    ],
)
def test_the_trainer_with_the_store_equals_one_without(
    alone: KVStore, optimizer: str, options: dict[str, float], on_store: bool
) -> None:
    local = network()
    expected = train(
        local, mx.gluon.Trainer(local.collect_params(), optimizer, dict(options), kvstore=None)
    )
    net = network()
    net(mx.nd.zeros((1, 1, 8, 8))).wait_to_read()  # inference re-arranges convolution weights
    trainer = mx.gluon.Trainer(
        net.collect_params(), optimizer, dict(options), kvstore=alone, update_on_kvstore=on_store
    )
    for value, wanted in zip(train(net, trainer), expected, strict=True):
        assert np.allclose(value, wanted, rtol=1e-4, atol=1e-6)


def test_invalid_calls_are_refused(alone: KVStore) -> None:
    alone.init(0, mx.nd.zeros((2, 2)))
    for mistake, words in (
        (lambda: alone.push(1, mx.nd.zeros(2)), "never initialised"),
        (lambda: alone.push(0, mx.nd.zeros(2)), "has shape"),
        (lambda: alone.push(0, np.zeros((2, 2))), "is not an array of MXNet"),
        (lambda: alone.pull(0), "needs the arrays"),
        (lambda: alone.load_optimizer_states("x"), "set an optimizer before"),
    ):
        with pytest.raises(GeomxError, match=words):
            mistake()
    with pytest.raises(ConfigError, match="sgd, nag, adam"):
        alone.set_optimizer(mx.optimizer.AdaDelta())


def test_a_key_that_is_listed_twice_has_one_contribution(alone: KVStore) -> None:
    """As in MXNet, which adds up all values that a push gives a key."""
    alone.set_optimizer(mx.optimizer.SGD(learning_rate=1, momentum=0.5))
    alone.init([3, 5], [mx.nd.zeros(2)] * 2)
    one, out = mx.nd.ones(2), [mx.nd.zeros(2), mx.nd.zeros(2)]
    alone.push([3, 5, 3], [one, one, [one, one]])
    alone.pull([3, 3], out=out)
    assert [array.asnumpy().tolist() for array in out] == [[-3, -3]] * 2


def test_arrays_of_several_devices_are_added_on_one(
    alone: KVStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MXNet's operators read arrays of one device only, where devices are GPUs."""
    places, add = [], mx.nd.add_n

    def added(*terms: mx.nd.NDArray) -> mx.nd.NDArray:
        places.append({term.context for term in terms})
        return add(*terms)

    monkeypatch.setattr(mx.nd, "add_n", added)
    alone.init(0, mx.nd.zeros(2))
    alone.push(0, [mx.nd.ones(2, ctx=mx.cpu(number)) for number in (1, 0, 2)])
    out = mx.nd.zeros(2)
    alone.pull(0, out=out)
    assert (out.asnumpy() == 3).all()
    assert places == [{mx.cpu(1)}]


def test_arrays_of_mxnets_numpy_move_like_others(alone: KVStore) -> None:
    alone.init(["w", "b"], [mx.np.ones((2, 3)), mx.np.zeros(3)])
    alone.push(["w", "b"], [[mx.np.ones((2, 3)), mx.np.ones((2, 3))], mx.np.arange(3)])
    weight, half = mx.np.zeros((2, 3)), mx.np.zeros(3, dtype="float16")
    alone.pull(["w", "b"], out=[weight, half])
    assert (weight.asnumpy() == 2).all()
    assert np.array_equal(half.asnumpy(), [0, 1, 2])
    for _ in (rhythm := alone.rhythm(2)):
        weight += 1
        rhythm.exchange({"w": weight, "b": half})
    assert (weight.asnumpy() == 4).all()


def test_gluon_trains_with_mxnets_numpy(alone: KVStore) -> None:
    mx.npx.set_np()
    try:
        alone.init(7, mx.np.array(3.0))
        alone.pushpull(7, mx.np.array(2.0), out=(scalar := mx.np.array(0.0)))
        assert (scalar.item(), scalar.shape) == (2.0, ())
        ends = []
        for store in (None, alone):
            net = mx.gluon.nn.Dense(1, in_units=3)
            net.initialize(mx.init.One())
            trainer = mx.gluon.Trainer(
                net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore=store
            )
            for _ in range(3):
                with mx.autograd.record():
                    loss = (net(mx.np.ones((4, 3))) ** 2).sum()
                loss.backward()
                trainer.step(4)
            ends.append([each.data().asnumpy() for each in net.collect_params().values()])
    finally:
        mx.npx.reset_np()
    for value, wanted in zip(*ends, strict=True):
        assert np.allclose(value, wanted)


def test_one_store_holds_the_arrays_of_one_framework() -> None:
    store = kv.create()
    store.init(0, np.zeros(2))
    with pytest.raises(GeomxError, match="one framework"):
        mx.kv.create("dist_sync")
    store.close()


def test_the_loss_of_a_node_raises_an_exception() -> None:
    cluster, (first, second) = two_workers()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda store: store.init(0, mx.nd.zeros(10)), (first, second)))
    out = mx.nd.empty(10)
    first.push(0, mx.nd.ones(10))
    first.pull(0, out=out)
    began = time.monotonic()
    second._store.member.loop.close()
    with pytest.raises(mx.base.MXNetError, match="node east/worker1 was lost"):
        out.asnumpy()
    with pytest.raises(NodeLost, match="east/worker1"):
        first.push(0, mx.nd.ones(10))
    assert time.monotonic() - began < 5
    first.close()
    cluster.close()


def test_optimizer_states_that_are_damaged_or_of_something_else_are_refused(
    alone: KVStore, tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "states"

    def refused() -> str:
        with pytest.raises(GeomxError) as error:
            alone.load_optimizer_states(str(path))
        return str(error.value)

    with pytest.raises(GeomxError, match="no key was initialised"):
        alone.save_optimizer_states(str(path))
    alone.init("w", mx.nd.ones((5,)))
    alone.set_optimizer(mx.optimizer.Adam())
    alone.push("w", mx.nd.ones((5,)))
    alone.save_optimizer_states(str(path))
    content = path.read_bytes()
    alone.load_optimizer_states(str(path))
    path.write_bytes(content[: len(content) // 2])
    assert "are damaged, or of something else" in refused()
    at = np.random.default_rng(seed).integers(150, 230)  # within the state itself
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    assert "damaged" in refused()
    path.write_bytes(content)
    alone.set_optimizer(mx.optimizer.SGD(momentum=0.9))
    assert "it is the state of 'adam', and not of 'sgd'" in refused()
    alone.init("v", mx.nd.ones((2,)))
    assert "they are of 1 shards of tensors, and this job has 2" in refused()


def test_a_master_that_replaces_a_lost_one_leaves_the_states_as_they_are(tmp_path: Path) -> None:
    """Its script loads a file again, and the servers are further."""
    path, momentum = str(tmp_path / "states"), mx.optimizer.SGD(learning_rate=1.0, momentum=0.5)

    def pushed(late: bool, loads: bool) -> float:
        spec = replace(unshaped({"east": 1}), rounds_before=3 if late else 0)
        cluster = LocalCluster(spec)
        cluster.workers[0].late = late
        store = kv.KVStore(cluster.workers[0])
        store.use(EngineExchange(store.member.loop))
        face, out = KVStore(store, "dist_sync"), mx.nd.zeros(1)
        face.set_optimizer(momentum)
        face.init(0, out)
        if loads:
            face.load_optimizer_states(path)
        face.push(0, mx.nd.ones(1))
        face.pull(0, out=out)
        value = float(out.asnumpy()[0])
        if not loads:
            face.save_optimizer_states(path)
        face.close()
        cluster.close()
        return value

    assert pushed(late=False, loads=False) == -1
    assert pushed(late=False, loads=True) == -1.5
    assert pushed(late=True, loads=True) == -1
