"""PyTorch's models with geomx: copies, release of memory, frozen and unused parts."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from geomx import kv
from geomx.errors import GeomxError

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'geomx[torch]'")

import geomx.torch
from geomx.torch.answers import sent
from tests.test_leaving import each as on_two_workers
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
    train,
)

pytestmark = pytest.mark.slow

# ---- lifetime ----


def test_a_model_is_freed_with_its_last_reference(seed: int) -> None:
    """Python's cyclic garbage collection is disabled, as there are no cycles."""
    inputs, targets = data(seed)

    def body(store: kv.KVStore) -> list[Any]:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        for _ in range(2):
            torch.nn.functional.cross_entropy(net(inputs), targets).backward()
            optimizer.step()
        assert len(net.state_dict()) == 4  # nothing is pending
        return [weakref.ref(each) for each in (optimizer, net, *net.parameters(), *net)]

    everyone(body, {"east": 1})  # PyTorch's first steps create cycles
    gc.collect()
    gc.disable()
    try:
        (references,) = everyone(body, {"east": 1})
        assert [each() for each in references] == [None] * len(references)
    finally:
        gc.enable()


def test_some_workers_may_compile_the_model(seed: int) -> None:
    inputs, targets = data(seed)

    class Compiled(torch.nn.Module):
        """Has the names of what `torch.compile` returns, which takes seconds to import."""

        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self._orig_mod = inner

    def body(store: kv.KVStore) -> Any:
        net = network()
        model = Compiled(net) if store.global_rank else net
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), model, store=store, overlap=False)
        torch.nn.functional.cross_entropy(net(inputs), targets).backward()
        optimizer.step()
        return [value.numpy() for value in net.state_dict().values()]

    first, second = everyone(body, {"east": 2})
    assert_same(first, second, 0)


def test_copies_of_a_model_do_not_wait(seed: int) -> None:
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
    net.load_state_dict(start)  # without its optimizer


# ---- frozen parameters ----


FSA_AND_HFA = pytest.mark.parametrize(
    ("sync", "options"),
    [
        (("fsa", {}), {}),
        (("fsa", {}), {"update": "worker"}),
        pytest.param(("hfa", {"k1": 1, "k2": 1}), {}, marks=pytest.mark.needs("hfa")),
    ],
    ids=str,
)


@FSA_AND_HFA
def test_parameters_that_are_unfrozen_after_wrapping_are_refused(
    sync: Any, options: dict[str, Any], seed: int
) -> None:
    def body(store: kv.KVStore) -> None:
        net = network()
        net[0].requires_grad_(False)
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store, **options)
        train(optimizer, net, *data(seed), 2)
        net[0].requires_grad_(True)
        with pytest.raises(GeomxError, match=r"0\.weight has a gradient, but was frozen when"):
            train(optimizer, net, *data(seed), 1)
        assert np.array_equal(net[0].weight.detach(), network()[0].weight.detach())

    everyone(body, {"east": 1}, sync)


@FSA_AND_HFA
def test_parameters_may_be_frozen_and_unfrozen_after_wrapping(
    sync: Any, options: dict[str, Any], seed: int
) -> None:
    def gradually(optimizer: Any, net: Any, inputs: Any, targets: Any) -> list[np.ndarray]:
        for frozen in (True, False, True):
            net[0].requires_grad_(not frozen)
            values = train(optimizer, net, inputs, targets, 2)
        return values

    def body(store: kv.KVStore) -> list[np.ndarray]:
        net, (inputs, targets) = network(), data(seed)
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store, **options)
        share = slice(optimizer.rank, None, optimizer.workers)
        return gradually(optimizer, net, inputs[share], targets[share])

    net = network()
    expected = gradually(SGD(net.parameters()), net, *data(seed))
    for values in everyone(body, {"east": 1, "west": 1}, sync):
        assert_same(values, expected, NEAR)


class Constants(torch.nn.Module):
    """A model that holds numbers which are not trained, of types that float32 may round."""

    def __init__(self, seed: int, count: int = 2**24) -> None:
        super().__init__()
        self.net = network(seed)
        self.net[0].requires_grad_(False)
        self.exact = torch.nn.Parameter(torch.tensor([seed / 3, 1e-3], dtype=torch.float64), False)
        self.count = torch.nn.Parameter(torch.tensor([count, -3 * seed]), False)


