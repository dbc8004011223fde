"""workload=torch_transformer: its data, tensors and gradients, and equal results of both modes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx.config.compose import compose
from geomx.errors import ConfigError
from geomx.plugin.registry import Registry
from geomx.runner import execute
from geomx.workloads.prose import ALPHABET, CHARACTERS, prose
from geomx.workloads.transformer import torch_transformer
from geomx.workloads.transformer_config import TransformerConfig
from tests.laws import Run

pytestmark = pytest.mark.slow

needs_torch = pytest.mark.skipif(
    find_spec("torch") is None, reason="torch is not installed: pip install 'geomx[torch]'"
)
Simulate = Callable[..., Run]
SMALL = {"width": 16, "heads": 2, "blocks": 1, "context": 12, "batch_size": 4}


def small(**options: Any) -> Any:
    return Registry.discover().workload("torch_transformer", SMALL | options)


def test_the_text_is_the_same_everywhere() -> None:
    text = prose()
    assert len(text) == CHARACTERS
    assert set(text) <= set(ALPHABET)
    assert text.startswith(
        "the worker keeps the small workers, so the last round sends the tensor."
    )
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == "d6e68f616d81f7331a7559bbbfda80a4675d13bb4ca8fd0ca5395b6e251915f7"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"heads": 3}, "divisor of the width"),
        ({"blocks": 0}, "must be 1 or more"),
        ({"context": 9000}, "less than"),
        ({"device": "tpu"}, "cpu, cuda or cuda:N"),
    ],
    ids=str,
)
def test_invalid_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        small(**options)


def test_sizes_and_times_need_no_torch(tmp_path: Path) -> None:
    """Importing geomx needs no PyTorch either; with numerics, the error names a remedy."""
    program = """
import sys
import geomx, geomx.live.worker
assert "torch" not in sys.modules
sys.modules["torch"] = None
results = geomx.run(["workload=torch_transformer", "numerics=false", "iterations=2"])
assert results.summary["loss"]["final"] is None
for attempt in (
    lambda: geomx.run(["workload=torch_transformer", "iterations=2"]),
    lambda: __import__("geomx.torch"),
):
    try:
        attempt()
    except geomx.ConfigError as error:
        assert "pip install 'geomx[torch]'" in str(error), error
    else:
        raise AssertionError("it was not refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@needs_torch
def test_its_tensors_equal_the_networks_parameters() -> None:
    from geomx.workloads.transformer_model import Transformer

    workload = small()
    network = dict(Transformer(workload.config).named_parameters())
    assert {tensor.name: tensor.shape for tensor in workload.tensors} == {
        name: tuple(parameter.shape) for name, parameter in network.items()
    }


@needs_torch
def test_gradients_equal_the_slope_of_the_loss(seed: int) -> None:
    """By finite differences along a random direction."""
    workload = small()
    model = workload.model(seed)
    keys = range(len(workload.tensors))
    start = [model.get(model.parameters, key) for key in keys]
    model.step(0, 0, 2)
    gradients = [model.get(model.gradients, key) for key in keys]
    draw = np.random.default_rng(seed)
    direction = [draw.standard_normal(value.shape).astype(np.float32) for value in start]
    slope = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True))
    losses = []
    for sign in (1, -1):
        for key in keys:
            model.set(key, start[key] + np.float32(sign * 1e-3) * direction[key])
        losses.append(model.step(0, 0, 2))
    assert (losses[0] - losses[1]) / 2e-3 == pytest.approx(slope, rel=0.02, abs=0.01)


@needs_torch
def test_a_batch_depends_on_its_arguments_only(seed: int) -> None:
    one, other = small().model(seed), small().model(seed)
    losses = [one.step(step, worker, 2) for step in range(2) for worker in range(2)]
    assert len(set(losses)) == 4
    assert other.step(1, 1, 2) == losses[3]
    for key in range(len(one.gradients)):
        assert np.array_equal(one.get(one.gradients, key), other.get(other.gradients, key))


@needs_torch
def test_a_missing_device_is_named() -> None:
    with pytest.raises(ConfigError, match="CUDA devices"):
        small(device="cuda:99").model(0)


@needs_torch
def test_it_learns_the_text(network: Callable[..., dict[str, Any]], simulate: Simulate) -> None:
    run = simulate(network(1, 1), torch_transformer(TransformerConfig()), iterations=60)
    first, *_, last = (row["loss"] for row in run.results.iterations)
    assert first > 3
    assert last < 2
    assert run.results.summary["accuracy"]["final"] > 0.4


@needs_torch
@pytest.mark.parametrize("words", [["+accel=[bisparse,p3]"], ["+sync=hfa", "sync.k1=2"]], ids=str)
def test_both_modes_have_equal_parameters(words: list[str], tmp_path: Path) -> None:
    options = [f"workload.{name}={value}" for name, value in SMALL.items()]
    common = ["workload=torch_transformer", *options, "iterations=6", *words]
    ended = []
    for mode in ("sim", "live"):
        experiment, _ = compose([f"mode={mode}", *common])
        ended.append(execute(experiment, tmp_path / mode))
    simulated, live = ended
    for name, value in simulated.parameters().items():
        assert np.abs(value - live.parameters()[name]).max() <= 1e-4, name
    final = [results.summary["loss"]["final"] for results in ended]
    assert final[0] == pytest.approx(final[1], abs=1e-4)
