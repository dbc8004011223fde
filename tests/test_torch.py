"""PyTorch's optimizer: training equals training alone, under every policy; refusals."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from geomx import _core, kv
from geomx.errors import ConfigError, GeomxError, NodeLost
from geomx.frameworks import tensors
from geomx.kv.local import LocalCluster, unshaped
from geomx.plugin.parts import optimizer_text
from tests.strangers import install

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'geomx[torch]'")

import geomx.torch
from geomx.torch.exchange import TensorExchange, on_host
from geomx.torch.numbers import translated
from tests.torch_laws import (
    CLASSES,
    FEATURES,
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
    shared,
    train,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_four_workers_equal_one_with_the_whole_batch(name: str, seed: int) -> None:
    make = OPTIMIZERS[name]
    expected = alone(make, seed)
    assert np.abs(expected[0] - alone(make, seed, 0)[0]).max() > 0.01  # training has an effect
    for values in everyone(shared(make, seed)):
        assert_same(values, expected, NEAR)


@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
@pytest.mark.parametrize("epsilon", [1e-8, 1e-3])
def test_adam_with_small_gradients_equals_pytorchs(kind: str, epsilon: float, seed: int) -> None:
    """With gradients as small as epsilon, the term to which epsilon is added matters."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(400, generator=generator).requires_grad_()
    ours = weight.detach().numpy().copy()
    sizes = 10 ** torch.empty(400).uniform_(-10, 0, generator=generator)
    rate = 0.1
    theirs = getattr(torch.optim, kind)(
        [weight], lr=rate, eps=epsilon, weight_decay=0.01 * (kind == "AdamW")
    )
    native = _core.Optimizer(optimizer_text(translated(theirs, {})), 0)
    for step in range(8):
        gradient = sizes * torch.randn(400, generator=generator)
        native.update(ours, gradient.numpy())
        weight.grad = gradient
        theirs.step()
        apart = np.abs(ours - weight.detach().numpy()).max()
        assert apart <= 1e-5 * rate * (step + 1) + 1e-6, (seed, step)


@pytest.mark.parametrize("options", [{"update": "worker"}, {"overlap": False}], ids=str)
def test_four_workers_equal_one_with_every_option(options: dict[str, Any], seed: int) -> None:
    make = OPTIMIZERS["adam"]
    for values in everyone(shared(make, seed, **options)):
        assert_same(values, alone(make, seed), NEAR)


