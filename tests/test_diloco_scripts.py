"""Scripts follow sync policies that exchange fragments and apply answers later."""

from __future__ import annotations

import re
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from geomx import kv
from geomx.errors import GeomxError
from geomx.workload import Workload
from tests.laws import close
from tests.outer_laws import on_tiny, streaming

pytestmark = [pytest.mark.slow, pytest.mark.needs("diloco")]

OPTIONS = {
    "h": 4, "fragments": 2, "tau": 3, "alpha": 0.5, "outer_lr": 0.8, "outer_momentum": 0.6,
}  # fmt: skip
VANILLA = {**OPTIONS, "fragments": 1, "tau": 0, "alpha": 0.0}
STEPS = 14


@pytest.mark.parametrize("options", [OPTIONS, VANILLA, {**OPTIONS, "alpha": 0.0}], ids=str)
@pytest.mark.parametrize("framework", ["numpy", "mxnet"])
def test_a_script_calls_exchange_in_every_step(
    framework: str, options: dict[str, Any], tiny: Workload, seed: int
) -> None:
    laws = pytest.importorskip("tests.torch_laws")
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")

    def train(store: kv.KVStore) -> list[np.ndarray]:
        model, names = tiny.model(seed), [tensor.name for tensor in tiny.tensors]
        outside: Any = store
        values: dict[str, Any] = dict(zip(names, model.parameters, strict=True))
        if framework == "mxnet":
            from geomx.mxnet import EngineExchange, KVStore, mx

            store.use(EngineExchange(store.member.loop))
            outside = KVStore(store, "dist_sync")
            values = {name: mx.nd.array(value) for name, value in values.items()}
        outside.init(names, list(values.values()))
        for step in (rhythm := outside.rhythm(STEPS)):
            for key, name in enumerate(names):
                model.set(key, as_numpy(values[name]))
            model.step(step, store.global_rank, store.num_all_workers)
            for key, name in enumerate(names):
                values[name] -= array_like(values[name], 0.05 * model.gradients[key])
            rhythm.exchange(values)
        return [as_numpy(value).copy() for value in values.values()]

    expected = on_tiny(tiny, seed, 4, STEPS, options)
    for values in laws.everyone(train, sync=("diloco", options)):
        assert close(values, expected, 1e-5)


def as_numpy(value: Any) -> np.ndarray:
    return value.asnumpy() if hasattr(value, "asnumpy") else value


def array_like(value: Any, array: np.ndarray) -> Any:
    if not hasattr(value, "asnumpy"):
        return array
    from geomx.mxnet import mx

    return mx.nd.array(array)


def test_a_script_that_exchanges_all_at_once_is_told(tiny: Workload, seed: int) -> None:
    laws = pytest.importorskip("tests.torch_laws")

    def train(store: kv.KVStore) -> None:
        store.init("a", np.zeros(3))
        for _ in (rhythm := store.rhythm(1)):
            with pytest.raises(GeomxError, match=r"sync=diloco .* rhythm.exchange\(values\)"):
                rhythm.due()
            rhythm.exchange({"a": np.ones(3, np.float32)})

    laws.everyone(train, {"east": 1}, ("diloco", {"tau": 1}))


RHYTHMS = [("hfa", {"k1": 2, "k2": 2}), ("diloco", OPTIONS), ("diloco", VANILLA)]


@pytest.mark.needs("hfa")
@pytest.mark.parametrize("sync", RHYTHMS, ids=str)
def test_an_exchange_does_not_depend_on_what_keys_are(
    sync: tuple[str, dict[str, Any]], seed: int
) -> None:
    laws = pytest.importorskip("tests.torch_laws")

    def train(keys: list[Any], store: kv.KVStore) -> list[np.ndarray]:
        random = np.random.default_rng(seed + store.global_rank)
        values = {key: np.zeros(3 + number, np.float32) for number, key in enumerate(keys)}
        store.init(keys, list(values.values()))
        for _ in (rhythm := store.rhythm(STEPS)):
            for value in values.values():
                value[:] += random.standard_normal(value.size, np.float32)
            rhythm.exchange(values)
        return list(values.values())

    runs = [
        laws.everyone(partial(train, keys), {"east": 2, "west": 1}, sync)
        for keys in (["a", "b", "c"], [0, 1, 2], [30, 7, 2])
    ]
    assert all(value.any() for value in runs[0][0])
    for worker in (worker for run in runs for worker in run):
        laws.assert_same(worker, runs[0][0], 0.0)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("a", r"key 'b' is not among the values: .* in the first step"),
        ("abc", r"key 'c' was not initialised before the first step, .* `for step in rhythm:`"),
    ],
)
def test_keys_that_would_not_be_exchanged_are_refused(given: str, sentence: str) -> None:
    laws = pytest.importorskip("tests.torch_laws")

    def train(store: kv.KVStore) -> None:
        store.init(["a", "b"], [np.zeros(3)] * 2)
        rhythm = store.rhythm(1)
        next(iter(rhythm))
        store.init("c", np.zeros(3))
        with pytest.raises(GeomxError, match=sentence):
            rhythm.exchange({key: np.ones(3, np.float32) for key in given})

    laws.everyone(train, {"east": 1}, ("diloco", {"tau": 1}))


