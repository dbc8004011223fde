"""Options of MXNet's optimizers that change while global servers run the optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from geomx.errors import ConfigError, GeomxError

pytestmark = [pytest.mark.slow, pytest.mark.interpreter]

try:
    from geomx.mxnet import KVStore, mx
    from geomx.mxnet.told import Told
except ConfigError as error:
    pytest.skip(str(error), allow_module_level=True)


def _rate(trainer: Any) -> None:
    trainer.set_learning_rate(0.0)


def _decay(trainer: Any) -> None:
    trainer.optimizer.wd = 1.0


def _momentum(trainer: Any) -> None:
    trainer.optimizer.momentum = 0.5


def _clip(trainer: Any) -> None:
    trainer.optimizer.clip_gradient = 0.1


def _schedule(trainer: Any) -> None:
    trainer.optimizer.lr_scheduler = mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.1)


def _of_one(trainer: Any) -> None:
    trainer.optimizer.param_dict[0].lr_mult = 0.0


def _decay_of_one(trainer: Any) -> None:
    trainer.optimizer.param_dict[1].wd_mult = 0.0


CHANGES = {
    "learning_rate of the optimizer was changed from 0.1 to 0.0 .*lr_scheduler": _rate,
    "wd of the optimizer was changed from 0.001 to 1.0 ": _decay,
    "momentum of the optimizer was changed from 0.9 to 0.5 ": _momentum,
    "clip_gradient of the optimizer was changed from None to 0.1 ": _clip,
    "lr_scheduler of the optimizer was changed from None to FactorScheduler ": _schedule,
    r"lr_mult of \S+_bias was changed from 1.0 to 0.0 ": _of_one,
    r"wd_mult of \S+_weight was changed from 1.0 to 0.0 ": _decay_of_one,
}


@pytest.fixture
def store() -> Iterator[KVStore]:
    """Return a store of one worker."""
    made = mx.kv.create("dist_sync")
    yield made
    made.close()


def trained(
    kvstore: Any, change: Callable[[Any], None] = lambda trainer: None, **options: Any
) -> tuple[Any, Any]:
    """Train six steps; change something before the fourth. Return the trainer and the weights."""
    net = mx.gluon.nn.Dense(1, in_units=2)
    net.initialize(mx.init.One(), force_reinit=True)
    parameters = net.collect_params()
    chosen = {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3, **options.pop("optimizer", {})}
    trainer = mx.gluon.Trainer(parameters, "sgd", chosen, kvstore=kvstore, **options)
    for step in range(6):
        if step == 3:
            change(trainer)
        with mx.autograd.record():
            loss = net(mx.nd.ones((2, 2))).sum()
        loss.backward()
        trainer.step(2)
    return trainer, net.weight.data().asnumpy()


@pytest.mark.parametrize("words", CHANGES)
def test_a_change_that_servers_do_not_notice_is_refused(store: KVStore, words: str) -> None:
    remedy = r"after the first step.*gluon\.Trainer\(\.\.\., update_on_kvstore=False\)"
    with pytest.raises(GeomxError, match=words) as raised:
        trained(store, CHANGES[words])
    assert raised.match(remedy)
    assert isinstance(raised.value, mx.base.MXNetError)


@pytest.mark.parametrize("words", CHANGES)
def test_workers_that_update_notice_changes(store: KVStore, words: str) -> None:
    _, expected = trained("device", CHANGES[words])
    _, found = trained(store, CHANGES[words], update_on_kvstore=False)
    assert np.array_equal(found, expected)


def test_a_schedule_that_was_given_at_the_start_is_no_change(store: KVStore) -> None:
    def scheduled() -> dict[str, Any]:
        return {"lr_scheduler": mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.1)}

    def reads(trainer: Any) -> None:
        assert trainer.learning_rate == 0.1  # of the local schedule, which this may move on
        trainer.optimizer.lr_scheduler(5)

    _, expected = trained("device", optimizer=scheduled())
    _, found = trained(store, reads, optimizer=scheduled())
    assert np.allclose(found, expected, rtol=1e-6)


SCHEDULES = {
    "factor": lambda: mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.1),
    "floor": lambda: mx.lr_scheduler.FactorScheduler(1, 0.5, stop_factor_lr=0.04, base_lr=0.1),
    "steps": lambda: mx.lr_scheduler.MultiFactorScheduler([2, 4], 0.5, base_lr=0.1),
    "warmup": lambda: mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.1, warmup_steps=4),
    "cosine": lambda: mx.lr_scheduler.CosineScheduler(6, base_lr=0.1, final_lr=0.01),
    "poly": lambda: mx.lr_scheduler.PolyScheduler(6, base_lr=0.1),
}


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_schedule_may_be_called_but_not_changed(kind: str) -> None:
    schedule = SCHEDULES[kind]()
    optimizer = mx.optimizer.SGD(lr_scheduler=schedule)
    told = Told(optimizer, "dist_sync")
    for step in range(8):
        schedule(step)
        told.check(0)
    option = "base_lr_orig" if hasattr(schedule, "base_lr_orig") else "base_lr"
    for name in (option, "warmup_final_lr"):
        before = getattr(schedule, name)
        setattr(schedule, name, 0.7)
        with pytest.raises(
            GeomxError, match=rf"^{name} of the optimizer's lr_scheduler was changed"
        ):
            told.check(0)
        setattr(schedule, name, before)
    told.check(0)
    if kind == "steps":
        schedule.step[1] = 5
        with pytest.raises(GeomxError, match=r"^step of .* was changed from \[2, 4\] to \[2, 5\]"):
            told.check(0)


@pytest.mark.parametrize("by_name", [False, True])
def test_servers_may_be_told_again(store: KVStore, by_name: bool) -> None:
    """Also by a script whose Trainer has created its store itself, which is the same one."""

    def tells(trainer: Any) -> None:
        trainer.set_learning_rate(0.0)
        store.set_optimizer(trainer.optimizer)

    _, expected = trained(None, _rate, optimizer={"momentum": 0.0})
    kvstore = "dist_sync" if by_name else store
    _, found = trained(kvstore, tells, optimizer={"momentum": 0.0})
    assert np.allclose(found, expected, rtol=1e-6)


def test_a_process_has_one_store(store: KVStore) -> None:
    assert mx.kv.create("dist_sync") is store
    store.close()
    other = mx.kv.create("dist_sync")
    assert other is not store
    other.close()


def test_async_stores_are_not_told_to_update_on_workers() -> None:
    store = mx.kv.create("dist_async")
    try:
        with pytest.raises(GeomxError, match="wd of the optimizer") as raised:
            trained(store, _decay)
        assert "update_on_kvstore" not in str(raised.value)  # which the Trainer refuses there
    finally:
        store.close()
