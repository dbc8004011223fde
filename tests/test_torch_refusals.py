"""What scripts do to parameters, gradients and steps: equal to plain PyTorch, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from geomx import kv
from geomx.errors import GeomxError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'geomx[torch]'")

from torch.nn.utils.prune import custom_from_mask

import geomx.torch
from tests.torch_laws import (
    NEAR,
    SGD,
    assert_same,
    data,
    everyone,
    network,
    one_thread,  # noqa: F401 (for every test here)
    train,
)

pytestmark = pytest.mark.slow

BOTH = {"east": 1, "west": 1}


def clamp(net: Any) -> None:
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.clamp_(-0.1, 0.1)


def replace(net: Any) -> None:
    net[2].weight.data = net[2].weight.data * 0.5


def reset(net: Any) -> None:
    torch.nn.init.constant_(net[2].weight, 0.25)


CHANGES = pytest.mark.parametrize("change", [clamp, replace, reset])


@CHANGES
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("overlap", [True, False])
def test_changed_parameters_are_refused_where_servers_update(
    change: Callable[[Any], None], waits: bool, overlap: bool, seed: int
) -> None:
    def body(store: kv.KVStore) -> None:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, overlap=overlap, store=store)
        train(optimizer, net, *data(seed), 1)
        optimizer.zero_grad()
        backward(net, seed)
        optimizer.step()
        if waits:
            optimizer.wait()
        change(net)
        with pytest.raises(GeomxError, match=r"[02]\.(weight|bias) was changed .*update='worker'"):
            train(optimizer, net, *data(seed), 1)

    everyone(body, {"east": 1})


@CHANGES
def test_changed_parameters_count_where_workers_update(
    change: Callable[[Any], None], seed: int
) -> None:
    def loop(optimizer: Any, net: Any, inputs: Any, targets: Any) -> list[np.ndarray]:
        for _ in range(4):
            train(optimizer, net, inputs, targets, 1)
            change(net)
        return train(optimizer, net, inputs, targets, 1)

    def body(store: kv.KVStore) -> list[np.ndarray]:
        net, (inputs, targets) = network(), data(seed)
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, update="worker", store=store)
        share = slice(optimizer.rank, None, optimizer.workers)
        return loop(optimizer, net, inputs[share], targets[share])

    net = network()
    expected = loop(SGD(net.parameters()), net, *data(seed))
    for values in everyone(body, BOTH):
        assert_same(values, expected, NEAR)


def test_moved_models_and_weights_that_come_back_are_no_changes(seed: int) -> None:
    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        net.double().float()
        for _ in range(3):
            train(optimizer, net, *data(seed), 1)
            net.double().float()
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter.mul_(2.0).mul_(0.5)
        return train(optimizer, net, *data(seed), 1)

    net = network()
    expected = train(SGD(net.parameters()), net, *data(seed), 4)
    for values in everyone(body, BOTH):
        assert_same(values, expected, NEAR)


@pytest.mark.needs("hfa")
@pytest.mark.parametrize(("search", "k1", "most"), [(None, 1, NEAR), ("strong_wolfe", 9, 0.0)])
def test_closures_work_where_parameters_are_exchanged(
    search: str | None, k1: int, most: float, seed: int
) -> None:
    """A line search is compared where nothing is exchanged: it amplifies the last bits."""
    inputs, targets = data(seed)

    def loop(optimizer: Any, net: Any) -> list[np.ndarray]:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(inputs), targets)
            loss.backward()
            return loss

        losses = [optimizer.step(closure).item() for _ in range(3)]
        assert losses[2] < losses[0]
        return [value.numpy().copy() for value in net.state_dict().values()]

    def make(net: Any) -> Any:
        return torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=4, line_search_fn=search)

    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        return loop(geomx.torch.Optimizer(make(net), net, store=store), net)

    net = network()
    expected = loop(make(net), net)
    for values in everyone(body, BOTH, ("hfa", {"k1": k1, "k2": 1})):
        assert_same(values, expected, most)


def embed(store: kv.KVStore, sparse: bool) -> list[np.ndarray]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Embedding(10, 4, sparse=sparse))
    optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.tensor([1, 2])).square().mean().backward()
        optimizer.step()
    return [value.numpy().copy() for value in net.state_dict().values()]


def test_sparse_gradients_are_refused_with_the_remedies() -> None:
    with pytest.raises(GeomxError, match=r"0\.weight is sparse.*sparse=False"):
        everyone(lambda store: embed(store, True), {"east": 1})
    everyone(lambda store: embed(store, False), {"east": 1})


@pytest.mark.needs("hfa")
def test_sparse_gradients_work_where_parameters_are_exchanged() -> None:
    (values,) = everyone(lambda store: embed(store, True), {"east": 1}, ("hfa", {}))
    (dense,) = everyone(lambda store: embed(store, False), {"east": 1}, ("hfa", {}))
    assert_same(values, dense, NEAR)


def backward(net: Any, seed: int, share: slice = slice(None)) -> None:
    inputs, targets = (each[share] for each in data(seed))
    torch.nn.functional.cross_entropy(net(inputs), targets).backward()


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("update", ["servers", "worker"])
def test_a_batch_can_be_dropped_before_or_after_backward(
    early: bool, update: Any, seed: int
) -> None:
    """With two workers, the one that drops a batch counts as zeros in the mean."""

    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        optimizer = geomx.torch.Optimizer(
            SGD(net.parameters()), net, update=update, overlap=early, store=store
        )
        share = slice(optimizer.rank, None, optimizer.workers)
        for step in range(4):
            optimizer.zero_grad()
            bad = step == 2 and optimizer.rank == 0
            if not (early and bad):
                backward(net, seed + step, share)
            if bad:
                optimizer.zero_grad()
            optimizer.step()
        return [value.numpy().copy() for value in net.state_dict().values()]

    for workers, parties in ((1, {"east": 1}), (2, BOTH)):
        net = network()
        optimizer = SGD(net.parameters())
        for step in range(4):
            optimizer.zero_grad()
            ranks = [rank for rank in range(workers) if (step, rank) != (2, 0)]
            for rank in ranks:
                inputs, targets = (each[rank::workers] for each in data(seed + step))
                loss = torch.nn.functional.cross_entropy(net(inputs), targets)
                (loss / workers).backward()
            optimizer.step()
        expected = [value.numpy() for value in net.state_dict().values()]
        for values in everyone(body, parties):
            assert_same(values, expected, NEAR)


@pytest.mark.parametrize("options", [{"overlap": False}, {"passes": 2}], ids=str)
def test_gradients_that_were_dropped_before_they_were_sent_do_not_count(
    options: dict[str, Any], seed: int
) -> None:
    def loop(optimizer: Any, net: Any) -> list[np.ndarray]:
        for step in range(3):
            backward(net, seed + step)
            optimizer.zero_grad()
            backward(net, seed + step + 10)
            backward(net, seed + step + 20)
            optimizer.step()
            optimizer.zero_grad()
        return [value.numpy().copy() for value in net.state_dict().values()]

    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        return loop(geomx.torch.Optimizer(SGD(net.parameters()), net, store=store, **options), net)

    net = network()
    expected = loop(SGD(net.parameters()), net)
    for values in everyone(body, BOTH):
        assert_same(values, expected, NEAR)


def test_gradients_that_were_dropped_after_they_were_sent_are_refused(seed: int) -> None:
    def body(store: kv.KVStore) -> None:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        backward(net, seed)
        optimizer.zero_grad()
        with pytest.raises(GeomxError, match=r"passes=2\) adds.*overlap=False zero_grad\(\)"):
            backward(net, seed)

    everyone(body, {"east": 1})


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda p: torch.optim.SGD(p, lr=torch.tensor(0.1)), "lr"),
        (lambda p: torch.optim.Adam(p, betas=tuple(torch.tensor([[0.8], [0.9]]))), "betas"),
    ],
    ids=["lr", "betas"],
)
def test_options_in_tensors_may_not_change_unnoticed(
    make: Callable[[Any], Any], option: str, seed: int
) -> None:
    def body(store: kv.KVStore) -> None:
        net = network()
        inner = make(net.parameters())
        optimizer = geomx.torch.Optimizer(inner, net, store=store)
        train(optimizer, net, *data(seed), 2)
        held = inner.param_groups[0][option]
        (held if option == "lr" else held[1]).fill_(0.5)
        with pytest.raises(GeomxError, match=r"options were changed.*update='worker'"):
            train(optimizer, net, *data(seed), 1)

    everyone(body, {"east": 1})


def test_entries_of_groups_that_are_no_options_do_not_matter(seed: int) -> None:
    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        groups = [
            {"params": list(net[0].named_parameters())},  # their names are an entry, too
            {"params": list(net[2].named_parameters()), "name": "head"},
        ]
        inner = torch.optim.SGD(groups, lr=0.1)
        optimizer = geomx.torch.Optimizer(inner, net, store=store)
        share = slice(optimizer.rank, None, optimizer.workers)
        for step in range(4):
            values = train(optimizer, net, *(each[share] for each in data(seed)), 1)
            inner.param_groups[0]["note"] = step
        return values

    net = network()
    expected = train(SGD(net.parameters()), net, *data(seed), 4)
    for values in everyone(body, BOTH):
        assert_same(values, expected, NEAR)


@pytest.mark.parametrize(
    "sync", [("fsa", {}), pytest.param(("hfa", {}), marks=pytest.mark.needs("hfa"))], ids=str
)
@pytest.mark.parametrize("made", range(4))
def test_the_last_of_steps_is_where_it_was_before_a_checkpoint(
    made: int, sync: Any, seed: int
) -> None:
    def body(store: kv.KVStore) -> None:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, steps=2, store=store)
        state = optimizer.state_dict()
        optimizer.load_state_dict(state | {"geomx": {"step": made - 1}})
        assert (optimizer.made, optimizer.done) == (made, made >= 2)
        while not optimizer.done:
            train(optimizer, net, *data(seed), 1)
        assert optimizer.made == max(made, 2)
        with pytest.raises(GeomxError, match="the last step has been made"):
            optimizer.step()
        net.load_state_dict(network().state_dict())  # it is no longer trained

    everyone(body, BOTH, sync)


def prune(net: Any) -> None:
    custom_from_mask(net[0], "weight", torch.arange(96).view(16, 6) % 2)


def normalise(net: Any) -> None:
    torch.nn.utils.weight_norm(net[0])


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("change", [prune, normalise])
@pytest.mark.parametrize(
    "sync",
    [
        ("fsa", {}),
        pytest.param(("hfa", {"k1": 1, "k2": 1}), marks=pytest.mark.needs("hfa")),
    ],
    ids=str,
)
def test_hooks_that_compute_from_parameters_find_the_new_values(
    change: Callable[[Any], None], sync: Any, seed: int
) -> None:
    """PyTorch calls a module's hooks before its forward pass in their order."""

    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        change(net)
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        share = slice(optimizer.rank, None, optimizer.workers)
        return train(optimizer, net, *(each[share] for each in data(seed)), 4)

    net = network()
    change(net)
    expected = train(SGD(net.parameters()), net, *data(seed), 4)
    for values in everyone(body, BOTH, sync):
        assert_same(values, expected, NEAR)


@pytest.mark.parametrize("own", [{"lr": 0.01}, {"lr": 0.0}, {"weight_decay": 0.5}], ids=str)
@pytest.mark.parametrize("first", [True, False])
def test_frozen_parameters_may_have_options_of_their_own(
    own: dict[str, float], first: bool, seed: int
) -> None:
    def make(net: Any) -> Any:
        net[0].requires_grad_(False)
        frozen, others = {"params": net[0].parameters(), **own}, {"params": net[2].parameters()}
        return torch.optim.SGD([frozen, others] if first else [others, frozen], lr=0.1)

    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        optimizer = geomx.torch.Optimizer(make(net), net, store=store)
        optimizer.load_state_dict(optimizer.state_dict())
        share = slice(optimizer.rank, None, optimizer.workers)
        return train(optimizer, net, *(each[share] for each in data(seed)), 3)

    net = network()
    expected = train(make(net), net, *data(seed), 3)
    for values in everyone(body, BOTH):
        assert_same(values, expected, NEAR)
