"""Workers in the central party (``central: {workers: n}``, GeoMX's DMLC_ENABLE_CENTRAL_WORKER),
whose link to the global server is a LAN."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geomx.config.compose import compose
from geomx.plugin.registration import DEFAULT_SYNC
from geomx.plugin.registry import Registry
from geomx.results.prediction import compare
from geomx.runner import execute
from geomx.workload import Workload
from tests.laws import Build, by_hand, close, expected_bytes, same

REGISTRY = Registry.discover()
SYNCS = [plugin.name for plugin in REGISTRY.plugins("sync")]
ACCELERATORS = [plugin.name for plugin in REGISTRY.plugins("accel")]
LOSSLESS = sorted({"p3", "multigps"} & {*ACCELERATORS})


@pytest.fixture
def central(network: Build) -> Build:
    """Return a network whose hub has `hub` workers."""

    def content(hub: int, *workers: int, **options: Any) -> dict[str, Any]:
        made = network(*workers, **options)
        made["central"]["workers"] = hub
        return made

    return content


@pytest.mark.parametrize("counts", [(1, 1), (2, 1, 3)])
def test_full_synchrony_equals_the_reference(
    counts: tuple[int, ...], central: Build, tiny: Workload, simulate: Build, seed: int
) -> None:
    plain = simulate(central(*counts), tiny)
    expected = by_hand(tiny, seed, counts, tiny.iterations)
    assert close(plain.parameters, expected, 1e-5)
    for name in LOSSLESS:
        assert same(plain.parameters, simulate(central(*counts), tiny, accel=[name]).parameters)


@pytest.mark.needs("hfa")
def test_hierarchical_averaging_equals_the_reference(
    central: Build, tiny: Workload, simulate: Build, seed: int
) -> None:
    counts = (2, 1, 3)
    run = simulate(central(*counts), tiny, ("hfa", {"k1": 2, "k2": 2}), iterations=9)
    assert close(run.parameters, by_hand(tiny, seed, counts, 9, 2, 2), 1e-5)


def test_traffic_of_the_central_party_is_lan_traffic(
    central: Build, sized: Build, simulate: Build
) -> None:
    """Its messages to and from the global server do not cross the WAN."""
    workload = sized(300_000, 7)
    run = simulate(central(2, 1, 3), workload, iterations=2)
    once = expected_bytes(workload)
    assert run.bytes["wan_push"] == run.bytes["wan_pull"] == 2 * 2 * once
    assert run.bytes["lan"] == 2 * 2 * (2 + 1 + 3 + 1) * once


@pytest.mark.slow
@pytest.mark.parametrize("accel", [*ACCELERATORS, None])
@pytest.mark.parametrize("sync", SYNCS)
def test_every_plugin_works_with_central_workers(
    sync: str, accel: str | None, central: Build, tiny: Workload, simulate: Build
) -> None:
    """Training learns, and lossless plugins remain lossless."""
    chosen = [accel] if accel else []
    run = simulate(central(2, 1, 1), tiny, (sync, {}), chosen, iterations=30)
    rows = run.results.iterations
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert len({row["worker"] for row in rows}) == 4
    assert run.bytes["wan_push"] > 0
    assert all(np.isfinite(value).all() for value in run.parameters)


@pytest.mark.needs("demo", "powersgd")
def test_a_codec_may_precede_a_linear_one(central: Build, tiny: Workload, simulate: Build) -> None:
    """All parties then encode alike, as their server decodes what arrives."""
    chosen = [
        ("demo", {"side": 8, "kept": 4}),
        ("powersgd", {"min_elements": 1, "rank": 1, "dense_rounds": 0}),
    ]
    run = simulate(central(1, 1, 1), tiny, accel=chosen, iterations=8)
    pushed = [
        row["bytes"]
        for row in run.results.links
        if row["source"].endswith("/server") and "global" in row["target"]
    ]
    assert len(pushed) == 3
    assert len(set(pushed)) == 1


@pytest.mark.needs("mixedsync")
def test_the_final_model_is_that_of_the_last_worker(
    central: Build, tiny: Workload, simulate: Build
) -> None:
    """With asynchronous parties, the hub's worker ends first, before the model is final."""
    run = simulate(central(1, 1, delay_ms=50), tiny, ("mixedsync", {}), iterations=10)
    first, last = run.results.evaluations[-2:]
    ends = [row["end_s"] for row in run.results.iterations]
    assert last["time_s"] == max(ends) == run.results.summary["seconds"]
    assert first["time_s"] < 0.5 * last["time_s"]
    last_worker = run.simulation.workers[run.simulation.experiment.cluster.workers[-1].id]
    assert same(run.parameters, [value.reshape(p.shape) for value, p in zip(
        last_worker.parameters, run.parameters, strict=True)])  # fmt: skip


NETWORK = """
central: {name: hub, workers: 1, uplink_mbps: 2000, downlink_mbps: 2000}
parties:
  east: {workers: 1, uplink_mbps: 2000, downlink_mbps: 2000}
delay_ms: 2
lan: {mbps: 10000, delay_ms: 0.05}
"""


@pytest.mark.slow
@pytest.mark.parametrize("sync", [DEFAULT_SYNC, "mixedsync"])
def test_live(sync: str, tmp_path: Path, seed: int) -> None:
    if sync not in SYNCS:
        pytest.skip(f"not installed: {sync}")
    (tmp_path / "network.yaml").write_text(NETWORK)
    words = [f"sync={sync}", f"network={tmp_path / 'network.yaml'}", "iterations=3"]
    experiment, _ = compose(words, directory=tmp_path / "run")
    sim, live = (
        execute(replace(experiment, mode=mode, seed=seed), tmp_path / mode)
        for mode in ("sim", "live")
    )
    comparison = compare(sim, live)
    for kind in ("wan_push", "wan_pull", "lan"):
        assert sim.summary["bytes"][kind] == live.summary["bytes"][kind], comparison
    if sync == DEFAULT_SYNC:
        assert comparison["parameters"]["max_relative_difference"] <= 1e-4, comparison
    else:
        assert live.evaluations[-1]["time_s"] == max(row["end_s"] for row in live.iterations)
