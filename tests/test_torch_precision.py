"""Numbers that are too large: loss scales, steps that are left out, and half precision."""

from __future__ import annotations

import copy
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from geomx import kv
from geomx.errors import GeomxError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'geomx[torch]'")

import geomx.torch
from tests.test_torch_models import party_of_one  # noqa: F401 (a fixture)
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

# ---- loss scales ----

TOO_LARGE = 2.0**127  # of a loss of about 64 this is an infinity, and for several steps its halves
STEPS = 12


def values_of(net: Any) -> list[np.ndarray]:
    return [value.numpy().copy() for value in net.state_dict().values()]


def scaled(
    optimizer: Any, net: Any, inputs: Any, targets: Any, averages: bool
) -> list[tuple[bool, list[np.ndarray]]]:
    """Train with a scale that is too large; return, per step, whether it was, and the values."""
    scaler = torch.amp.GradScaler("cpu", init_scale=TOO_LARGE, growth_interval=10**6)
    steps = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        before = scaler.get_scale()
        loss = 64 * torch.nn.functional.cross_entropy(net(inputs), targets)
        scaler.scale(loss).backward()
        if averages:
            optimizer.average()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1e9)
        scaler.step(optimizer)
        scaler.update()
        steps.append((scaler.get_scale() < before, values_of(net)))
    return steps


def gentle(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1 / 64, momentum=0.9)


@pytest.mark.parametrize(
    ("averages", "options", "sync"),
    [
        (True, {"update": "worker"}, ("fsa", {})),
        (False, {"update": "worker", "overlap": False}, ("fsa", {})),
        (False, {"overlap": False}, ("fsa", {})),
        pytest.param(
            False, {"steps": STEPS}, ("hfa", {"k1": 1, "k2": 1}), marks=pytest.mark.needs("hfa")
        ),
    ],
    ids=str,
)
def test_steps_that_overflow_change_nothing(
    averages: bool, options: dict[str, Any], sync: Any, seed: int
) -> None:
    """Neither do they keep other workers waiting."""

    def body(store: kv.KVStore) -> Any:
        net = network()
        optimizer = geomx.torch.Optimizer(gentle(net.parameters()), net, store=store, **options)
        share = slice(optimizer.rank, None, optimizer.workers)
        inputs, targets = (each[share] for each in data(seed))
        steps = scaled(optimizer, net, inputs, targets, averages)
        assert optimizer.made == STEPS
        return steps

    first, second = everyone(body, BOTH, sync)
    before = values_of(network())
    together = [large for large, _ in first if large]
    assert 3 <= len(together) <= 9
    for (large, values), (also, others) in zip(first, second, strict=True):
        assert_same(values, others, 0.0)
        if large and also:
            assert_same(values, before, 0.0)
        before = values
    assert np.abs(before[0] - network()[0].weight.detach().numpy()).max() > 0.01
    if averages:  # where both find the same
        net, inputs, targets = network(), *data(seed)
        optimizer = gentle(net.parameters())
        for _ in range(STEPS - len(together)):
            optimizer.zero_grad()
            (64 * torch.nn.functional.cross_entropy(net(inputs), targets)).backward()
            optimizer.step()
        assert_same(before, values_of(net), NEAR)


def test_a_scale_is_not_undone_twice(seed: int) -> None:
    """By the script with `unscale_`, and by the step."""

    def loop(optimizer: Any, net: Any, own: bool) -> list[np.ndarray]:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        inputs, targets = data(seed)
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale(torch.nn.functional.cross_entropy(net(inputs), targets)).backward()
            if own:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        return values_of(net)

    net = network()
    expected = train(SGD(net.parameters()), net, *data(seed), 3)

    def body(store: kv.KVStore, own: bool) -> None:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, overlap=False, store=store)
        assert_same(loop(optimizer, net, own), expected, NEAR)

    for own in (True, False):
        everyone(lambda store, own=own: body(store, own), {"east": 1})


def test_a_step_that_undoes_a_scale_is_no_change_by_the_script(seed: int) -> None:
    """But one by the script is, beside it."""

    def body(store: kv.KVStore, clips: bool) -> None:
        net, scaler = network(), torch.amp.GradScaler("cpu", init_scale=1024.0)
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, overlap=False, store=store)
        inputs, targets = data(seed)
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(torch.nn.functional.cross_entropy(net(inputs), targets)).backward()
            if clips:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    for clips in (False, True):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            everyone(lambda store, clips=clips: body(store, clips), BOTH)
        assert any("gradients were changed between" in str(each.message) for each in told) == clips


