"""Checkpoints of `geomx.torch.Optimizer`: training continues, and what begins anew is named."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx import kv
from geomx.kv.local import LocalCluster, unshaped
from geomx.live.member import Member

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'geomx[torch]'")

import geomx.torch
from tests.laws import by_all_workers
from tests.strangers import accel, install
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

pytestmark = pytest.mark.slow

BOTH = {"east": 1, "west": 1}


def test_training_continues_from_a_checkpoint(seed: int) -> None:
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


def test_servers_receive_the_options_of_a_checkpoint(seed: int) -> None:
    slow = torch.optim.SGD(network().parameters(), lr=0.05).state_dict()

    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        optimizer.load_state_dict(slow)
        return train(optimizer, net, *data(seed), 3)

    expected = alone(lambda parameters: torch.optim.SGD(parameters, lr=0.05), seed, 3)
    for values in everyone(body, {"east": 1, "west": 1}):
        assert_same(values, expected, NEAR)


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_checkpoints_hold_the_servers_state(kind: str, seed: int, tmp_path: Path) -> None:
    """Training that continues from a file has the bits of one that was never interrupted."""
    momentum: Make = lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)  # noqa: E731
    make = {"momentum": momentum, "adam": OPTIMIZERS["adam"]}[kind]
    path = tmp_path / "checkpoint"

    def body(store: kv.KVStore, steps: int, saves: bool, loads: bool) -> list[np.ndarray]:
        net = network()
        saved = torch.load(path, weights_only=True) if loads else None
        if saved is not None:
            net.load_state_dict(saved[0])
        optimizer = geomx.torch.Optimizer(make(net.parameters()), net, store=store)
        if saved is not None:
            optimizer.load_state_dict(saved[1])
        share = slice(store.global_rank, None, store.num_all_workers)
        inputs, targets = data(seed)
        values = train(optimizer, net, inputs[share], targets[share], steps)
        if saves:
            state = (net.state_dict(), optimizer.state_dict())
            assert ("servers" in state[1]["geomx"]) == store.is_master_worker
            if store.is_master_worker:
                torch.save(state, path)
        return values

    parties = {"east": 1, "west": 2}
    whole = everyone(lambda store: body(store, 6, False, False), parties)
    everyone(lambda store: body(store, 3, True, False), parties)
    for halves, at_once in zip(
        everyone(lambda store: body(store, 3, False, True), parties), whole, strict=True
    ):
        assert all(np.array_equal(*pair) for pair in zip(halves, at_once, strict=True))


def test_checkpoints_without_the_servers_state_cause_a_warning() -> None:
    make = OPTIMIZERS["adam"]

    def body(store: kv.KVStore) -> None:
        net = network()
        optimizer = geomx.torch.Optimizer(make(net.parameters()), net, store=store)
        state = optimizer.state_dict()
        state["geomx"].pop("servers")
        optimizer.load_state_dict(state)

    with pytest.warns(UserWarning, match="holds no state of the global servers' optimizers"):
        everyone(body, {"east": 1})

    def kept(store: kv.KVStore) -> None:
        net = network()
        geomx.torch.Optimizer(make(net.parameters()), net, store=store).state_dict()

    with pytest.warns(UserWarning, match="the parties keep the weights and the state of Adam"):
        everyone(kept, {"east": 1, "west": 1}, accel=["bisparse"])

    def stateless(store: kv.KVStore) -> None:
        net = network()
        geomx.torch.Optimizer(SGD(net.parameters()), net, store=store).state_dict()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        everyone(stateless, {"east": 1})


OUTER = [
    pytest.param(("diloco", {"h": 2}), BOTH, marks=pytest.mark.needs("diloco")),
    pytest.param(
        ("fedbuff", {"h": 2, "global_momentum": 0.9}),
        {"east": 1},
        marks=pytest.mark.needs("fedbuff"),
    ),
    pytest.param(
        ("mixedsync", {"optimizer": "dcasgd", "momentum": 0.9}),
        {"east": 1},
        marks=pytest.mark.needs("mixedsync"),
    ),
]


@pytest.mark.parametrize(("sync", "parties"), OUTER, ids=str)
def test_checkpoints_hold_the_state_of_an_algorithms_own_optimizer(
    sync: Any, parties: dict[str, int], seed: int
) -> None:
    """Of which the script's optimizer (here without momentum) knows nothing."""
    assert_halves_are_a_whole(seed, parties, sync)


HEAVY = accel(
    "heavy",
    """
@geomx.hookimpl
def geomx_optimizer(self):
    return Ball()
""",
)
BALL = """
class Ball:
    momentum = np.zeros(1, np.float32)

    def update(self, weight, gradient, learning_rate):
        self.momentum = np.float32(0.9) * self.momentum + gradient
        return weight - np.float32(learning_rate) * self.momentum

    def save(self):
        return self.momentum

    def load(self, saved):
        self.momentum = saved
"""


def test_checkpoints_hold_the_state_of_a_plugins_optimizer(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "geomx_heavy", HEAVY + BALL, monkeypatch)
    assert_halves_are_a_whole(seed, {"east": 1}, accelerators=["heavy"])


