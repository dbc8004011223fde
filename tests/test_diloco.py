"""Laws of DiLoCo: its corners are known algorithms; bytes and times are those of formulas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx.plugin.registry import Registry
from geomx.workload import Workload
from tests.laws import PARTIES, Build, by_hand, close, same
from tests.strangers import install

pytestmark = pytest.mark.needs("diloco")

ROOT = Path(__file__).resolve().parents[1]
PLAIN = {"outer_lr": 1.0, "outer_momentum": 0.0}


@pytest.fixture
def with_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Return the installed plugins and the example with an outer optimizer."""
    source = ROOT / "examples" / "plugins" / "outer" / "geomx_outer.py"
    install(tmp_path / "site", "geomx_outer", source.read_text(encoding="utf-8"), monkeypatch)
    yield Registry.discover()


def outer_steps(
    tiny: Any, seed: int, workers: int, iterations: int, h: int, lr: float, momentum: float
) -> list[np.ndarray]:
    """Reference of DiLoCo: local SGD, then Nesterov's step on the mean change."""
    rate, model = np.float32(tiny.optimizer["learning_rate"]), tiny.model(seed)
    common = [value.copy() for value in model.parameters]
    local = [[value.copy() for value in common] for _ in range(workers)]
    velocity = [np.zeros_like(value) for value in common]
    for step in range(iterations):
        for worker in range(workers):
            for key, value in enumerate(local[worker]):
                model.set(key, value)
            model.step(step, worker, workers)
            for key, gradient in enumerate(model.gradients):
                local[worker][key] -= rate * gradient
        if (step + 1) % h and step + 1 < iterations:
            continue
        for key in range(len(common)):
            change = common[key] - np.mean([each[key] for each in local], axis=0)
            velocity[key] = momentum * velocity[key] + change
            common[key] = common[key] - lr * (change + momentum * velocity[key])
            for each in local:
                each[key] = common[key].copy()
    return common


@pytest.mark.parametrize("counts", PARTIES)
def test_a_plain_outer_step_after_every_step_is_full_synchrony(
    counts: tuple[int, ...], network: Build, tiny: Workload, simulate: Build
) -> None:
    fsa = simulate(network(*counts), tiny)
    run = simulate(network(*counts), tiny, ("diloco", {"h": 1, **PLAIN}))
    assert close(run.parameters, fsa.parameters, 1e-5)
    for kind in ("wan_push", "wan_pull", "lan"):
        assert run.bytes[kind] == fsa.bytes[kind]


@pytest.mark.parametrize("counts", PARTIES)
def test_a_plain_outer_step_is_the_mean_of_local_steps(
    counts: tuple[int, ...], network: Build, tiny: Workload, simulate: Build, seed: int
) -> None:
    run = simulate(network(*counts), tiny, ("diloco", {"h": 3, **PLAIN}), iterations=8)
    assert close(run.parameters, by_hand(tiny, seed, counts, 8, k1=3), 1e-5)
    assert run.results.summary["rounds"] == 3


def test_the_outer_optimizer_is_nesterovs(
    network: Build, tiny: Workload, simulate: Build, seed: int
) -> None:
    options = {"h": 4, "outer_lr": 0.6, "outer_momentum": 0.8}
    run = simulate(network(1, 2), tiny, ("diloco", options), iterations=18)
    assert close(run.parameters, outer_steps(tiny, seed, 3, 18, 4, 0.6, 0.8), 1e-5)


def test_it_equals_the_example_bit_for_bit(
    network: Build, tiny: Workload, simulate: Build, with_example: Registry
) -> None:
    """Its native party policy computes what the example computes in Python."""
    ours, theirs = (
        simulate(network(2, 3), tiny, (name, options), iterations=14, registry=with_example)
        for name, options in (("diloco", {"h": 4}), ("outer", {"h": 4}))
    )
    assert same(ours.parameters, theirs.parameters)
    assert ours.bytes == theirs.bytes
