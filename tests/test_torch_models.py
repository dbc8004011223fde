"""PyTorch's models with geomx: copied, given up, saved, and trained on from a checkpoint."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

from geomx import kv
from geomx.errors import GeomxError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'geomx[torch]'")

import geomx.torch
from tests.torch_laws import (
    NEAR,
    OPTIMIZERS,
    SGD,
    Make,
    alone,
    assert_same,
    data,
    everyone,
    network,
    one_thread,  # noqa: F401 (for every test here)
    train,
)

# ---- models come and go ----


def test_a_model_goes_with_the_last_reference_to_it(seed: int) -> None:
    """Python's search for circles is off: there are none."""
    inputs, targets = data(seed)

    def body(store: kv.KVStore) -> list[Any]:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        for _ in range(2):
            torch.nn.functional.cross_entropy(net(inputs), targets).backward()
            optimizer.step()
        assert len(net.state_dict()) == 4  # and nothing is on its way
        return [weakref.ref(each) for each in (optimizer, net, *net.parameters(), *net)]

    everyone(body, {"east": 1})  # PyTorch's first steps leave circles of their own
    gc.collect()
    gc.disable()
    try:
        (references,) = everyone(body, {"east": 1})
        assert [each() for each in references] == [None] * len(references)
    finally:
        gc.enable()


def test_copies_of_a_model_wait_for_nothing(seed: int) -> None:
    inputs, targets = data(seed)
    start = network().state_dict()

    def body(store: kv.KVStore) -> Any:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        torch.nn.functional.cross_entropy(net(inputs), targets).backward()
        optimizer.step()
        with pytest.raises(GeomxError, match=r"call optimizer\.wait\(\)"):
            copy.deepcopy(net)
        optimizer.wait()
        mean = torch.optim.swa_utils.AveragedModel(net)
        for other in (mean.module, pickle.loads(pickle.dumps(net))):
            assert torch.equal(other(inputs), net(inputs))
            other.load_state_dict(start)
        return net

    (net,) = everyone(body, {"east": 1})
    net.load_state_dict(start)  # its optimizer is gone


# ---- checkpoints ----


def test_training_goes_on_from_a_checkpoint(seed: int) -> None:
    make = OPTIMIZERS["adam"]

    def body(store: kv.KVStore, state: Any, steps: int) -> Any:
        net, state = network(), copy.deepcopy(state)
        if state is not None:
            net.load_state_dict(state[0])
        optimizer = geomx.torch.Optimizer(make(net.parameters()), net, update="worker", store=store)
        if state is not None:
            optimizer.load_state_dict(state[1])
        share = slice(store.global_rank, None, store.num_all_workers)
        inputs, targets = data(seed)
        train(optimizer, net, inputs[share], targets[share], steps)
        return net.state_dict(), optimizer.state_dict()

    parties = {"east": 1, "west": 1}
    half = everyone(lambda store: body(store, None, 2), parties)[0]
    assert half[1]["geomx"] == {"step": 1}
    for model, state in everyone(lambda store: body(store, half, 2), parties):
        assert_same([value.numpy() for value in model.values()], alone(make, seed), NEAR)
        assert state["geomx"] == {"step": 3}


def test_servers_hear_the_numbers_of_a_checkpoint(seed: int) -> None:
    slow = torch.optim.SGD(network().parameters(), lr=0.05).state_dict()

    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        optimizer.load_state_dict(slow)
        return train(optimizer, net, *data(seed), 3)

    expected = alone(lambda parameters: torch.optim.SGD(parameters, lr=0.05), seed, 3)
    for values in everyone(body, {"east": 1, "west": 1}):
        assert_same(values, expected, NEAR)


def test_what_is_not_in_a_checkpoint_is_said() -> None:
    def body(store: kv.KVStore, make: Make) -> None:
        net = network()
        geomx.torch.Optimizer(make(net.parameters()), net, store=store).state_dict()

    with pytest.warns(UserWarning, match="keep the state of AdamW.*update='worker'"):
        everyone(lambda store: body(store, OPTIMIZERS["adamw"]), {"east": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        everyone(lambda store: body(store, SGD), {"east": 1})