@pytest.mark.needs("hfa")
@pytest.mark.parametrize("sync", RHYTHMS, ids=str)
@pytest.mark.parametrize("shape", [(4, 3), (6,), (12,)])
def test_values_of_another_shape_are_refused(
    sync: tuple[str, dict[str, Any]], shape: tuple[int, ...]
) -> None:
    laws = pytest.importorskip("tests.torch_laws")

    def train(store: kv.KVStore) -> None:
        store.init(["v", "w"], [np.zeros(2), np.zeros((3, 4))])
        rhythm = store.rhythm(1)
        next(iter(rhythm))
        refusal = re.escape(f"key 'w' has shape (3, 4), not {shape}")
        with pytest.raises(GeomxError, match=refusal):
            rhythm.exchange({"v": np.zeros(2, np.float32), "w": np.zeros(shape, np.float32)})

    laws.everyone(train, {"east": 1}, sync)


@pytest.mark.needs("hfa", "halos")
@pytest.mark.parametrize("sync", [("hfa", {"k1": 1, "k2": 5}), ("halos", {})], ids=str)
def test_a_rhythm_ends_with_its_last_step(sync: tuple[str, dict[str, Any]]) -> None:
    """Its pushes are the last of their keys; a rhythm that has not come so far may be replaced."""
    laws = pytest.importorskip("tests.torch_laws")

    def train(store: kv.KVStore) -> None:
        values = {"w": np.zeros(3, np.float32)}
        store.init("w", values["w"])
        for _ in (rhythm := store.rhythm(9)):
            rhythm.exchange(values)
            break  # after the first step, as halos plans few more for a slow worker
        for _ in (rhythm := store.rhythm(4)):
            rhythm.exchange(values)
        with pytest.raises(GeomxError, match="give rhythm the steps of all epochs together"):
            store.rhythm(4)

    laws.everyone(train, {"east": 2, "west": 1}, sync)


@pytest.mark.needs("hfa")
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_the_mean_of_equal_values_in_half_precision_is_that_value(kind: str, seed: int) -> None:
    """Of three workers, each of which sends a third, which half precision would round."""
    laws = pytest.importorskip("tests.torch_laws")
    drawn = np.random.default_rng(seed).standard_normal(200, np.float32).astype(np.float16)
    drawn = drawn if kind == "float16" else laws.torch.from_numpy(drawn).bfloat16()

    def train(store: kv.KVStore) -> Any:
        value = drawn.copy() if kind == "float16" else drawn.clone()
        store.init("w", value)
        for _ in (rhythm := store.rhythm(2)):
            rhythm.exchange({"w": value})
        return value

    for value in laws.everyone(train, {"east": 3}, ("hfa", {"k1": 1, "k2": 1})):
        assert (value == drawn).all()


def test_exchanges_that_would_go_wrong_are_refused(tiny: Workload, seed: int) -> None:
    """Without steps of the rhythm, and under an algorithm that adds up what is pushed."""
    laws = pytest.importorskip("tests.torch_laws")

    def train(store: kv.KVStore) -> None:
        store.init("a", np.zeros(3))
        rhythm, values = store.rhythm(1), {"a": np.ones(3, np.float32)}
        with pytest.raises(GeomxError, match=r"no step has begun: .* `for step in rhythm:`"):
            rhythm.due()
        if store.num_all_workers == 1:
            for _ in rhythm:
                rhythm.exchange(values)  # a sum of one
            return
        with pytest.raises(GeomxError, match=r"sync=fsa adds up gradients, .* choose a sync"):
            for _ in rhythm:
                rhythm.exchange(values)

    for workers in (1, 2):
        laws.everyone(train, {"east": workers}, ("fsa", {}))


@pytest.mark.parametrize("options", [OPTIONS, {**OPTIONS, "alpha": 0.0}, VANILLA], ids=str)
@pytest.mark.parametrize("overlap", [True, False])
def test_pytorch_needs_no_change(options: dict[str, Any], overlap: bool, seed: int) -> None:
    laws = pytest.importorskip("tests.torch_laws")
    torch = laws.torch
    inputs, targets = laws.data(seed)
    net = laws.network()

    def gradients(step: int, worker: int, values: Any) -> list[np.ndarray]:
        with torch.no_grad():
            for parameter, value in zip(net.parameters(), values, strict=True):
                parameter.copy_(torch.from_numpy(value))
        net.zero_grad()
        share = slice(worker, None, 4)
        torch.nn.functional.cross_entropy(net(inputs[share]), targets[share]).backward()
        return [parameter.grad.numpy().copy() for parameter in net.parameters()]

    initial = [parameter.detach().numpy().copy() for parameter in net.parameters()]
    expected = streaming(gradients, initial, 0.1, 4, STEPS, options)
    body = laws.shared(laws.SGD, seed, STEPS, steps=STEPS, overlap=overlap)
    for values in laws.everyone(body, sync=("diloco", options)):
        laws.assert_same(values, expected, 1e-5)