# ---- means that are of no use ----


@pytest.mark.parametrize("dropped", [(1, 2), (0,)], ids=str)
def test_all_workers_may_leave_a_step_out_after_the_mean(
    dropped: tuple[int, ...], seed: int
) -> None:
    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        inner = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        optimizer = geomx.torch.Optimizer(inner, net, update="worker", steps=5, store=store)
        share = slice(optimizer.rank, None, optimizer.workers)
        inputs, targets = (each[share] for each in data(seed))
        for step in range(5):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(inputs), targets).backward()
            optimizer.average()
            if step not in dropped:
                optimizer.step()
        assert optimizer.made == 5
        assert optimizer.done
        return values_of(net)

    net = network()
    plain = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    expected = train(plain, net, *data(seed), 5 - len(dropped))
    for values in everyone(body, BOTH):
        assert_same(values, expected, NEAR)


def test_a_mean_that_is_neither_used_nor_dropped_is_an_error(seed: int) -> None:
    def body(store: kv.KVStore) -> None:
        net = network()
        optimizer = geomx.torch.Optimizer(
            SGD(net.parameters()), net, update="worker", steps=1, store=store
        )
        inputs, targets = data(seed)
        torch.nn.functional.cross_entropy(net(inputs), targets).backward()
        optimizer.average()
        with pytest.raises(GeomxError, match=r"between optimizer\.average\(\) and .*zero_grad\(\)"):
            torch.nn.functional.cross_entropy(net(inputs), targets).backward()
        assert not optimizer.done
        optimizer.zero_grad()
        assert optimizer.done
        with pytest.raises(GeomxError, match="the last step has been made"):
            torch.nn.functional.cross_entropy(net(inputs), targets).backward()

    everyone(body, {"east": 1})


# ---- half precision ----


@pytest.mark.needs("hfa")
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_the_mean_of_equal_models_in_half_precision_is_that_model(kind: Any) -> None:
    """Of three workers, each of which sends a third, which half precision would round."""

    def body(store: kv.KVStore) -> tuple[Any, Any]:
        net = network().to(kind)
        before = copy.deepcopy(net.state_dict())
        inner = torch.optim.SGD(net.parameters(), lr=0.0)
        optimizer = geomx.torch.Optimizer(inner, net, store=store)
        for _ in range(2):
            net(data(0)[0].to(kind)).sum().backward()
            optimizer.step()
        return before, net.state_dict()

    for before, after in everyone(body, {"east": 3}, ("hfa", {"k1": 1, "k2": 1})):
        assert all(torch.equal(value, after[name]) for name, value in before.items())


EQUAL = pytest.mark.parametrize(
    ("kind", "size", "parties"),
    [
        (torch.float16, 40000.0, {"east": 1, "west": 1}),
        (torch.bfloat16, 1 / 3, {"east": 1, "west": 1, "north": 1}),
    ],
    ids=str,
)


@EQUAL
def test_the_mean_of_equal_gradients_in_half_precision_is_that_gradient(
    kind: Any, size: float, parties: dict[str, int]
) -> None:
    """Also if their sum is too large for half precision, or is rounded."""
    gradient = torch.full((5,), size, dtype=kind)

    def body(store: kv.KVStore) -> Any:
        net = torch.nn.ParameterList([torch.zeros(5, dtype=kind)])
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, update="worker", store=store)
        (net[0] * gradient).sum().backward()
        optimizer.average()
        mean = net[0].grad.clone()
        optimizer.step()
        return mean

    for mean in everyone(body, parties):
        assert torch.equal(mean, gradient)


@pytest.mark.usefixtures("party_of_one")
@EQUAL
def test_the_mean_over_parties_in_half_precision_is_equal_gradients(
    kind: Any, size: float, parties: dict[str, int]
) -> None:
    def body(store: kv.KVStore) -> Any:
        net = torch.nn.ParameterList([torch.zeros(5, dtype=kind)])
        hook = geomx.torch.PartyHook(net, store)
        gradient = torch.full((5,), size, dtype=kind)
        bucket: Any = SimpleNamespace(
            buffer=lambda: gradient,
            parameters=lambda: [net[0]],
            gradients=lambda: [gradient],
            index=lambda: 0,
            is_last=lambda: True,
        )
        mean = geomx.torch.PartyHook.average(hook, bucket).wait()
        hook.close()
        return mean

    for mean in everyone(body, parties):
        assert torch.equal(mean, torch.full((5,), size, dtype=kind))
