"""Laws of the built-in plugins in simulations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geomx
from geomx.workload import Workload
from tests.laws import (
    PARTIES,
    Build,
    Watch,
    by_hand,
    close,
    counting,
    expected_bytes,
    registry_with,
    same,
)

# ---- HFA ----


@pytest.mark.needs("hfa")
@pytest.mark.parametrize("counts", PARTIES)
def test_hfa_with_k1_and_k2_of_1_equals_fsa(
    counts: tuple[int, ...], network: Build, tiny: Workload, simulate: Build
) -> None:
    fsa = simulate(network(*counts), tiny)
    hfa = simulate(network(*counts), tiny, ("hfa", {"k1": 1, "k2": 1}))
    assert close(fsa.parameters, hfa.parameters, 1e-5)
    assert hfa.bytes["wan_push"] == fsa.bytes["wan_push"]


@pytest.mark.needs("hfa")
@pytest.mark.parametrize("counts", PARTIES)
@pytest.mark.parametrize(("k1", "k2", "iterations"), [(2, 3, 12), (3, 2, 7), (2, 2, 1), (1, 4, 6)])
def test_hfa_equals_hierarchical_averaging(
    counts: tuple[int, ...],
    k1: int,
    k2: int,
    iterations: int,
    network: Build,
    tiny: Workload,
    simulate: Build,
    seed: int,
) -> None:
    """Also with an incomplete last cycle, as the last step always synchronises globally."""
    run = simulate(network(*counts), tiny, ("hfa", {"k1": k1, "k2": k2}), iterations=iterations)
    assert close(run.parameters, by_hand(tiny, seed, counts, iterations, k1, k2), 1e-5)
    assert run.results.summary["rounds"] == -(-iterations // (k1 * k2))


@pytest.mark.needs("hfa")
def test_hfa_bytes(network: Build, sized: Build, simulate: Build) -> None:
    workload = sized(300_000, 7, 70_000)
    fsa = simulate(network(2, 1), workload, iterations=24).bytes
    for k1, k2 in ((2, 3), (4, 1), (1, 4), (3, 4)):
        hfa = simulate(network(2, 1), workload, ("hfa", {"k1": k1, "k2": k2}), iterations=24).bytes
        for direction in ("wan_push", "wan_pull"):
            assert hfa[direction] == pytest.approx(fsa[direction] / (k1 * k2), rel=0.02)
        assert hfa["lan"] == pytest.approx(fsa["lan"] / k1, rel=0.02)


@pytest.mark.needs("hfa")
def test_hfa_starts_from_the_masters_weights(
    network: Build, tiny: Any, simulate: Build, seed: int
) -> None:
    workload = type(tiny)(**{**vars(tiny), "optimizer": {"name": "sgd", "learning_rate": 0.0}})
    run = simulate(network(1, 2), workload, ("hfa", {"k1": 2, "k2": 2}), iterations=5)
    assert close(run.parameters, tiny.model(seed).parameters, 1e-7)


# ---- FP16 ----


@pytest.mark.needs("fp16")
def test_fp16_halves_the_bytes(
    network: Build, tiny: Workload, sized: Build, simulate: Build
) -> None:
    workload = sized(300_000, 7, 70_000, 131_073)
    dense = simulate(network(2, 1), workload, iterations=2).bytes
    half = simulate(network(2, 1), workload, accel=["fp16"], iterations=2).bytes
    assert half["wan_push"] == half["wan_pull"] == 2 * 2 * expected_bytes(workload, 2)
    assert half["lan"] == 2 * 2 * 3 * expected_bytes(workload, 2)
    for kind in ("wan_push", "wan_pull", "lan"):
        assert half[kind] == pytest.approx(dense[kind] / 2, rel=0.02)
    wan = simulate(network(2, 1), workload, accel=[("fp16", {"lan": False})], iterations=2).bytes
    assert wan["lan"] == dense["lan"]

    full, rounded = (
        simulate(network(2, 1), tiny, accel=accel, iterations=20) for accel in ((), ("fp16",))
    )
    assert not same(full.parameters, rounded.parameters)
    assert close(full.parameters, rounded.parameters, 5e-3)


# ---- P3 ----


@pytest.mark.needs("p3")
@pytest.mark.parametrize("prioritise", [True, False])
def test_p3_changes_no_bit(
    prioritise: bool, network: Build, tiny: Workload, simulate: Build
) -> None:
    plain = simulate(network(1, 3), tiny)
    p3 = ("p3", {"slice_elements": 33, "prioritise": prioritise})
    assert same(plain.parameters, simulate(network(1, 3), tiny, accel=[p3]).parameters)


@pytest.mark.needs("p3")
def test_p3_is_not_slower(network: Build, sized: Build, simulate: Build) -> None:
    workload = sized(400_000, 30_000, 100, 900_000, 200_000)
    plain, sliced, first = (
        simulate(network(2, 2, delay_ms=3), workload, accel=accel, iterations=4).results.summary
        for accel in ([], [("p3", {"prioritise": False})], ["p3"])
    )
    means = [run["seconds_per_iteration"]["mean"] for run in (plain, sliced, first)]
    assert means[2] <= means[1] <= means[0]
    assert means[2] < 0.9 * means[0]


@pytest.mark.needs("p3")
def test_p3_delivers_the_first_layers_first(network: Build, sized: Build, simulate: Build) -> None:
    workload = sized(*[50_000] * 8, forward_s=0, backward_s=0)
    orders = []
    for prioritise in (True, False):
        watch = Watch()
        p3 = ("p3", {"slice_elements": 10_000, "prioritise": prioritise})
        registry = registry_with(watch=("accel", watch))
        simulate(network(1), workload, accel=[p3, "watch"], registry=registry, iterations=3)
        orders.append(watch.arrivals("party0/worker0", 1))
    first, sliced = orders
    assert sliced == list(range(8))[::-1]
    # The last layer is pushed first, while the link is idle; priorities apply after that.
    rest = [key for key in first if key != 7]
    assert rest == sorted(rest)


# ---- DGT ----

PATIENT = {"wait_ms": 60_000}


@pytest.mark.needs("dgt")
@pytest.mark.parametrize("options", [{"k": 1.0, "adaptive": False}, {"k": 0.3, "channels": 2}])
def test_dgt_with_a_wait_and_without_loss_equals_fsa(
    options: dict[str, Any], network: Build, tiny: Workload, simulate: Build
) -> None:
    dgt = ("dgt", {"block_bytes": 64, **options, **PATIENT})
    run = simulate(network(1, 3), tiny, accel=[dgt])
    assert same(run.parameters, simulate(network(1, 3), tiny).parameters)
    counts = run.stats("global_server")
    assert (counts["refused_slices"], counts["missing_slices"]) == (0, 0)


@pytest.mark.needs("dgt")
def test_dgt_merges_late_blocks_once(
    network: Build, tiny: Any, simulate: Build, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With gradients of 1, the parameters count how often each block was added."""
    workload = counting(tiny, seed, monkeypatch)
    dgt = ("dgt", {"block_bytes": 64, "k": 0.3})
    run = simulate(network(1, 1, mbps=1), workload, accel=[dgt], iterations=20)
    counts = run.stats("global_server")
    assert counts["late_slices"] > 0
    assert counts["refused_slices"] == 0
    assert run.simulation.fabric.lost_messages == 0
    absent = 0
    for after, before in zip(run.parameters, tiny.model(seed).parameters, strict=True):
        pushes = 2 * np.ravel(before - after).astype(float)  # two workers of weight one half
        assert np.abs(pushes - np.round(pushes)).max() < 1e-4
        assert pushes.max() <= 2 * 20 + 1e-4
        absent += sum(2 * 20 - round(pushes[at]) for at in range(0, len(pushes), 16))
    assert absent >= counts["missing_slices"] - counts["late_slices"]
    assert absent < counts["missing_slices"]


