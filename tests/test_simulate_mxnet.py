"""`geomx simulate` runs scripts of MXNet, whose engine pushes and pulls beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from geomx.errors import ConfigError
from geomx.frameworks.mxnet_loader import load_mxnet
from geomx.live.launcher import run_script
from tests.test_simulate import _sent, _steps, composed, simulated

pytestmark = pytest.mark.slow

try:
    load_mxnet()
except ConfigError as error:
    pytest.skip(str(error), allow_module_level=True)

GLUON = """
import os
import geomx, geomx.mxnet, mxnet as mx
from mxnet import autograd, gluon
store = mx.kv.create("dist_sync")
mx.random.seed(1)
net = gluon.nn.Sequential()
net.add(gluon.nn.Dense(60, activation="relu"), gluon.nn.Dense(20))
net.initialize(mx.init.Xavier())
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9},
                        kvstore=store, update_on_kvstore=UPDATE)
mx.random.seed(2 + store.global_rank)
for step in range(3):
    inputs, wanted = mx.nd.random.normal(shape=(8, 30)), mx.nd.random.normal(shape=(8, 20))
    with autograd.record():
        loss = gluon.loss.L2Loss()(net(inputs), wanted)
    loss.backward()
    trainer.step(16)
    if step == 1 and (child := os.fork()) == 0:  # as a data loader does, while values are under way
        os._exit(0)
    geomx.report(loss=float(loss.mean().asscalar()))
mx.nd.waitall()
"""

IN_ORDER = """
import geomx, geomx.mxnet, mxnet as mx
store = mx.kv.create("dist_sync")
small, large = mx.nd.zeros(10), mx.nd.zeros(250000)
store.init([0, 1], [small, large])
for step in range(2):
    store.push([0, 1], [small + 1, large + 1])
    store.pull([0, 1], [small, large])
    geomx.report(loss=float(small[0].asscalar()))
    geomx.report(loss=float(large[0].asscalar()))
"""

# The script never waits: steps depend on each other through values that are on their way.
RHYTHM = """
import geomx, geomx.mxnet, mxnet as mx
store = mx.kv.create("dist_sync")
values = {"large": mx.nd.ones((50, 50)), "small": mx.nd.ones(20)}
for name, value in values.items():
    store.init(name, value)
for step in (rhythm := store.rhythm(5)):
    for value in values.values():
        value -= 0.125 * (store.global_rank + 1)
    rhythm.exchange(values)
geomx.report(loss=float(values["small"][0].asscalar()))
"""


@pytest.mark.parametrize("update", ["True", "False"])
def test_a_gluon_script_computes_and_sends_the_same_as_when_it_is_launched(
    update: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the optimizer on the global servers, and on the workers."""
    monkeypatch.chdir(tmp_path)
    here = simulated(tmp_path, GLUON.replace("UPDATE", update))
    live = run_script(*composed(tmp_path, (), "live"))
    assert here.parameters().keys() == live.parameters().keys()
    for name, value in live.parameters().items():
        np.testing.assert_array_equal(here.parameters()[name], value)
    assert [row["loss"] for row in here.evaluations] == [row["loss"] for row in live.evaluations]
    assert sorted(_steps(here)) == sorted(_steps(live))
    assert _sent(here) == _sent(live)

    simulated(tmp_path, GLUON.replace("UPDATE", update), where="again")
    for file in ("iterations.csv", "evaluations.csv", "links.csv"):
        assert (tmp_path / "sim" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_a_script_waits_only_for_the_values_that_it_reads(tmp_path: Path) -> None:
    """A value that was pulled first is there while a larger one, pulled second, is on its way."""
    results = simulated(tmp_path, IN_ORDER)
    times_s = [row["time_s"] for row in results.evaluations]
    assert [row["loss"] for row in results.evaluations] == [2, 2, 6, 6]  # sums of two workers
    # The large one takes 0.4 s or more on each of the links that it passes after the small one.
    assert times_s[1] - times_s[0] > 0.8
    assert times_s[3] - times_s[2] > 0.8


@pytest.mark.parametrize(
    "words", [["sync=hfa", "sync.k1=1"], ["sync=diloco", "sync.h=2", "sync.tau=1"]]
)
def test_steps_that_never_wait_are_simulated(words: list[str], tmp_path: Path) -> None:
    """The engine goes on while the script waits for the arrival of an earlier value."""
    results = simulated(tmp_path, RHYTHM, *words)
    if words[0] == "sync=hfa":  # a mean in every step
        assert [row["loss"] for row in results.evaluations] == [1 - 5 * 0.125 * 1.5]
    values = results.parameters().values()
    assert all((value == value.flat[0]).all() for value in values)