def test_workers_can_run_any_optimizer_and_schedule(seed: int) -> None:
    def decaying(optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def loop(optimizer: Any, net: Any, inputs: Any, targets: Any) -> list[np.ndarray]:
        schedule = decaying(optimizer)
        for _ in range(4):
            values = train(optimizer, net, inputs, targets, 1)
            schedule.step()
        return values

    net = network()
    expected = loop(torch.optim.RMSprop(net.parameters(), lr=0.02), net, *data(seed))

    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        inner = torch.optim.RMSprop(net.parameters(), lr=0.02)
        optimizer = geomx.torch.Optimizer(inner, net, update="worker", store=store)
        share = slice(store.global_rank, None, store.num_all_workers)
        return loop(optimizer, net, *(each[share] for each in data(seed)))

    for values in everyone(body):
        assert_same(values, expected, NEAR)


@pytest.mark.needs("hfa")
def test_hfa_in_every_step_with_sgd_equals_the_whole_batch(seed: int) -> None:
    for values in everyone(shared(SGD, seed), sync=("hfa", {"k1": 1, "k2": 1})):
        assert_same(values, alone(SGD, seed), NEAR)


@pytest.mark.needs("hfa")
def test_hfa_averages_local_steps(seed: int) -> None:
    """Three local steps with momentum, then the mean: a reference, and the store."""
    make, count = OPTIMIZERS["momentum"], 3
    inputs, targets = data(seed)
    locally = []
    for rank in range(4):
        net = network()
        share = slice(rank, None, 4)
        locally.append(train(make(net.parameters()), net, inputs[share], targets[share], count))
    expected = [np.mean(arrays, axis=0) for arrays in zip(*locally, strict=True)]
    for values in everyone(
        shared(make, seed, count, steps=count), sync=("hfa", {"k1": 10, "k2": 10})
    ):
        assert_same(values, expected, NEAR)


def test_third_party_policies_are_followed(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An example with a plain outer step after every local one is the mean of all workers."""
    source = ROOT / "examples" / "plugins" / "outer" / "geomx_outer.py"
    install(tmp_path, "geomx_outer", source.read_text(encoding="utf-8"), monkeypatch)
    sync = ("outer", {"h": 1, "outer_lr": 1.0, "momentum": 0.0})
    for values in everyone(shared(SGD, seed), sync=sync):
        assert_same(values, alone(SGD, seed), NEAR)


@pytest.mark.needs("bisparse", "p3")
@pytest.mark.parametrize("update", ["servers", "worker"])
def test_accelerators_apply_to_pytorch(update: str, seed: int) -> None:
    """WAN traffic is sparse, and all workers have the same trained model."""

    def body(store: kv.KVStore) -> tuple[float, list[np.ndarray]]:
        net = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, 400), torch.nn.Tanh(), torch.nn.Linear(400, CLASSES)
        )
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, update=update, store=store)
        inputs, targets = data(seed)
        before = torch.nn.functional.cross_entropy(net(inputs), targets).item()
        values = train(optimizer, net, inputs, targets, 20)
        return before - torch.nn.functional.cross_entropy(net(inputs), targets).item(), values

    results = everyone(body, accel=["bisparse", "p3"])
    assert min(gain for gain, _ in results) > 0.1
    for _, values in results[1:]:
        assert_same(values, results[0][1], 1e-6)


@pytest.mark.needs("esync")
def test_esync_lets_fast_workers_make_more_steps() -> None:
    def body(store: kv.KVStore) -> tuple[int, list[np.ndarray]]:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, steps=6, store=store)
        made = 0
        while not optimizer.done:
            if store.global_rank == 3:
                time.sleep(0.1)
            train(optimizer, net, *data(0), 1)
            made += 1
        return made, [value.numpy().copy() for value in net.state_dict().values()]

    results = everyone(body, sync=("esync", {}))
    steps = [made for made, _ in results]
    assert 6 <= steps[3] < min(steps[:3])
    for _, values in results[1:]:
        assert_same(values, results[0][1], 0.0)


@pytest.mark.needs("mixedsync")
def test_asynchronous_parties_learn() -> None:
    def body(store: kv.KVStore) -> float:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        inputs, targets = data(0)
        before = torch.nn.functional.cross_entropy(net(inputs), targets).item()
        train(optimizer, net, inputs, targets, 30)
        return before - torch.nn.functional.cross_entropy(net(inputs), targets).item()

    assert min(everyone(body, sync=("mixedsync", {}))) > 0.1
    with pytest.raises(ConfigError, match="updates on the global servers"):
        everyone(shared(SGD, 0, update="worker"), {"east": 1}, ("mixedsync", {}))


def test_parameter_groups_have_their_own_learning_rates(seed: int) -> None:
    def make(parameters: Any) -> Any:
        first, *others = parameters
        return torch.optim.SGD(
            [{"params": others}, {"params": [first], "lr": 0.3, "weight_decay": 0.5}],
            lr=0.1, weight_decay=0.1,
        )  # fmt: skip

    for values in everyone(shared(make, seed), {"east": 2}):
        assert_same(values, alone(make, seed), NEAR)


def test_several_backward_passes_accumulate(seed: int) -> None:
    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, passes=2, store=store)
        inputs, targets = data(seed)
        for _ in range(4):
            for half in range(2):
                share = slice(2 * half + store.global_rank, None, 4)
                loss = torch.nn.functional.cross_entropy(net(inputs[share]), targets[share])
                (loss / 2).backward()
            optimizer.step()
        return [value.numpy().copy() for value in net.state_dict().values()]

    for values in everyone(body, {"east": 1, "west": 1}):
        assert_same(values, alone(SGD, seed), NEAR)


# ---- overlap ----


class Recorder(TensorExchange):
    """Records pushes and pulls in order."""

    seen: list[tuple[str, int]]

    def push(self, key: int, array: Any, **options: Any) -> None:
        self.seen.append(("push", key))
        super().push(key, array, **options)

    def pull(self, key: int, out: Sequence[Any], *, priority: int = 0) -> None:
        self.seen.append(("pull", key))
        super().pull(key, out, priority=priority)


def test_gradients_are_pushed_during_backward_and_layers_wait_for_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(Recorder, "seen", seen, raising=False)
    monkeypatch.setattr("geomx.torch.exchange.TensorExchange", Recorder)
    net = network()

    def body(store: kv.KVStore) -> None:
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        inputs, targets = data(0)
        torch.nn.functional.cross_entropy(net(inputs), targets).backward()
        assert [what for what, _ in seen[4:]] == ["push"] * 4  # before step is called
        assert {key for _, key in seen[4:6]} == {2, 3}  # the last layer's first
        optimizer.step()
        del seen[:]
        hidden = net[0](inputs)
        assert seen == [("pull", 0), ("pull", 1)]
        net[2](net[1](hidden))
        assert seen[2:] == [("pull", 2), ("pull", 3)]

    everyone(body, {"east": 1})


def test_a_layer_waits_for_its_own_values_only(seed: int) -> None:
    """The last layer's gradients are delayed until the other worker's first layer has finished."""
    gone_on = threading.Event()
    behind: list[bool] = []
    inputs, targets = data(seed)

    def patient(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        torch.nn.functional.cross_entropy(net(inputs), targets).backward()
        optimizer.step()
        hidden = net[0](inputs)  # would never return if it waited for all values
        last = next(net[2].parameters())
        before = last.detach().clone()
        gone_on.set()
        net[2](net[1](hidden))
        behind.append(torch.equal(last, before))
        return [value.numpy().copy() for value in net.state_dict().values()]

    def late(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        named = dict(net.named_parameters())
        names = list(named)
        store.init(names, [each.detach() for each in named.values()])
        torch.nn.functional.cross_entropy(net(inputs), targets).backward()
        gradients = {name: each.grad for name, each in named.items()}
        for name in names[:2]:
            store.push(name, gradients[name])
        assert gone_on.wait(30), "the first layer waited for the last one's values"
        for name in names[2:]:
            store.push(name, gradients[name])
        return list(store.pull(names))

    def body(store: kv.KVStore) -> list[np.ndarray]:
        return (late if store.global_rank else patient)(store)

    for values in everyone(body, {"east": 1, "west": 1}):
        assert_same(values, alone(SGD, seed, 1), NEAR)
    assert behind == [False]


class Attention(torch.nn.Module):
    """Attention that uses the parameters of a module without calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(FEATURES, 8)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.free = torch.nn.Parameter(torch.zeros(8))

    def forward(self, inputs: Any) -> Any:
        hidden = self.embed(inputs)[None]
        attended, _ = self.attention(hidden, hidden, hidden)
        return attended[0] + self.free


def test_parameters_of_modules_that_are_never_called_are_awaited(seed: int) -> None:
    """Training equals training alone, which requires all values of the current step."""

    def make() -> Any:
        torch.manual_seed(3)
        return Attention()

    lock = threading.Lock()

    def body(store: kv.KVStore | None = None) -> list[np.ndarray]:
        with lock:
            net = make()
        optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.5)
        inputs, _ = data(seed)
        if store is not None:
            optimizer = geomx.torch.Optimizer(optimizer, net, store=store)
        for _ in range(5):
            optimizer.zero_grad()
            net(inputs).square().mean().backward()
            optimizer.step()
        return [value.numpy().copy() for value in net.state_dict().values()]

    for values in everyone(body, {"east": 1, "west": 1}):
        assert_same(values, body(), NEAR)


def test_using_a_parameter_before_its_value_has_arrived_is_an_error() -> None:
    """No module is called here, so nothing has waited for the value."""

    def body(store: kv.KVStore) -> None:
        net = torch.nn.ParameterList([torch.ones(3)])
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        net[0].square().sum().backward()
        optimizer.step()
        with pytest.raises(GeomxError, match="0 was used before its value arrived"):
            net[0].square().sum().backward()

    everyone(body, {"east": 1})


def test_frozen_parameters_are_the_first_workers(seed: int) -> None:
    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network(seed=1 + store.global_rank)
        net[0].requires_grad_(False)
        optimizer = geomx.torch.Optimizer(SGD(net[2].parameters()), net, store=store)
        return train(optimizer, net, *data(seed), 2)

    net = network()
    expected = train(SGD(net[2].parameters()), net, *data(seed), 2)
    for values in everyone(body, {"east": 1, "west": 1}):
        assert_same(values, expected, NEAR)


def test_tensors_move_without_copies() -> None:
    tensor = torch.arange(6, dtype=torch.float32, requires_grad=True)
    assert on_host(tensor).ctypes.data == tensor.data_ptr()
    strange = torch.arange(6, dtype=torch.float64).view(2, 3).t()
    assert np.array_equal(on_host(strange), [0, 3, 1, 4, 2, 5])
    with pytest.raises(GeomxError, match="keys are dense"):
        on_host(torch.eye(3).to_sparse())

    def body(store: kv.KVStore) -> None:
        exchange = TensorExchange(store.member.loop, copy=False)
        store.use(exchange)
        store.init("w", np.zeros((2, 3)))
        key = store.entry("w").key
        for target in (torch.empty(2, 3), torch.empty(3, 2, dtype=torch.float64).t()):
            exchange.push(key, torch.arange(6.0).view(2, 3))  # the only reference
            exchange.pull(key, [target])
            assert torch.equal(target.float(), torch.arange(6.0).view(2, 3))

    everyone(body, {"east": 1})


@pytest.mark.parametrize("type_", [torch.float32, torch.bfloat16], ids=str)
def test_tensors_on_a_device_use_its_stage(type_: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the processor's stage, so that the test works on every machine."""
    streams: list[int] = []
    fill = tensors.fill

    def filled(loop: _core.Loop, key: int, target: Any, stream: int) -> None:
        streams.append(stream)
        fill(loop, key, target, stream)

    monkeypatch.setattr(tensors, "fill", filled)
    monkeypatch.setattr("geomx.live.torch_exchange.staged", lambda _: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7))
    _exchange_values(torch.arange(6).view(2, 3).to(type_))
    assert streams == [7]


@pytest.mark.skipif(not torch.cuda.is_available() or len(_core.devices()) == 1, reason="no device")
def test_training_on_a_device_equals_training_on_the_processor(seed: int) -> None:
    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network().cuda()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        inputs, targets = (each.cuda() for each in data(seed))
        for _ in range(4):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(inputs), targets).backward()
            optimizer.step()
        return [value.cpu().numpy() for value in net.state_dict().values()]

    _exchange_values(torch.arange(6.0).view(2, 3).cuda())
    for values in everyone(body, {"east": 1, "west": 1}):
        assert_same(values, alone(SGD, seed), 1e-3)


