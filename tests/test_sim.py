"""Laws of simulated training: what equals what, how many bytes cross, and how long it takes."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geomx
from geomx import _core
from geomx.plugin import Partitioner, SyncPolicy, cut_evenly
from geomx.registry import Registry
from geomx.workload import Workload

PARTIES = [(1,), (4,), (2, 2), (1, 3), (3, 1, 2)]
FRAME_BYTES = 256 * 1024
EFFICIENCY = 1448 / 1500
Build = Callable[..., Any]


def same(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def close(one: Sequence[np.ndarray], other: Sequence[np.ndarray], tolerance: float) -> bool:
    pairs = zip(one, other, strict=True)
    return all(np.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in pairs)


# ---- one seed, one result ----


@pytest.mark.parametrize(
    "words",
    [
        [],
        pytest.param(
            ["+sync=hfa", "sync.k1=2", "+accel=[dgt,p3]"], marks=pytest.mark.needs("hfa", "dgt", "p3")
        ),
    ],
)
def test_a_seed_repeats_every_byte(
    words: list[str], network_file: Build, tmp_path: Path, seed: int
) -> None:
    network = network_file(1, 2, loss=0.02)
    content = []
    for name, number in (("a", seed), ("b", seed), ("c", seed + 1)):
        directory = tmp_path / name
        run = [f"hydra.run.dir={directory}", f"network={network}", "iterations=4"]
        geomx.run([*words, *run, f"seed={number}"])
        files = "iterations.csv", "links.csv", "parameters.npz"
        content.append({file: (directory / file).read_bytes() for file in files})
    first, again, other = content
    assert first == again
    assert first["iterations.csv"] != other["iterations.csv"]
    assert first["parameters.npz"] != other["parameters.npz"]


def test_accelerators_are_written_down_in_order(network: Build, tiny: Workload, simulate: Build) -> None:
    known = [plugin.name for plugin in Registry.discover().plugins("accel")]
    for accel in (known, known[::-1]):
        run = simulate(network(1), tiny, accel=accel, iterations=1)
        summary = json.loads((run.results.directory / "summary.json").read_text())
        assert [choice["name"] for choice in summary["accel"]] == accel


# ---- full synchrony ----


def by_hand(
    tiny: Any, seed: int, counts: Sequence[int], iterations: int, k1: int = 1, k2: int = 1
) -> list[np.ndarray]:
    """Hierarchical averaging as in a textbook; k1 = k2 = 1 is full synchrony with plain SGD."""
    rate = np.float32(tiny.optimizer["learning_rate"])
    model = tiny.model(seed)
    total, last = sum(counts), iterations - 1
    start = [value.copy() for value in model.parameters]
    local = [[value.copy() for value in start] for _ in range(total)]
    parties = np.split(np.arange(total), np.cumsum(counts)[:-1])
    rounds = 0
    for step in range(iterations):
        for worker in range(total):
            for key, value in enumerate(local[worker]):
                model.set(key, value)
            model.step(step, worker, total)
            for value, gradient in zip(local[worker], model.gradients, strict=True):
                value -= rate * gradient
        if (step + 1) % k1 and step != last:
            continue
        rounds += 1
        groups = parties if rounds % k2 and step != last else [np.arange(total)]
        for group in groups:
            for key in range(len(start)):
                mean = np.mean([local[worker][key] for worker in group], axis=0)
                for worker in group:
                    local[worker][key] = mean.copy()
    return local[0]


@pytest.mark.parametrize("counts", PARTIES)
def test_fsa_is_one_worker_on_the_batches_of_all(
    counts: tuple[int, ...], network: Build, tiny: Any, simulate: Build, seed: int
) -> None:
    model = tiny.model(seed)
    total, rate = sum(counts), np.float32(tiny.optimizer["learning_rate"])
    for step in range(tiny.iterations):
        batches = [model.batch(step, worker, total) for worker in range(total)]
        model.differentiate(np.concatenate(batches))
        for value, gradient in zip(model.parameters, model.gradients, strict=True):
            value -= rate * gradient
    run = simulate(network(*counts), tiny)
    assert close(run.parameters, model.parameters, 1e-6)
    assert close(run.parameters, by_hand(tiny, seed, counts, tiny.iterations), 1e-6)
    assert run.results.summary["rounds"] == tiny.iterations


# ---- HFA ----


@pytest.mark.needs("hfa")
@pytest.mark.parametrize("counts", PARTIES)
def test_hfa_of_one_and_one_is_fsa(
    counts: tuple[int, ...], network: Build, tiny: Workload, simulate: Build
) -> None:
    fsa = simulate(network(*counts), tiny)
    hfa = simulate(network(*counts), tiny, ("hfa", {"k1": 1, "k2": 1}))
    assert close(fsa.parameters, hfa.parameters, 1e-5)
    assert hfa.bytes["wan_push"] == fsa.bytes["wan_push"]


@pytest.mark.needs("hfa")
@pytest.mark.parametrize("counts", PARTIES)
@pytest.mark.parametrize(("k1", "k2", "iterations"), [(2, 3, 12), (3, 2, 7), (2, 2, 1), (1, 4, 6)])
def test_hfa_is_hierarchical_averaging(
    counts: tuple[int, ...],
    k1: int,
    k2: int,
    iterations: int,
    network: Build,
    tiny: Workload,
    simulate: Build,
    seed: int,
) -> None:
    """Also where the last cycle is cut short: the last step always reaches the global server."""
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


# ---- bytes ----


def expected_bytes(workload: Workload, bytes_per_element: int = 4) -> int:
    """What one value of the whole model takes on one link: payload, and 80 bytes per message."""
    total = 0
    for tensor in workload.tensors:
        payload = tensor.elements * bytes_per_element
        total += payload + 80 * max(1, -(-payload // FRAME_BYTES))
    return total


@pytest.mark.parametrize("counts", PARTIES)
def test_no_byte_is_made_or_lost(
    counts: tuple[int, ...], network: Build, sized: Build, simulate: Build
) -> None:
    workload = sized(1, 65_536, 65_537, 1_000_000, 5)
    run = simulate(network(*counts), workload, iterations=3)
    model = expected_bytes(workload)
    assert _core.HEADER_BYTES == 80
    assert run.bytes["wan_push"] == run.bytes["wan_pull"] == 3 * len(counts) * model
    assert run.bytes["lan"] == 3 * 2 * sum(counts) * model
    rows = run.results.links
    assert sum(row["control_bytes"] for row in rows) == run.bytes["control"]
    assert sum(row["bytes"] for row in rows) == sum(run.bytes.values()) - run.bytes["control"]
    assert len(rows) == 2 * (sum(counts) + len(counts))
    assert all(row["kind"] == ("wan" if "hub/" in str(row) else "lan") for row in rows)
    seconds = run.results.summary["seconds"]
    for row in rows:  # nothing leaves faster than the link allows
        mbps = 100 if row["kind"] == "wan" else 10_000
        assert row["bytes"] * 8 / (mbps * 1e6 * EFFICIENCY) <= row["busy_s"] + 1e-3
        assert row["busy_s"] <= seconds


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


class Watch:
    """An observer of events, as a third party would write it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @geomx.hookimpl
    def geomx_events(self, events: Any) -> None:
        events.subscribe(self.seen.extend)

    def arrivals(self, node: str, step: int) -> list[int]:
        """Tensors in the order in which their values of `step` came to `node`."""
        values = [e for e in self.seen if e.kind == "value" and e.node == node]
        return [event.key for event in values if event.round == step + 1]


