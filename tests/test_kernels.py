"""Results do not depend on vector instructions and threads."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import geomx
from geomx import _core
from geomx.errors import ConfigError
from geomx.kv.local import LocalCluster, unshaped
from geomx.options.parsing import build_options
from geomx.options.schema import RuntimeOptions


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Restore the settings of the process."""
    yield
    _core.use_vector_level(_core.vector_levels()[-1])
    _core.set_threads(1)


def test_levels_have_names() -> None:
    levels = _core.vector_levels()
    assert levels[0] == "portable"
    assert _core.vector_level() == levels[-1] == _core.build_info()["vectors"]
    with pytest.raises(ValueError, match="no vector level mmx"):
        _core.use_vector_level("mmx")


@pytest.mark.parametrize("name", _core.optimizers())
def test_optimizers_have_equal_bits_at_every_level_and_thread_count(name: str) -> None:
    draw = np.random.default_rng(7)
    elements = 300_001  # enough for several threads
    gradients = draw.standard_normal((3, elements), dtype=np.float32)
    found = []
    for threads, level in [(1, "portable"), *((2, level) for level in _core.vector_levels())]:
        _core.use_vector_level(level)
        _core.set_threads(threads)
        weight = np.linspace(-1, 1, elements, dtype=np.float32)
        optimizer = _core.Optimizer(f"{name}\nlearning_rate 0.01\nwd 0.001", 0)
        for gradient in gradients:
            optimizer.update(weight, gradient)
        found.append(weight.tobytes())
    assert len(set(found)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("accel", ["fp16,bisparse", "twobit", "dgt"])
def test_a_run_has_equal_bits_at_every_vector_level(accel: str, tmp_path: Path) -> None:
    found = []
    for level in (_core.vector_levels()[0], _core.vector_levels()[-1]):
        _core.use_vector_level(level)
        words = [f"+accel=[{accel}]", "iterations=3", f"hydra.run.dir={tmp_path / level}"]
        found.append((geomx.run(words).directory / "parameters.npz").read_bytes())
    assert found[0] == found[-1]


@pytest.mark.slow
def test_live_processes_share_the_cores() -> None:
    with pytest.raises(ConfigError, match="threads"):
        build_options(RuntimeOptions, {"threads": 0}, "runtime")
    spec = unshaped({"here": 1})
    members = 3  # without the scheduler, which does not compute
    for asked, got in ((2, 2), (None, max(1, len(os.sched_getaffinity(0)) // members))):
        runtime = dataclasses.replace(spec.runtime, threads=asked)
        cluster = LocalCluster(dataclasses.replace(spec, runtime=runtime))
        try:
            assert _core.threads() == got
        finally:
            cluster.close()