def _exchange_values(tensor: Any) -> None:
    """Check that the sum in a job of one worker equals its push."""

    def body(store: kv.KVStore) -> None:
        exchange = TensorExchange(store.member.loop, copy=False)
        store.use(exchange)
        store.init("w", np.zeros(tensor.shape))
        key, target = store.entry("w").key, torch.zeros_like(tensor)
        version = target._version
        exchange.push(key, tensor)
        exchange.pull(key, [target])
        assert torch.equal(target, tensor)
        assert target._version > version

    everyone(body, {"east": 1})


# ---- refusals ----


def test_invalid_calls_are_errors() -> None:
    def body(store: kv.KVStore) -> None:
        net = network()
        inputs, targets = data(0)

        def backward() -> None:
            torch.nn.functional.cross_entropy(net(inputs), targets).backward()

        with pytest.raises(GeomxError, match="not the model's"):
            geomx.torch.Optimizer(SGD([torch.zeros(3)]), net, store=store)
        with pytest.raises(ConfigError, match="passes"):
            geomx.torch.Optimizer(SGD(net.parameters()), net, passes=0, store=store)
        with pytest.raises(ConfigError, match="servers or worker"):
            geomx.torch.Optimizer(SGD(net.parameters()), net, update="x", store=store)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="update='worker'"):
            geomx.torch.Optimizer(torch.optim.Adagrad(net.parameters()), net, store=store)
        inner = SGD(net.parameters())
        optimizer = geomx.torch.Optimizer(inner, net, steps=3, store=store)
        assert (optimizer.rank, optimizer.workers) == (0, 1)
        with pytest.raises(GeomxError, match="trains once"):
            geomx.torch.Optimizer(inner, net, store=store)
        with pytest.raises(GeomxError, match="load the model before"):
            net.load_state_dict(network().state_dict())
        with pytest.raises(GeomxError, match=r"call closure\(\) and then step\(\)"):
            optimizer.step(lambda: 0.0)
        with pytest.raises(GeomxError, match="before wrapping"):
            optimizer.add_param_group({"params": []})

        backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
        with pytest.raises(GeomxError, match="overlap=False"):
            optimizer.step()
        with pytest.raises(GeomxError, match="passes=2"):
            backward()

    everyone(body, {"east": 1})