@dataclass(frozen=True)
class Plain:
    """No options."""


def registry_with(**plugins: tuple[str, Any]) -> Registry:
    """What is installed, and these: name=(kind, instance)."""

    @geomx.hookimpl
    def geomx_register(register: Any) -> None:
        for name, (kind, instance) in plugins.items():
            register(kind, name, Plain, lambda config, built=instance: built)

    registry = Registry.discover()
    registry.ask(types.SimpleNamespace(__name__="stranger", geomx_register=geomx_register))
    return registry


@pytest.mark.needs("p3")
def test_p3_brings_the_first_layers_first(network: Build, sized: Build, simulate: Build) -> None:
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
    # The last layer was pushed first, onto an idle wire; once there is a choice, layers go in order.
    rest = [key for key in first if key != 7]
    assert rest == sorted(rest)


# ---- DGT ----

PATIENT = {"wait_ms": 60_000}


@pytest.mark.needs("dgt")
@pytest.mark.parametrize("options", [{"k": 1.0, "adaptive": False}, {"k": 0.3, "channels": 2}])
def test_dgt_that_waits_on_a_lossless_network_is_fsa(
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
    """With gradients of 1 everywhere the parameters count how often each block was added."""

    def ones(model: Any, chosen: np.ndarray) -> float:
        for gradient in model.gradients:
            gradient[...] = 1
        return 1.0

    monkeypatch.setattr(type(tiny.model(seed)), "differentiate", ones)
    workload = type(tiny)(**{**vars(tiny), "optimizer": {"name": "sgd", "learning_rate": 1.0}})
    dgt = ("dgt", {"block_bytes": 64, "k": 0.3})
    run = simulate(network(1, 1, mbps=1), workload, accel=[dgt], iterations=20)
    counts = run.stats("global_server")
    assert counts["late_slices"] > 0
    assert counts["refused_slices"] == 0
    assert run.simulation.fabric.lost_messages == 0
    absent = 0
    for after, before in zip(run.parameters, tiny.model(seed).parameters, strict=True):
        pushes = 2 * np.ravel(before - after).astype(float)  # of two workers, each counts one half
        assert np.abs(pushes - np.round(pushes)).max() < 1e-4
        assert pushes.max() <= 2 * 20 + 1e-4
        absent += sum(2 * 20 - round(pushes[at]) for at in range(0, len(pushes), 16))
    assert absent >= counts["missing_slices"] - counts["late_slices"]
    assert absent < counts["missing_slices"]


@pytest.mark.needs("dgt")
def test_dgt_sends_less_reliably_as_the_loss_falls(
    network: Build, tiny: Workload, simulate: Build
) -> None:
    """Where every datagram is lost, those that were lost are those that were not reliable."""
    lost = []
    for adaptive in (True, False):
        options = {"block_bytes": 64, "k": 0.9, "adaptive": adaptive}
        run = simulate(
            network(2, loss=0.999), tiny, accel=[("dgt", options)], iterations=60, evaluate_every=60
        )
        lost.append(run.simulation.fabric.lost_messages)
        rows = run.results.iterations
        assert rows[-1]["loss"] < 0.7 * rows[0]["loss"]
    assert lost[0] > 2 * lost[1] > 0


@pytest.mark.needs("dgt")
def test_dgt_learns_over_a_lossy_network(network_file: Build, tmp_path: Path, seed: int) -> None:
    network = network_file(2, 2, loss=0.05)
    run = [f"hydra.run.dir={tmp_path / 'run'}", f"network={network}", f"seed={seed}"]
    results = geomx.run(["+accel=[dgt]", *run, "iterations=100", "evaluate_every=50"])
    assert results.summary["accuracy"]["final"] >= 0.9


# ---- time ----

LAN = {"mbps": 1e7, "delay_ms": 0.0}


@pytest.mark.parametrize("mbps", [20, 400])
@pytest.mark.parametrize("delay_ms", [2, 80])
@pytest.mark.parametrize("tensors", [1, 6])
def test_an_iteration_in_closed_form(
    mbps: float, delay_ms: float, tensors: int, network: Build, sized: Build, simulate: Build
) -> None:  # fmt: skip
    """One worker, one WAN link, equal tensors: pushes one after another, answers overlap with them.

    The first layer's value is pushed, and comes back, last; so an iteration takes the computing,
    every push, one answer, and a round trip.
    """
    from geomx.config import TcpOptions

    elements, forward_s, backward_s = 1_000_000, 0.01, 0.05
    workload = sized(*[elements] * tensors, forward_s=forward_s, backward_s=0.0)
    layers = list(workload.layers)
    layers[-1] = type(layers[-1])("last", forward_s, backward_s)
    workload = type(workload)(**{**vars(workload), "layers": tuple(layers)})
    run = simulate(
        network(1, mbps=mbps, delay_ms=delay_ms, lan=LAN),
        workload,
        iterations=4,
        tcp=TcpOptions(window_bytes=2**40),
    )
    one_s = expected_bytes(workload) / tensors * 8 / (mbps * 1e6 * EFFICIENCY)
    expected_s = tensors * forward_s + backward_s + (tensors + 1) * one_s + 2 * delay_ms / 1e3
    last = run.results.iterations[-1]  # slow start is over
    assert last["end_s"] - last["start_s"] == pytest.approx(expected_s, rel=0.01)
    assert last["compute_s"] == pytest.approx(tensors * forward_s + backward_s, abs=1e-8)


def test_everyone_waits_for_the_slowest(network: Build, sized: Build, simulate: Build) -> None:
    workload = sized(1000, 1000, forward_s=0.1, backward_s=0.2)
    run = simulate(network(2, 1, speed=[(1.0, 0.5), (2.0,)]), workload, iterations=3)
    rows = run.results.iterations
    for iteration in range(3):
        compute = [row["compute_s"] for row in rows if row["iteration"] == iteration]
        assert compute == pytest.approx([0.6, 1.2, 0.3])
    for row in (row for row in rows if 0 < row["iteration"]):
        assert row["end_s"] - row["start_s"] == pytest.approx(1.2, rel=0.1)
        assert row["wait_s"] == pytest.approx(row["end_s"] - row["start_s"] - row["compute_s"])


def test_iterations_follow_each_other(network: Build, tiny: Workload, simulate: Build) -> None:
    run = simulate(network(1, 2), tiny)
    for worker in {row["worker"] for row in run.results.iterations}:
        rows = [row for row in run.results.iterations if row["worker"] == worker]
        assert [row["iteration"] for row in rows] == list(range(tiny.iterations))
        assert all(a["end_s"] == b["start_s"] for a, b in pairwise(rows))
    assert run.results.summary["seconds"] == max(row["end_s"] for row in run.results.iterations)


# ---- strangers ----


class EveryOther(SyncPolicy):
    """A stranger's policy: every other gradient is thrown away."""

    def after_step(self, step: int, steps: int) -> bool:
        return step % 2 == 1


class Rival:
    @geomx.hookimpl
    def geomx_sync_policy(self, cluster: Any) -> SyncPolicy:
        return EveryOther()


class Halves(Partitioner):
    def cut(self, tensor: Any, priority: int, shards: Any) -> Any:
        return [piece for s in shards for piece in cut_evenly(s, max(1, -(-s.elements // 2)))]


class Halver:
    @geomx.hookimpl
    def geomx_partitioner(self, cluster: Any) -> Partitioner:
        return Halves()


def test_strangers_take_part(network: Build, tiny: Any, simulate: Build, seed: int) -> None:
    watch = Watch()
    registry = registry_with(
        every_other=("sync", Rival()), halver=("accel", Halver()), watch=("accel", watch)
    )
    run = simulate(
        network(1, 2), tiny, ("every_other", {}), ["halver", "watch"], registry, iterations=4
    )
    plain = simulate(network(1, 2), tiny, iterations=2).bytes
    slices = 2 * 3  # each of three tensors in two pieces
    assert run.bytes["wan_push"] == plain["wan_push"] + 2 * 2 * (slices - 3) * 80
    assert run.results.summary["sync"] == {"name": "every_other"}
    steps = [event for event in watch.seen if event.kind == "iteration"]
    assert len(steps) == 3 * 4
    assert sorted(watch.arrivals("party1/worker1", 1)) == [0, 1, 2]
    assert all(a.time_s <= b.time_s for a, b in pairwise(steps))


# ---- requests that are wrong ----

UNREACHABLE = {
    "directed": True,
    "nodes": [
        {"id": "g", "kind": "global_server", "party": "hub"},
        {"id": "s", "kind": "server", "party": "far"},
        {"id": "w", "kind": "worker", "party": "far"},
    ],
    "links": [
        {"source": "s", "target": "w", "bandwidth_mbps": 1},
        {"source": "w", "target": "s", "bandwidth_mbps": 1},
        {"source": "s", "target": "g", "bandwidth_mbps": 1},
    ],
}


def test_wrong_requests_from_a_shell(tmp_path: Path) -> None:
    (tmp_path / "unreachable.json").write_text(json.dumps(UNREACHABLE))
    wrong = {
        "sync": ["+sync=hfaa"],
        "k": ["+accel=[dgt]", "accel.dgt.k=1.5"],
        "missing": ["network=missing.yaml"],
        "unreachable": ["network=unreachable.json"],
        "iterations": ["iterations=-1"],
    }
    started = {
        name: subprocess.Popen(
            [sys.executable, "-m", "geomx", *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, words in wrong.items()
    }
    for name, process in started.items():
        out, err = process.communicate(timeout=100)
        assert (process.returncode, out) == (2, ""), name
        assert err.count("\n") == 1, err
        assert "Traceback" not in err