def assert_halves_are_a_whole(
    seed: int,
    parties: dict[str, int],
    sync: tuple[str, dict[str, Any]] = ("fsa", {}),
    accelerators: Sequence[str] = (),
) -> None:
    """Training in two parts, with a checkpoint between them, ends as training in one does."""
    saved: list[Any] = []

    def body(store: kv.KVStore, steps: int, loads: bool) -> list[np.ndarray]:
        net = network()
        if loads:
            net.load_state_dict(saved[0])
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        if loads:
            optimizer.load_state_dict(copy.deepcopy(saved[1]))
        share = slice(optimizer.rank, None, optimizer.workers)
        values = train(optimizer, net, *(each[share] for each in data(seed)), steps)
        state = (copy.deepcopy(net.state_dict()), optimizer.state_dict())
        assert ("servers" in state[1]["geomx"]) == store.is_master_worker
        if store.is_master_worker:
            saved[:] = state
        return values

    def run(steps: int, loads: bool) -> list[Any]:
        return everyone(lambda store: body(store, steps, loads), parties, sync, accelerators)

    whole = run(8, False)
    run(4, False)
    for values, expected in zip(run(4, True), whole, strict=True):
        assert_same(values, expected, 0.0)


@pytest.mark.parametrize("foreign", [True, False])
def test_a_state_of_workers_that_servers_do_not_have_causes_a_warning(
    foreign: bool, seed: int
) -> None:
    """Of PyTorch's own optimizer, or of workers that updated."""
    net, make = network(), OPTIMIZERS["adam"]
    plain = make(net.parameters())
    train(plain, net, *data(seed), 2)
    state = plain.state_dict() | ({} if foreign else {"geomx": {"step": 1}})

    def body(store: kv.KVStore) -> None:
        net = network()
        optimizer = geomx.torch.Optimizer(make(net.parameters()), net, store=store)
        optimizer.load_state_dict(copy.deepcopy(state))
        assert not optimizer.state_dict()["state"]  # the saved state is not used

    words = r"holds no state of the global servers' optimizers, .*update='worker'"
    with pytest.warns(UserWarning, match=words) as caught:
        everyone(body, BOTH)
    assert len(caught) == 1  # of the first worker


def test_a_state_of_servers_that_workers_do_not_have_causes_a_warning(seed: int) -> None:
    make = OPTIMIZERS["adam"]
    saved: list[Any] = []

    def saves(store: kv.KVStore) -> None:
        net = network()
        optimizer = geomx.torch.Optimizer(make(net.parameters()), net, store=store)
        train(optimizer, net, *data(seed), 2)
        saved.append(optimizer.state_dict())

    def loads(store: kv.KVStore) -> None:
        net = network()
        optimizer = geomx.torch.Optimizer(make(net.parameters()), net, update="worker", store=store)
        optimizer.load_state_dict(copy.deepcopy(saved[0]))

    everyone(saves, {"east": 1})
    with pytest.warns(UserWarning, match="optimizers on the global servers, which begins anew"):
        everyone(loads, BOTH)


def test_a_state_without_momentum_causes_no_warning(seed: int) -> None:
    state = SGD(network().parameters()).state_dict()

    def body(store: kv.KVStore) -> None:
        net = network()
        geomx.torch.Optimizer(SGD(net.parameters()), net, store=store).load_state_dict(state)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        everyone(body, BOTH)


def test_a_process_that_replaces_a_lost_one_does_not_set_its_job_back(seed: int) -> None:
    """A script loads its checkpoint when it is restarted, too: the servers are further by then."""
    make = OPTIMIZERS["momentum"]

    def body(store: kv.KVStore, state: Any, steps: int) -> Any:
        net = network()
        optimizer = geomx.torch.Optimizer(make(net.parameters()), net, store=store)
        if state is not None:
            optimizer.load_state_dict(copy.deepcopy(state))
        before = optimizer.made
        values = train(optimizer, net, *data(seed), steps)
        return before, values, optimizer.state_dict()

    saved = everyone(lambda store: body(store, None, 2), {"east": 1})[0][2]
    assert saved["geomx"]["step"] == 1

    def act(member: Member) -> Any:
        member.late = True
        store = kv.KVStore(member)
        result = body(store, saved, 1)
        store.close()
        return result

    spec = replace(unshaped({"east": 1}), rounds_before=5)
    ((before, values, state),) = by_all_workers(LocalCluster(spec), act)
    assert (before, state["geomx"]["step"]) == (5, 5)
    assert_same(values, alone(make, seed, 1), NEAR)  # with the momentum of the job, which is 0


def test_the_last_one_of_two_checkpoints_counts() -> None:
    def body(store: kv.KVStore) -> list[int]:
        net, made = network(), []
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        for step in (7, 1):
            optimizer.load_state_dict({**optimizer.inner.state_dict(), "geomx": {"step": step}})
            made.append(optimizer.made)
        return made

    assert everyone(body, {"east": 1}) == [[8, 2]]