@pytest.fixture
def party_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make this process the only one of a group, as which all its threads count."""
    monkeypatch.setattr(torch.distributed, "new_group", lambda: None)
    group = {"init_method": f"file://{tmp_path}/meeting", "rank": 0, "world_size": 1}
    torch.distributed.init_process_group("gloo", **group)
    yield
    torch.distributed.destroy_process_group()


def wrap(ddp: bool, model: Any, store: kv.KVStore) -> None:
    if ddp:
        geomx.torch.PartyHook(model, store).close()
    else:
        geomx.torch.Optimizer(SGD(model.parameters()), model, store=store)


@pytest.mark.usefixtures("party_of_one")
@pytest.mark.parametrize("ddp", [False, True])
def test_all_parameters_start_from_the_first_workers(ddp: bool) -> None:
    """Also those that are never exchanged, of which the first keeps what float32 would round."""

    def body(store: kv.KVStore) -> dict[str, Any]:
        model = Constants(1 + store.global_rank)
        wrap(ddp, model, store)
        return model.state_dict()

    start = Constants(1).state_dict()
    for rank, values in enumerate(everyone(body, {"east": 1, "west": 1})):
        for name, value in values.items():
            expected = start[name] if rank == 0 else start[name].float().to(value.dtype)
            assert torch.equal(value, expected), (rank, name)


@pytest.mark.usefixtures("party_of_one")
@pytest.mark.parametrize("ddp", [False, True])
def test_whole_numbers_that_other_workers_cannot_have_are_refused(ddp: bool) -> None:
    def body(store: kv.KVStore) -> None:
        model = Constants(1, 2**24 + 1)
        if store.num_all_workers > 1:
            with pytest.raises(GeomxError, match=r"parameter count has 16777217, .*buffer"):
                wrap(ddp, model, store)
        else:
            wrap(ddp, model, store)
        assert model.count[0] == 2**24 + 1

    everyone(body, {"east": 1, "west": 1})
    everyone(body, {"east": 1})


@pytest.mark.usefixtures("party_of_one")
@pytest.mark.parametrize("ddp", [False, True])
@pytest.mark.parametrize(
    ("values", "refused"),
    [
        (torch.zeros(0, 3), "has no elements: leave it out, or make it a buffer"),
        (
            torch.zeros(2, dtype=torch.complex64),
            "is complex, but .*view_as_real.* make it a buffer",
        ),
    ],
)
def test_parameters_that_no_key_can_have_are_refused_by_name(
    ddp: bool, values: torch.Tensor, refused: str
) -> None:
    def body(store: kv.KVStore) -> None:
        model = network(1)
        model.register_parameter("odd", torch.nn.Parameter(values))
        with pytest.raises(GeomxError, match=f"parameter odd {refused}"):
            wrap(ddp, model, store)

    everyone(body, {"east": 1})


# ---- unused parameters ----


class Branches(torch.nn.Module):
    """A model with a layer that is never used, and one that is used if requested."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.trunk, self.branch, self.never = (torch.nn.Linear(FEATURES, 8) for _ in range(3))
        self.out = torch.nn.Linear(8, CLASSES)
        with torch.no_grad():
            for each in self.parameters():
                each.copy_(torch.randn(each.shape, generator=generator) / 3)

    def forward(self, inputs: Any, branching: bool) -> Any:
        hidden = self.trunk(inputs)
        return self.out(torch.tanh(hidden + self.branch(inputs) if branching else hidden))


def branches(step: int, rank: int) -> bool:
    """In turn, no worker uses the branch, all do, and only the first does."""
    return (False, True, rank == 0)[step % 3]


def loss_of(net: Branches, inputs: Any, targets: Any, step: int, rank: int, workers: int) -> Any:
    share = slice(rank, None, workers)
    outputs = net(inputs[share], branches(step, rank))
    return torch.nn.functional.cross_entropy(outputs, targets[share])


def partly_used(make: Make, seed: int, steps: int, **options: Any) -> Any:
    def body(store: kv.KVStore) -> list[np.ndarray]:
        net, (inputs, targets) = Branches(), data(seed)
        optimizer = geomx.torch.Optimizer(make(net.parameters()), net, store=store, **options)
        for step in range(steps):
            optimizer.zero_grad()
            loss_of(net, inputs, targets, step, optimizer.rank, optimizer.workers).backward()
            optimizer.step()
        return [value.numpy().copy() for value in net.state_dict().values()]

    return body


