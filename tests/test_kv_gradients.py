"""A script that pushes gradients where parameters are exchanged is warned, and others are not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from geomx import kv
from geomx.kv.gradients import ELEMENTS, GradientWarning
from geomx.kv.local import LocalCluster, unshaped
from geomx.workload import Workload

LOOKS = "key 'w1?': .* looks like a gradient, and under sync=hfa workers exchange parameters"


@contextmanager
def script(sync: str = "hfa") -> Iterator[kv.KVStore]:
    """Yield the store of a job of one worker."""
    cluster = LocalCluster(replace(unshaped({"east": 1}), sync=(sync, {})))
    store = kv.KVStore(cluster.workers[0])
    try:
        yield store
    finally:
        store.close()
        cluster.close()


@pytest.mark.parametrize("elements", [ELEMENTS, 2**18])  # small arrays move together
def test_the_first_gradient_is_warned_of(elements: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = [random.standard_normal(elements, np.float32) for _ in range(4)]
    with script() as store:
        store.init(["w", "w1"], values[:2])
        with pytest.warns(GradientWarning, match=LOOKS) as caught:
            for _ in range(2):
                store.pushpull(["w", "w1"], values[2:])
    assert [Path(each.filename).name for each in caught] == [Path(__file__).name]


def test_gradients_of_a_model_are_warned_of_and_its_parameters_are_not(
    tiny: Workload, seed: int
) -> None:
    names = [tensor.name for tensor in tiny.tensors]
    assert max(tensor.elements for tensor in tiny.tensors) >= ELEMENTS

    def train(store: kv.KVStore, gradients: bool) -> None:
        model = tiny.model(seed)
        store.init(names, list(model.parameters))
        for step in range(20):
            model.step(step, 0, 1)
            for key, gradient in enumerate(model.gradients):
                model.set(key, model.parameters[key] - np.float32(0.1) * gradient)
            if gradients or step % 10 == 9:
                store.pushpull(names, list(model.gradients if gradients else model.parameters))

    with script() as store, pytest.warns(GradientWarning, match="store.rhythm"):
        train(store, gradients=True)
    with script() as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        train(store, gradients=False)
    with script("fsa") as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        train(store, gradients=True)


def test_what_tells_nothing_is_not_warned_of(seed: int) -> None:
    random = np.random.default_rng(seed)
    few, zeros = np.ones(ELEMENTS - 1, np.float32), np.zeros(ELEMENTS, np.float32)
    with script() as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        store.init(["few", "zeros", "infinite"], [few, zeros, zeros + 1])
        noise = [random.standard_normal(each.size, np.float32) for each in (few, zeros)]
        store.pushpull(["few", "zeros", "infinite"], [*noise, zeros + np.float32(np.inf)])
