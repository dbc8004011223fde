"""Laws of DiLoCo: its corners are known algorithms; bytes and times are those of formulas."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import geomx
from geomx.errors import PluginError
from geomx.options.schema import SimOptions
from geomx.plugin.registry import Registry
from geomx.plugins.diloco import DiLoCoConfig, DiLoCoPolicy
from geomx.workload import Workload
from tests.guide import documented
from tests.laws import PARTIES, Build, by_hand, close, expected_bytes, registry_with, same
from tests.outer_laws import is_refused, on_tiny
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
    assert close(run.parameters, on_tiny(tiny, seed, 3, 18, options), 1e-5)


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


# ---- fragments and delays ----


@pytest.mark.parametrize(
    ("fragments", "tau", "alpha", "iterations"),
    [
        (1, 0, 0.5, 13),
        (2, 0, 0.0, 17),
        (1, 3, 0.0, 15),
        (3, 2, 0.5, 21),
        (2, 3, 0.9, 4),
        (3, 1, 0.2, 1),
    ],
)
def test_it_equals_streaming_diloco(
    fragments: int, tau: int, alpha: float, iterations: int,
    network: Build, tiny: Workload, simulate: Build, seed: int,
) -> None:  # fmt: skip
    options = {
        "h": 4, "fragments": fragments, "tau": tau, "alpha": alpha, "outer_lr": 0.8,
        "outer_momentum": 0.6,
    }  # fmt: skip
    run = simulate(network(1, 2), tiny, ("diloco", options), iterations=iterations)
    assert close(run.parameters, on_tiny(tiny, seed, 3, iterations, options), 1e-5)


def wan_by_iteration(run: Any, steps: int) -> list[int]:
    """Return the bytes that the first party sent over the WAN within each window of `steps`.

    A window begins with the step whose backward pass may send what is due, the last of a period.
    """
    rows = [r for r in run.results.iterations if r["worker"] == "party0/worker0"]
    starts = [*(row["start_s"] for row in rows[steps - 1 :: steps]), rows[-1]["end_s"] + 1e9]
    sends = [
        (start_ns / 1e9, about["bytes"])
        for node, peer, category, kind, about, start_ns, _ in run.simulation.fabric.spans()
        if category == "send" and kind == "push" and node == server_of(run)
    ]
    return [
        sum(size for at_s, size in sends if begin <= at_s < end) for begin, end in pairwise(starts)
    ]


def server_of(run: Any) -> int:
    return run.simulation.experiment.cluster.node("party0/server").id


@pytest.mark.parametrize("fragments", [2, 4])
def test_the_peak_of_traffic_is_one_fragment(
    fragments: int, network: Build, sized: Build, simulate: Build
) -> None:
    """In every h / fragments steps, a party sends 1 / fragments of the model."""
    workload = sized(*[50_000] * 8, forward_s=0.01, backward_s=0.02)
    peaks = []
    for count in (1, fragments):
        options = {"h": 8, "fragments": count, "tau": 1}
        more = {"iterations": 41, "sim": SimOptions()}  # with its trace
        run = simulate(network(1, 1), workload, ("diloco", options), **more)
        peaks.append(max(wan_by_iteration(run, 8 // fragments)[:-1]))
    assert peaks[1] == pytest.approx(peaks[0] / fragments, rel=0.01)
    assert peaks[0] == expected_bytes(workload)


@pytest.mark.parametrize(("fragments", "tau"), [(1, 0), (1, 2), (1, 5), (4, 0), (4, 1), (4, 3)])
def test_a_delay_hides_what_the_formula_says(
    fragments: int, tau: int, network: Build, sized: Build, simulate: Build
) -> None:
    """A round of the model takes h steps, and of each fragment what is not hidden.

    The delay hides it, and the rest of the backward pass once its last layer is over.
    """
    step_s, h, mbps, delay_ms = 0.04, 12, 100, 10
    tensors = [100_000] * 8
    workload = sized(*tensors, forward_s=step_s / 16, backward_s=step_s / 16)
    wan = network(1, 1, mbps=mbps, delay_ms=delay_ms, lan={"mbps": 1e6, "delay_ms": 0.0})
    options = {"h": h, "fragments": fragments, "tau": tau}
    rounds = 10
    run = simulate(
        wan, workload, ("diloco", options), iterations=rounds * h, sim=SimOptions(skip=False)
    )
    # Up to the hub and down again, cut through frame by frame.
    seconds = 8 * expected_bytes(workload) / fragments / (mbps * 1e6 * 1448 / 1500)
    transfer_s = seconds + 2 * delay_ms / 1e3 + seconds / (8 / fragments)
    policy = run.simulation.policy
    last = [max(keys) for keys in policy.fragments(tensors)]
    stalls_s = [max(0.0, transfer_s - tau * step_s - key * step_s / 16) for key in last]
    rows = [r for r in run.results.iterations if r["worker"] == "party0/worker0"]
    took_s = (
        rows[-h - 1]["end_s"] - rows[h - 1]["end_s"]
    )  # whole rounds, without the first and last
    assert took_s == pytest.approx((rounds - 2) * (h * step_s + sum(stalls_s)), rel=0.03)


def test_repetitions_are_counted_with_answers_in_flight(
    network: Build, sized: Build, simulate: Build
) -> None:
    workload = sized(40_000, 30_000, 7, 20_000)
    options = {"h": 4, "fragments": 2, "tau": 3}
    skipped, whole = (
        simulate(
            network(2, 2), workload,
            ("diloco", options), iterations=100, sim=SimOptions(skip=skip),
        ).results
        for skip in (True, False)
    )  # fmt: skip
    assert skipped.summary["skipped_iterations"] > 0
    for name in ("iterations.csv", "links.csv"):
        assert (skipped.directory / name).read_bytes() == (whole.directory / name).read_bytes()


@pytest.mark.slow
def test_both_modes_are_equal(tmp_path: Path, seed: int) -> None:
    """Parameters and bytes, also with mixing, codecs and shards."""
    words = ["workload=tiny", "sync=diloco", "sync.h=4", "sync.fragments=3", "sync.tau=2"]
    words += [
        "sync.alpha=0.5",
        "accel=[fp16,p3]",
        "iterations=14",
        "evaluate_every=3",
        f"seed={seed}",
    ]
    sim, live = (
        geomx.run([*words, f"mode={mode}", f"hydra.run.dir={tmp_path / mode}"])
        for mode in ("sim", "live")
    )
    assert same(list(sim.parameters().values()), list(live.parameters().values()))
    for kind in ("wan_push", "wan_pull", "lan"):
        assert sim.summary["bytes"][kind] == live.summary["bytes"][kind]
    assert [row["accuracy"] for row in sim.evaluations] == [
        row["accuracy"] for row in live.evaluations
    ]


def test_the_example_of_the_documentation_runs(
    network: Build, tiny: Workload, simulate: Build
) -> None:
    """Fragments of every other tensor, whose answers are mixed two steps later."""
    policy = type("Both", (documented("Halves"), DiLoCoPolicy), {})(
        DiLoCoConfig(outer_momentum=0.0)
    )
    run = simulate(network(1, 2), tiny, ("halves", {}), registry=with_policy(policy), iterations=30)
    # Initial values; two tensors after steps 0, 8, 16, 24, one after 4, 12, 20, 28; all in the end.
    assert run.stats("worker")["rounds"] == 3 * (3 + 2 * 4 + 4 + 3)
    assert run.results.summary["accuracy"]["final"] > 0.8


def test_each_worker_has_its_own_copy_of_the_policy(
    network: Build, tiny: Workload, simulate: Build
) -> None:
    """A simulation has all workers in one process, a live run has one process for each."""
    counts: Counter[int] = Counter()

    class Remembers(DiLoCoPolicy):
        def merge(self, key: int, local: Any, value: Any, age: int) -> Any:
            self.merged[key] += 1  # type: ignore[attr-defined]
            counts[self.merged[key]] += 1  # type: ignore[attr-defined]
            return value

    policy = Remembers(DiLoCoConfig(h=2))
    object.__setattr__(policy, "merged", Counter())
    simulate(network(1, 2), tiny, ("halves", {}), registry=with_policy(policy), iterations=8)
    assert counts == dict.fromkeys((1, 2, 3), 3 * 3)  # three workers, three tensors
    object.__setattr__(policy, "merged", threading.Lock())
    with pytest.raises(PluginError, match=r"Remembers cannot be copied.*__deepcopy__"):
        simulate(network(1, 2), tiny, ("halves", {}), registry=with_policy(policy))


def with_policy(policy: geomx.SyncPolicy) -> Registry:
    """Return a registry with ``sync=halves``."""

    class Halves:
        @geomx.hookimpl
        def geomx_sync_policy(self, cluster: Any) -> geomx.SyncPolicy:
            return policy

    return registry_with(halves=("sync", Halves()))


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "twice": ({"fragments": lambda self, elements: [[0, 1], [1, 2]]}, "each of the 3 keys in one"),
    "none": ({"fragments": lambda self, elements: 3}, r"fragments\(\) must be lists of keys"),
    "unknown": ({"due": lambda self, step, steps, fragments: [1], "delay": 1}, "from 0 to 0, not"),
    "in flight": ({"h": 1, "delay": 1}, "fragment 0 is due after step 1, although the answer"),
    "delay": ({"delay": -1}, "delay must be steps, a whole number from 0"),
    "gradients": ({"exchange": "gradients", "delay": 1}, "0 where gradients are exchanged"),
    "merge": (
        {"merge": lambda self, key, local, value, age: value[1:]},
        r"merge\(\) must be a float",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_policies_that_break_the_rules_are_named(
    case: str, network: Build, tiny: Workload, simulate: Build
) -> None:
    changes, message = BROKEN[case]
    config = DiLoCoConfig(h=changes.pop("h", 2))
    policy = type("Broken", (DiLoCoPolicy,), {"delay": 0, **changes})(config)
    with pytest.raises(PluginError, match=message):
        simulate(network(1), tiny, ("halves", {}), registry=with_policy(policy))


@pytest.mark.parametrize(
    ("options", "faults", "message"),
    [
        ({"h": 3, "tau": 3}, {}, "sync.tau.*must be below h=3"),
        ({"h": 3, "fragments": 4}, {}, "sync.fragments.*must be at most h=3"),
        ({"fragments": 4}, {}, "sync.fragments.*must be at most 3, the tensors"),
        ({"tau": 1}, {"durable": "log"}, "faults.durable.*workers' logs cannot repeat"),
    ],
)
def test_what_cannot_be_done_is_refused(
    options: dict[str, Any], faults: dict[str, Any], message: str,
    network: Build, tiny: Workload, experiment: Build,
) -> None:  # fmt: skip
    is_refused(experiment, faults, message, network(1), tiny, ("diloco", options))