@pytest.mark.needs("dgt")
def test_dgt_sends_fewer_blocks_reliably_as_the_loss_falls(
    network: Build, tiny: Workload, simulate: Build
) -> None:
    """With a packet loss of 1, the lost blocks are those that were not sent reliably."""
    lost = []
    for adaptive in (True, False):
        options = {"block_bytes": 64, "k": 0.9, "adaptive": adaptive}
        run = simulate(
            network(2, loss=0.999), tiny, accel=[("dgt", options)], iterations=60, evaluate_every=60
        )
        lost.append(run.simulation.fabric.lost_messages)
        rows = run.results.iterations
        assert rows[-1]["loss"] < 0.9 * rows[0]["loss"]
    assert lost[0] > 1.2 * lost[1] > 0


@pytest.mark.slow
@pytest.mark.needs("dgt")
def test_dgt_learns_over_a_lossy_network(network_file: Build, tmp_path: Path, seed: int) -> None:
    network = network_file(2, 2, loss=0.05)
    run = [f"hydra.run.dir={tmp_path / 'run'}", f"network={network}", f"seed={seed}"]
    run += ["sim.max_spans=0"]
    results = geomx.run(["+accel=[dgt]", *run, "iterations=100", "evaluate_every=50"])
    assert results.summary["accuracy"]["final"] >= 0.9
