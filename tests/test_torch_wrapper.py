"""`geomx.torch.Optimizer` is an optimizer of PyTorch: its hooks, and all other public names."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from geomx import kv
from geomx.errors import ConfigError, GeomxError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'geomx[torch]'")

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

TYPES = {"OptimizerPreHook", "OptimizerPostHook"}
EVERY_WAY = pytest.mark.parametrize(
    ("sync", "options"),
    [
        (("fsa", {}), {}),
        (("fsa", {}), {"update": "worker"}),
        pytest.param(("hfa", {}), {}, marks=pytest.mark.needs("hfa")),
    ],
    ids=str,
)


def in_a_job(act: Callable[[Any, Any], None], sync: Any = ("fsa", {}), **options: Any) -> None:
    """Call a function with a wrapped optimizer and its model."""

    def body(store: kv.KVStore) -> None:
        net = network()
        act(geomx.torch.Optimizer(SGD(net.parameters()), net, store=store, **options), net)

    everyone(body, {"east": 1}, sync)


def test_every_public_name_of_pytorchs_optimizers_works_or_says_why_not() -> None:
    """A name that a new PyTorch adds fails here until it is decided what it does."""

    def act(optimizer: Any, net: Any) -> None:
        def refused() -> None:
            with pytest.raises(GeomxError, match="before wrapping"):
                optimizer.add_param_group({"params": []})

        uses: dict[str, Callable[[], Any]] = {
            "add_param_group": refused,
            "load_state_dict": lambda: optimizer.load_state_dict(optimizer.state_dict()),
            "profile_hook_step": lambda: optimizer.profile_hook_step(lambda own: None)(optimizer),
            "state_dict": optimizer.state_dict,
            "step": lambda: train(optimizer, net, *data(0), 1),
            "zero_grad": optimizer.zero_grad,
        }
        for name in dir(torch.optim.Optimizer):
            if name.startswith("_") or name in TYPES:
                continue
            if name.startswith("register_"):
                getattr(optimizer, name)(lambda *given: None).remove()
            else:
                uses[name]()
        plain = SGD(net.parameters())
        for name in {name for name in vars(plain) if not name.startswith("_")}:
            assert getattr(optimizer, name) is getattr(optimizer.inner, name), name
        assert "SGD" in repr(optimizer)
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(GeomxError, match=r"save its state_dict\(\)"):
                copied(optimizer)

    in_a_job(act)


@EVERY_WAY
def test_hooks_of_a_step_find_the_parameters_before_and_after_it(
    sync: Any, options: dict[str, Any], seed: int
) -> None:
    def act(optimizer: Any, net: Any) -> None:
        seen: list[tuple[str, np.ndarray]] = []

        def hook(when: str) -> Callable[..., None]:
            def see(own: Any, given: Any, named: Any) -> None:
                assert (own, given, named) == (optimizer, (optimizer,), {})
                seen.append((when, net[0].weight.detach().numpy().copy()))

            return see

        optimizer.register_step_pre_hook(hook("before"))
        after = optimizer.register_step_post_hook(hook("after"))
        values = [net[0].weight.detach().numpy().copy()]
        values += [train(optimizer, net, *data(seed), 1)[0] for _ in range(2)]
        assert [when for when, _ in seen] == ["before", "after"] * 2
        for (_, found), step in zip(seen, (0, 1, 1, 2), strict=True):
            assert np.array_equal(found, values[step])
        after.remove()
        train(optimizer, net, *data(seed), 1)
        assert [when for when, _ in seen[4:]] == ["before"]

    in_a_job(act, sync, **options)


def test_hooks_of_states_are_called_and_may_replace_them() -> None:
    def act(optimizer: Any, net: Any) -> None:
        said: list[str] = []
        optimizer.register_state_dict_pre_hook(lambda own: said.append("saves"))
        optimizer.register_state_dict_post_hook(lambda own, state: {**state, "mine": 6})
        optimizer.register_state_dict_post_hook(lambda own, state: said.append("saved"))
        train(optimizer, net, *data(0), 2)
        state = optimizer.state_dict()
        assert (state["mine"], state["geomx"]["step"], said) == (6, 1, ["saves", "saved"])

        def earlier(own: Any, state: dict[str, Any]) -> dict[str, Any]:
            said.append("loads")
            return {**state, "geomx": {"step": state["mine"]}}

        optimizer.register_load_state_dict_pre_hook(earlier)
        optimizer.register_load_state_dict_pre_hook(lambda *_: said.append("first"), prepend=True)
        optimizer.register_load_state_dict_post_hook(lambda own: said.append(str(own.made)))
        optimizer.load_state_dict(state)
        assert said[2:] == ["first", "loads", "7"]
        assert state["geomx"]["step"] == 1  # what was given is unchanged

    in_a_job(act)


@pytest.mark.parametrize("update", ["servers", "worker"])
def test_loss_scales_are_undone(update: Any, seed: int) -> None:
    def scaled(optimizer: Any, net: Any, inputs: Any, targets: Any) -> list[np.ndarray]:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(inputs), targets)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return [value.numpy().copy() for value in net.state_dict().values()]

    net = network()
    expected = train(SGD(net.parameters()), net, *data(seed), 3)

    def act(optimizer: Any, net: Any) -> None:
        assert_same(scaled(optimizer, net, *data(seed)), expected, NEAR)

    in_a_job(act, update=update, overlap=False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda net: (net, SGD(net.parameters())), "optimizer=Sequential: .*optimizer, model"),
        (lambda net: (SGD(net.parameters()), net.parameters()), "model=generator: .*nn.Module"),
    ],
)
def test_arguments_of_another_kind_are_named(given: Callable[[Any], Any], words: str) -> None:
    def body(store: kv.KVStore) -> None:
        with pytest.raises(ConfigError, match=words):
            geomx.torch.Optimizer(*given(network()), store=store)

    everyone(body, {"east": 1})


@pytest.mark.parametrize(
    ("option", "count", "words"),
    [
        ("steps", 2.5, r"steps=2\.5: must be a whole number"),
        ("steps", "10", "steps='?10'?: must be a whole number"),
        ("steps", 0, "steps=0: must be 1 or more"),
        ("passes", 1.5, r"passes=1\.5: must be a whole number"),
    ],
)
def test_counts_are_whole_numbers(option: Any, count: Any, words: str) -> None:
    def body(store: kv.KVStore) -> None:
        net, given = network(), {option: count}
        with pytest.raises(ConfigError, match=words):
            geomx.torch.Optimizer(SGD(net.parameters()), net, store=store, **given)

    everyone(body, {"east": 1})


@EVERY_WAY
@pytest.mark.parametrize("way", ["group", "list"])
def test_parameters_that_are_added_to_the_wrapped_optimizer_are_refused(
    way: str, sync: Any, options: dict[str, Any]
) -> None:
    """Workers do not exchange them, so that every worker would train its own."""

    def act(optimizer: Any, net: Any) -> None:
        train(optimizer, net, *data(0), 2)
        optimizer.wait()
        net.append(torch.nn.Linear(3, 3))
        added = list(net[3].parameters())
        if way == "group":
            optimizer.inner.add_param_group({"params": added})
        else:
            optimizer.param_groups[0]["params"].extend(added)
        with pytest.raises(GeomxError, match=r"tensor \(3, 3\) was added .*before wrapping"):
            train(optimizer, net, *data(0), 1)

    in_a_job(act, sync, **options)


def test_options_that_were_changed_are_named_with_their_values() -> None:
    def act(optimizer: Any, net: Any) -> None:
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        train(optimizer, net, *data(0), 1)
        schedule.step()
        with pytest.raises(GeomxError, match=r"\(lr of group 0 from 0\.1 to 0\.05\)"):
            train(optimizer, net, *data(0), 1)

    in_a_job(act)