@pytest.mark.needs("esync")
def test_a_policy_that_plans_steps_needs_their_number() -> None:
    with pytest.raises(ConfigError, match=r"while not optimizer\.done"):
        everyone(shared(SGD, 0), {"east": 1}, ("esync", {}))


def test_a_changed_rate_and_an_extra_step_are_errors() -> None:
    def body(store: kv.KVStore) -> None:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, steps=2, store=store)
        train(optimizer, net, *data(0), 1)
        assert not optimizer.done
        optimizer.param_groups[0]["lr"] = 0.2
        with pytest.raises(GeomxError, match="update='worker'"):
            train(optimizer, net, *data(0), 1)
        optimizer.param_groups[0]["lr"] = 0.1
        optimizer.step()
        assert optimizer.done
        with pytest.raises(GeomxError, match="last step"):
            optimizer.step()

    everyone(body, {"east": 1})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: torch.optim.SGD(p, lr=1, momentum=0.9, dampening=0.5), "dampening"),
        (lambda p: torch.optim.SGD(p, lr=1, maximize=True), "maximize"),
        (
            lambda p: torch.optim.SGD(p, lr=1, momentum=0.9, nesterov=True, weight_decay=1),
            "nesterov",
        ),
        (lambda p: torch.optim.Adam(p, amsgrad=True), "amsgrad"),
        (torch.optim.Adagrad, "Adagrad"),
    ],
)
def test_options_that_servers_do_not_support_are_refused(make: Make, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        translated(make([torch.zeros(2, requires_grad=True)]), {})


def test_a_lost_worker_is_named_by_all_waiting_workers() -> None:
    cluster = LocalCluster(unshaped({"east": 1, "west": 1}))
    stores = [kv.KVStore(member) for member in cluster.workers]
    nets = [network(), network()]
    with ThreadPoolExecutor(2) as pool:
        first, _ = pool.map(
            lambda net, store: geomx.torch.Optimizer(SGD(net.parameters()), net, store=store),
            nets,
            stores,
        )
    inputs, targets = data(0)
    torch.nn.functional.cross_entropy(nets[0](inputs), targets).backward()
    first.step()
    began = time.monotonic()
    stores[1].member.loop.close()
    with pytest.raises(NodeLost, match="west/worker0"):
        nets[0](inputs)
    assert time.monotonic() - began < 5
    cluster.close()