@pytest.mark.parametrize("name", ["momentum", "adamw"])
@pytest.mark.parametrize("options", [{}, {"overlap": False}, {"update": "worker"}], ids=str)
def test_parameters_that_no_worker_used_are_unchanged(
    name: str, options: dict[str, Any], seed: int
) -> None:
    """Without decay, momentum or a step; those that some used are updated with the mean of all."""
    make, steps = OPTIMIZERS[name], 7
    net, (inputs, targets) = Branches(), data(seed)
    optimizer = make(net.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        sum(loss_of(net, inputs, targets, step, rank, 4) / 4 for rank in range(4)).backward()
        optimizer.step()
    expected = [value.numpy() for value in net.state_dict().values()]
    for values in everyone(partly_used(make, seed, steps, **options)):
        assert_same(values, expected, NEAR)


@pytest.mark.needs("bisparse", "mixedsync", "p3", "tsengine", "twobit")
@pytest.mark.parametrize(
    ("sync", "accel"),
    [("fsa", ["bisparse"]), ("fsa", ["twobit", "p3"]), ("fsa", ["tsengine"]), ("mixedsync", [])],
    ids=str,
)
def test_a_layer_that_is_never_used_is_unchanged_with_every_option(
    sync: str, accel: list[str], seed: int
) -> None:
    start = dict(Branches().named_parameters())
    body = partly_used(OPTIMIZERS["adamw"], seed, 4)
    for values in everyone(body, sync=(sync, {}), accel=accel):
        for value, (name, before) in zip(values, start.items(), strict=True):
            stayed = np.array_equal(value, before.detach().numpy())
            assert stayed == name.startswith("never"), (name, seed)


@pytest.mark.usefixtures("party_of_one")
@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_layers_that_a_party_does_not_use_have_the_mean_under_ddp(name: str, seed: int) -> None:
    """DDP alone leaves them without a gradient, and parties would end with different models."""
    make, steps = OPTIMIZERS[name], 7
    inputs, targets = data(seed)
    net = Branches()
    optimizer = make(net.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        sum(loss_of(net, inputs, targets, step, rank, 2) / 2 for rank in range(2)).backward()
        optimizer.step()
    expected = [value.numpy() for value in net.state_dict().values()]

    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = Branches()
        hook = geomx.torch.PartyHook(net, store)
        ddp: Any = torch.nn.parallel.DistributedDataParallel(net, find_unused_parameters=True)
        ddp.register_comm_hook(hook, geomx.torch.PartyHook.average)
        optimizer = make(net.parameters())
        for step in range(steps):
            optimizer.zero_grad()
            loss_of(ddp, inputs, targets, step, hook.rank, hook.processes).backward()
            optimizer.step()
        hook.close()
        return [value.numpy().copy() for value in net.state_dict().values()]

    for values in everyone(body, {"east": 1, "west": 1}):
        assert_same(values, expected, NEAR)


# ---- clipping ----


def test_the_mean_gradient_can_be_clipped(seed: int) -> None:
    """Four workers that clip the mean equal one that clips the gradient of the whole batch."""
    make, most, steps = OPTIMIZERS["momentum"], 0.05, 4
    inputs, targets = data(seed)

    def body(store: kv.KVStore) -> list[np.ndarray]:
        net = network()
        optimizer = geomx.torch.Optimizer(make(net.parameters()), net, update="worker", store=store)
        share = slice(optimizer.rank, None, optimizer.workers)
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(inputs[share]), targets[share]).backward()
            optimizer.average()
            assert torch.nn.utils.clip_grad_norm_(net.parameters(), most) > most
            optimizer.step()
        return [value.numpy().copy() for value in net.state_dict().values()]

    net = network()
    optimizer = make(net.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(inputs), targets).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), most)
        optimizer.step()
    expected = [value.numpy() for value in net.state_dict().values()]
    for values in everyone(body):
        assert_same(values, expected, NEAR)


def test_the_mean_gradient_needs_updates_on_the_workers() -> None:
    def body(store: kv.KVStore) -> None:
        net = network()
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, store=store)
        with pytest.raises(GeomxError, match="update='worker'"):
            optimizer.average()

    everyone(body, {"east": 1})


@pytest.mark.parametrize("clips", [True, False])
def test_clipping_a_local_gradient_causes_one_warning(clips: bool, seed: int) -> None:
    def body(store: kv.KVStore) -> None:
        net, (inputs, targets) = network(), data(seed)
        optimizer = geomx.torch.Optimizer(SGD(net.parameters()), net, overlap=False, store=store)
        for _ in range(2):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(inputs), targets).backward()
            if clips:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
            optimizer.step()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        everyone(body, {"east": 1, "west": 1})
    about = [each for each in caught if "optimizer.average()" in str(each.message)]
    assert len(about) == 2 * clips  # one per worker


