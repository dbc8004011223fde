"""Helpers for tests of PyTorch: a small model, its data, and concurrent training by all workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from geomx import kv
from geomx.kv.local import LocalCluster, unshaped
from geomx.live.member import Member
from tests.laws import by_all_workers

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'geomx[torch]'")

import geomx.torch

BATCH, FEATURES, CLASSES = 24, 6, 3
NEAR = 1e-4  # for Adam, which divides by roots of small numbers; other errors are a tenth of it
Make = Callable[[Any], Any]
SGD: Make = lambda parameters: torch.optim.SGD(parameters, lr=0.1)  # noqa: E731


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def network(seed: int = 1) -> Any:
    """Return two layers with fixed initial values."""
    generator = torch.Generator().manual_seed(seed)
    net = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 16), torch.nn.Tanh(), torch.nn.Linear(16, CLASSES)
    )
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    return net


def data(seed: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(BATCH, FEATURES, generator=generator)
    return inputs, torch.randint(0, CLASSES, (BATCH,), generator=generator)


def train(optimizer: Any, net: Any, inputs: Any, targets: Any, steps: int) -> list[np.ndarray]:
    """Train on the same batch; return the parameters."""
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(inputs), targets).backward()
        optimizer.step()
    return [value.numpy().copy() for value in net.state_dict().values()]


def alone(make: Make, seed: int, steps: int = 4) -> list[np.ndarray]:
    """Train on the whole batch without geomx; return the parameters."""
    net = network()
    return train(make(net.parameters()), net, *data(seed), steps)


Body = Callable[[kv.KVStore], Any]


def everyone(
    body: Body,
    parties: dict[str, int] | None = None,
    sync: tuple[str, dict[str, Any]] = ("fsa", {}),
    accel: Sequence[str] = (),
) -> list[Any]:
    """Run `body` for every worker of two parties of two concurrently; return the results."""
    chosen = tuple((name, dict[str, Any]()) for name in accel)
    spec = replace(unshaped(parties or {"east": 2, "west": 2}), sync=sync, accel=chosen)
    cluster = LocalCluster(spec)

    def act(member: Member) -> Any:
        store = kv.KVStore(member)
        result = body(store)
        store.close()
        return result

    return by_all_workers(cluster, act)


def shared(make: Make, seed: int, count: int = 4, **options: Any) -> Body:
    """Return a body that trains on the worker's share of the batch, from its own initial model."""

    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network(seed=1 + store.global_rank)
        optimizer = geomx.torch.Optimizer(make(net.parameters()), net, store=store, **options)
        share = slice(optimizer.rank, None, optimizer.workers)
        inputs, targets = data(seed)
        return train(optimizer, net, inputs[share], targets[share], count)

    return body


def assert_same(values: Sequence[np.ndarray], expected: Sequence[np.ndarray], most: float) -> None:
    for value, wanted in zip(values, expected, strict=True):
        assert np.abs(value - wanted).max() <= most


OPTIMIZERS: dict[str, Make] = {
    "sgd": SGD,
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}