class Gate(torch.nn.Module):
    """One parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self) -> Any:
        return self.weight.sum()


class Gates(torch.nn.Module):
    """A gate that is always used, and one that some passes skip."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes = Gate(), Gate()

    def forward(self, skips: bool) -> Any:
        return self.always() if skips else self.always() + self.sometimes()


@pytest.mark.parametrize("forward", [True, False])
def test_modules_that_a_worker_skips_have_the_mean(forward: bool) -> None:
    """Also where the worker makes no pass at all: it sends the values that it was sent."""

    def body(store: kv.KVStore) -> list[float]:
        net, skips = Gates(), store.global_rank == 0
        sgd = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.5)
        optimizer = geomx.torch.Optimizer(sgd, net, store=store, steps=3)
        for step in range(3):
            optimizer.zero_grad()
            if not (step and skips):
                ((1 + store.global_rank) * net(False)).backward()
            elif forward:
                net(True).backward()
            optimizer.step()
        return [each.item() for each in net.parameters()]

    # Mean -1.5 after the first step; the second worker then moves by 2 + 1 and by 2 + 1.5.
    skipped = -1.5 - 3 / 2 - 3.5 / 2
    used = -1.5 - (3 + 1.5) / 2 - (3.5 + 1.75) / 2 if forward else skipped
    parties = {"east": 1, "west": 1}
    for values in everyone(body, parties, ("hfa", {"k1": 1, "k2": 1})):
        assert values == pytest.approx([used, skipped])


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_parameters_may_be_views_of_one_tensor(name: str, seed: int) -> None:
    """PyTorch counts the writes to all of them together; what a script writes is noticed."""

    def body(store: kv.KVStore) -> list[np.ndarray]:
        net, count = network(), 0
        flat = torch.cat([each.detach().reshape(-1) for each in net.parameters()])
        for module in (net[0], net[2]):
            for each, own in list(module.named_parameters()):
                part = flat[count : count + own.numel()].view(own.shape)
                setattr(module, each, torch.nn.Parameter(part))
                count += own.numel()
        optimizer = geomx.torch.Optimizer(OPTIMIZERS[name](net.parameters()), net, store=store)
        share = slice(optimizer.rank, None, optimizer.workers)
        inputs, targets = data(seed)
        values = train(optimizer, net, inputs[share], targets[share], 4)
        net(inputs)
        with torch.no_grad():
            net[0].bias.mul_(2)
        with pytest.raises(GeomxError, match="bias was changed after its optimizer was wrapped"):
            torch.nn.functional.cross_entropy(net(inputs), targets).backward()
            optimizer.step()
        return values

    for values in everyone(body, {"east": 1}):
        assert_same(values, alone(OPTIMIZERS[name], seed), NEAR)


@pytest.mark.usefixtures("party_of_one")
def test_a_group_of_processes_is_refused_as_it_does_not_leave_in_step() -> None:
    def body(store: kv.KVStore) -> bool:
        hook = geomx.torch.PartyHook(network(), store)
        with pytest.raises(GeomxError, match=r"worker0 cannot leave the job: .* leave in step"):
            store.leave()
        hook.close()
        return store.leaving

    assert on_two_workers(body, ("fsa", {})) == [False, False]


def test_the_keys_that_are_sent_are_asked_for_once() -> None:
    """They are sorted for each answer, and a model may have thousands of parameters."""

    class Asked:
        times = 0

        @property
        def sent(self) -> list[int]:
            self.times += 1
            return [3, 5]

    flights: Any = Asked()
    slots: Any = [SimpleNamespace(key=key) for key in range(8)]
    assert [slot.key for slot in sent(slots, flights)] == [3, 5]
    assert flights.times == 1


@pytest.mark.usefixtures("party_of_one")
def test_parameters_that_are_unfrozen_after_the_hook_are_refused() -> None:
    def body(store: kv.KVStore) -> None:
        net = network()
        net[0].requires_grad_(False)
        hook = geomx.torch.PartyHook(net, store)
        ddp: Any = torch.nn.parallel.DistributedDataParallel(net.requires_grad_(True))
        ddp.register_comm_hook(hook, geomx.torch.PartyHook.average)
        with pytest.raises(Exception, match=r"a parameter \(16, 6\) was frozen"):
            ddp(torch.ones(1, FEATURES)).sum().backward()
        hook.close()

    everyone(body, {"east": 1})
