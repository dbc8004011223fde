"""Laws of HALoS: its corners are known algorithms, no update is lost, and steps follow speeds.

The policy of local servers is tested in plugins/halos/halos_test.cc, under drawn interleavings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import geomx
from geomx.errors import PluginError
from geomx.plugins.halos import HalosConfig, HalosPolicy, HalosWorker
from geomx.runner import execute
from geomx.testing.worlds import build
from geomx.workload import Workload
from tests.guide import documented
from tests.laws import Build, Run, by_hand, close, expected_bytes, registry_with, same
from tests.outer_laws import is_refused, on_tiny

pytestmark = pytest.mark.needs("halos")

PLAIN = {"outer_momentum": 0.0, "delay": 1, "by_speed": False}


def moved(run: Run, model: Any) -> list[np.ndarray]:
    pairs = zip(run.parameters, model.parameters, strict=True)
    return [after - before for after, before in pairs]


def constant(tiny: Any, seed: int, monkeypatch: Any) -> Any:
    """Return `tiny` with gradients that depend on the batch only, not on the parameters."""

    def drawn(model: Any, chosen: np.ndarray) -> float:
        rng = np.random.default_rng(int(chosen.sum()))
        for gradient in model.gradients:
            gradient[...] = rng.standard_normal(gradient.shape, np.float32)
        return 1.0

    monkeypatch.setattr(type(tiny.model(seed)), "differentiate", drawn)
    return tiny


@pytest.mark.parametrize("counts", [(1, 1), (2, 2), (1, 3)])
def test_no_update_is_lost(
    counts: tuple[int, ...], network: Build, tiny: Workload, simulate: Build, seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Where gradients do not depend on parameters, the model is that of synchronous averaging.

    However stale updates are: with workers and parties of any speed, any k and any merging.
    """
    workload = constant(tiny, seed, monkeypatch)
    speed = [[1.0, 0.3, 0.7][:count] for count in counts]
    twin = by_hand(workload, seed, counts, 14, k1=3)
    for k, alpha in ((1, 0.25), (3, 1.0), (50, 0.0)):
        options = {"h": 3, "k": k, "alpha": alpha, **PLAIN}
        net = network(*counts, speed=speed, delay_ms=40)
        run = simulate(net, workload, ("halos", options), iterations=14)
        assert close(run.parameters, twin, 1e-5), (k, alpha)


@pytest.mark.parametrize("counts", [(1, 1), (2, 2), (1, 3)])
def test_a_round_without_stale_models_is_synchronous(
    counts: tuple[int, ...], network: Build, tiny: Workload, simulate: Build, seed: int
) -> None:
    """In the first round, all workers train from the same model."""
    options = {"h": 4, "k": max(counts), "alpha": 1.0, **PLAIN}
    run = simulate(network(*counts), tiny, ("halos", options), iterations=4)
    assert close(run.parameters, by_hand(tiny, seed, counts, 4, k1=4), 1e-5)


@pytest.mark.parametrize("iterations", [1, 12, 14])
def test_a_single_worker_is_diloco(
    iterations: int, network: Build, tiny: Workload, simulate: Build, seed: int
) -> None:
    """Where answers come before the next push, the party's model is the global one."""
    options = {"h": 3, "k": 1, "alpha": 1.0, "outer_lr": 1.0, **PLAIN}
    near = network(1, mbps=1e5, delay_ms=0.01)
    run = simulate(near, tiny, ("halos", options), iterations=iterations)
    plain = {"h": 3, "outer_lr": 1.0, "outer_momentum": 0.0}
    assert close(run.parameters, on_tiny(tiny, seed, 1, iterations, plain), 1e-5)


class Momentum:
    """One tensor under delayed Nesterov momentum (arXiv 2401.09135, algorithm 3 with c = 0)."""

    def __init__(self, start: Any, rate: float, momentum: float, delay: int) -> None:
        self.value = start.astype(np.float64)
        self.rate, self.momentum, self.delay = rate, momentum, delay
        self.velocity = self.buffer = np.zeros_like(self.value)
        self.updates = 0

    def apply(self, change: Any) -> None:
        self.updates += 1
        self.buffer = self.buffer + change
        step = change
        if self.updates % self.delay == 0:
            self.velocity = self.momentum * self.velocity + self.buffer / self.delay
            self.buffer = np.zeros_like(self.value)
            step = change + self.delay * self.momentum * self.velocity
        self.value = self.value - self.rate * step


def in_lockstep(
    tiny: Any, seed: int, counts: tuple[int, ...], iterations: int, options: Mapping[str, Any]
) -> list[np.ndarray]:
    """Return HALoS's model where all rounds begin and end together, by its equations.

    In a round, every worker trains from what it received in the last one. Then parties apply their
    workers' changes, then the global model applies the parties' moves, each in the order of nodes.
    """
    config = HalosConfig(**options)
    model, rate, total = tiny.model(seed), tiny.optimizer["learning_rate"], sum(counts)

    def train(worker: int, received: list[Any], begin: int) -> list[Any]:
        values = list(received)
        for step in range(begin, min(begin + config.h, iterations)):
            for key, value in enumerate(values):
                model.set(key, value.astype(np.float32))
            model.step(step, worker, total)
            values = [v - rate * g for v, g in zip(values, model.gradients, strict=True)]
        return values

    local_lr = (1 - config.local_momentum) * len(counts) / total
    outer_lr = (1 - config.outer_momentum) / len(counts)
    local = (local_lr, config.local_momentum, config.local_delay)
    outer = (outer_lr, config.outer_momentum, config.delay)
    start = [value.copy() for value in model.parameters]
    common = [Momentum(value, *outer) for value in start]
    parties = [[Momentum(value, *local) for value in start] for _ in counts]
    received = [start] * total
    members = np.split(np.arange(total), np.cumsum(counts)[:-1])
    for begin in range(0, iterations, config.h):
        trained = [train(worker, received[worker], begin) for worker in range(total)]
        before = [[tensor.value for tensor in party] for party in parties]
        for party, workers in zip(parties, members, strict=True):
            for worker in workers:
                for key, tensor in enumerate(party):
                    tensor.apply(received[worker][key] - trained[worker][key])
                received[worker] = [tensor.value for tensor in party]
        for party, values in zip(parties, before, strict=True):
            for key, tensor in enumerate(party):
                common[key].apply(values[key] - tensor.value)
                tensor.value = tensor.value + config.alpha * (common[key].value - tensor.value)
    return [tensor.value.astype(np.float32) for tensor in common]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("counts", [(1,), (3,), (1, 1, 1), (2, 2), (3, 3)])
def test_equal_speeds_and_all_updates_are_rounds(
    counts: tuple[int, ...], momentum: float, network: Build, tiny: Workload, simulate: Build,
    seed: int,
) -> None:  # fmt: skip
    """Where k is a party's workers, and answers come before the next push, nothing overlaps."""
    options = {"h": 3, "k": counts[0], "by_speed": False, "alpha": 0.25,
               "local_momentum": momentum, "local_delay": 2, "outer_momentum": 0.5}  # fmt: skip
    # Parties differ in speed by 0.1 %, so that their moves arrive in the order of parties.
    speed = [[1 - 0.001 * party] * count for party, count in enumerate(counts)]
    near = network(*counts, speed=speed, mbps=1e5, delay_ms=0.2)
    run = simulate(near, tiny, ("halos", options), iterations=14)
    assert close(run.parameters, in_lockstep(tiny, seed, counts, 14, options), 1e-5)


def test_equal_workers_learn_like_synchronous_ones(
    network: Build, tiny: Workload, simulate: Build
) -> None:
    """What asynchrony changes is below what training changes, by far."""
    twin = simulate(network(2, 2), tiny, ("diloco", {"h": 2, "outer_lr": 1.0,
                    "outer_momentum": 0.0}), iterations=40)  # fmt: skip
    options = {"h": 2, "k": 2, "alpha": 1.0, **PLAIN}
    run = simulate(network(2, 2), tiny, ("halos", options), iterations=40)
    model = tiny.model(run.simulation.experiment.seed)
    theirs, ours = moved(twin, model), moved(run, model)
    off = sum(np.square(a - b).sum() for a, b in zip(theirs, ours, strict=True))
    assert off < 0.05 * sum(np.square(a).sum() for a in theirs)


def test_bytes_are_counted_by_updates(network: Build, sized: Build, simulate: Build) -> None:
    """Each worker pushes every h steps; each party every k updates, and at the end."""
    workload = sized(5_000, 300)
    options = {"h": 4, "k": 6, **PLAIN}
    run = simulate(network(2, 3), workload, ("halos", options), iterations=37)
    each = expected_bytes(workload)
    rounds = -(-37 // 4)
    assert run.bytes["lan"] == 2 * 5 * rounds * each
    # No answer is late here, so that moves are sent as soon as there are k updates.
    pushes = [-(-workers * rounds // 6) for workers in (2, 3)]
    assert run.bytes["wan_push"] == run.bytes["wan_pull"] == sum(pushes) * each


def test_nobody_waits(network: Build, sized: Build, simulate: Build) -> None:
    """Neither a slow worker nor the WAN delays another worker."""
    workload = sized(200_000, forward_s=0.01, backward_s=0.02)
    lan = {"mbps": 1e6, "delay_ms": 0.01}
    net = network(2, 1, speed=[(1.0, 0.1), (0.5,)], mbps=5, delay_ms=200, lan=lan)
    options = {"h": 2, "k": 1, **PLAIN}
    run = simulate(net, workload, ("halos", options), iterations=20)
    for worker, speed in (
        ("party0/worker0", 1.0),
        ("party0/worker1", 0.1),
        ("party1/worker0", 0.5),
    ):
        rows = [row for row in run.results.iterations if row["worker"] == worker]
        took = rows[-1]["end_s"] - rows[0]["start_s"]
        before_last = rows[-2]["end_s"] - rows[0]["start_s"]
        assert before_last == pytest.approx(19 * 0.03 / speed, rel=0.03)
        assert took > before_last


@pytest.mark.parametrize("steps", [1, 2, 9, 40])
def test_steps_follow_speeds(steps: int, network: Build, sized: Build, simulate: Build) -> None:
    """Rounds of a party's workers take equally long, after the first, which is one step."""
    workload = sized(1000, forward_s=0.01, backward_s=0.02)
    speed = [(1.0, 0.5, 0.25, 0.01), (0.5,)]
    options = {"h": 8, "k": 4}
    run = simulate(network(4, 1, speed=speed), workload, ("halos", options), iterations=steps)
    made: dict[str, int] = {}
    for row in run.results.iterations:
        made[row["worker"]] = made.get(row["worker"], 0) + 1
    shares = {"party0/worker0": 1.0, "party0/worker1": 0.5, "party0/worker2": 0.25,
              "party0/worker3": 0.0, "party1/worker0": 1.0}  # fmt: skip
    full = [min(8, steps - 1 - at) for at in range(0, steps - 1, 8)]
    for worker, share in shares.items():
        assert made[worker] == 1 + sum(max(1, round(share * each)) for each in full)


@pytest.mark.parametrize("rounds", [0, 1, 2, 13, 14, 20])
def test_a_worker_continues_after_rounds_of_the_fastest(rounds: int) -> None:
    """The first is one step again, which measures the speed; the steps that are left are made."""
    h, steps = 8, 100
    worker = HalosWorker(0, h, steps)
    made = 0 if rounds == 0 else 1 + h * (rounds - 1)
    assert worker.resume(rounds) == (made if made < steps else None)
    if made >= steps:
        return
    synchronised = []
    for step in range(made, steps):
        assert worker.finished(step) == (step + 1 == steps)
        if worker.after_step(step):
            synchronised.append(step)
            worker.reply([1.0])
    assert synchronised[0] == made
    assert len(synchronised) == 1 + -(-(steps - made - 1) // h)


def test_workers_of_a_party_end_alike(network: Build, tiny: Workload, simulate: Build) -> None:
    net = network(3, 1, speed=[(1.0, 0.4, 0.7), (0.9,)])
    run = simulate(net, tiny, ("halos", {"h": 3, "k": 2}), iterations=20)
    party = [worker.parameters for worker in run.simulation.workers.values()][:3]
    assert all(same(party[0], other) for other in party[1:])
    assert run.results.summary["staleness"]["max"] >= 1


class Priorities:
    """Notes the priorities of all messages before they are cut."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    @geomx.hookimpl
    def geomx_slicer(self, link: Any) -> Any:
        seen = self.seen

        class Notes:
            def cut(self, slices: Any, row_bytes: float, round_number: int) -> Any:
                seen.update(priority for _, _, priority, _ in slices)
                return slices

        return Notes()


def test_pushes_of_parties_have_the_priorities_of_their_tensors(tmp_path: Path) -> None:
    seen: dict[str, set[int]] = {}
    for sync in ("fsa", "halos"):
        notes = Priorities()
        registry = registry_with(notes=("accel", notes))
        experiment = build(registry, (sync, {}), [("notes", {})], iterations=16)
        execute(experiment, tmp_path / sync)
        seen[sync] = notes.seen
    assert seen["halos"] == seen["fsa"]


@pytest.mark.slow
def test_both_modes_agree(tmp_path: Path, seed: int) -> None:
    """Up to the order of updates, on which bytes inside a party do not depend."""
    words = ["workload=tiny", "sync=halos", "sync.h=3", "sync.by_speed=false", "accel=[fp16,p3]"]
    # An answer arrives before the next k = 4 updates, also where steps take longer than these.
    words += ["workload.forward_ms=5", "workload.backward_ms=10", "iterations=40", f"seed={seed}"]
    sim, live = (
        geomx.run([*words, f"mode={mode}", f"hydra.run.dir={tmp_path / mode}"])
        for mode in ("sim", "live")
    )
    assert abs(sim.summary["accuracy"]["final"] - live.summary["accuracy"]["final"]) < 0.1
    assert sim.summary["bytes"]["lan"] == live.summary["bytes"]["lan"]
    for kind in ("wan_push", "wan_pull"):
        assert sim.summary["bytes"][kind] == pytest.approx(live.summary["bytes"][kind], rel=0.3)


# ---- the mechanism, by a policy in Python ----


OwnModel: Any = documented("OwnModel")


class InPython(HalosPolicy):
    def party_policy(self, cluster: Any, party: Any) -> Any:
        rate = len(cluster.parties) / len(cluster.workers)
        return OwnModel(self.config.k, self.config.alpha, rate)


def with_policy(make: Any) -> Any:
    """Return a registry with ``sync=apart``."""

    class Apart:
        @geomx.hookimpl
        def geomx_sync_policy(self, cluster: Any) -> geomx.SyncPolicy:
            policy: geomx.SyncPolicy = make(cluster)
            return policy

    return registry_with(apart=("sync", Apart()))


@pytest.mark.parametrize("numerics", [True, False])
def test_a_party_model_in_python_does_the_same(
    numerics: bool, network: Build, tiny: Workload, simulate: Build
) -> None:
    options: Mapping[str, Any] = {"h": 3, "k": 2, **PLAIN}
    net = network(2, 1, speed=[(1.0, 0.6), (0.8,)])
    registry = with_policy(lambda cluster: InPython(HalosConfig(**options), cluster))
    ours, theirs = (
        simulate(net, tiny, (name, chosen), iterations=14, numerics=numerics, **more)
        for name, chosen, more in (("halos", options, {}), ("apart", {}, {"registry": registry}))
    )
    assert ours.bytes == theirs.bytes
    if numerics:
        assert close(ours.parameters, theirs.parameters, 1e-6)


def test_the_example_of_the_documentation_learns(
    network: Build, tiny: Workload, simulate: Build
) -> None:
    registry = with_policy(lambda cluster: documented("Apart")())
    run = simulate(network(1, 2), tiny, ("apart", {}), registry=registry, iterations=160)
    assert run.results.summary["accuracy"]["final"] > 0.8


def test_a_sum_is_no_model(network: Build, tiny: Workload, simulate: Build) -> None:
    """A policy of workers that do not wait needs a PartyModel; its send must end with a value."""

    class Nothing(HalosPolicy):
        def party_policy(self, cluster: Any, party: Any) -> Any:
            return None

    class Silent(OwnModel):
        def send(self, shard: tuple[int, int], ends: bool) -> Any:
            return None

    class Without(HalosPolicy):
        def party_policy(self, cluster: Any, party: Any) -> Any:
            return Silent(1, 0.5, 1.0)

    config = HalosConfig(by_speed=False)
    for kind, message in (
        (Nothing, r"party_policy\(\) must be a PartyModel or a Native if workers_together"),
        (Without, "send"),
    ):
        registry = with_policy(lambda cluster, kind=kind: kind(config, cluster))
        with pytest.raises(PluginError, match=message):
            simulate(network(1), tiny, ("apart", {}), registry=registry, iterations=2)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("options", "faults", "message"),
    [
        ({"h": 0}, {}, "sync.h"),
        ({"k": 0}, {}, "sync.k"),
        ({"alpha": 1.5}, {}, "sync.alpha"),
        ({"local_momentum": 1.0}, {}, "sync.local_momentum"),
        ({"delay": 0}, {}, "sync.delay"),
        ({"delay": 2**21}, {}, "sync.delay"),
        ({"local_delay": 2**21}, {}, "sync.local_delay"),
        ({}, {"on_loss": "continue"}, "faults.on_loss.*halos keeps a model at each party"),
    ],
)
def test_what_cannot_be_done_is_refused(
    options: dict[str, Any], faults: dict[str, Any], message: str,
    network: Build, tiny: Workload, experiment: Build,
) -> None:  # fmt: skip
    is_refused(experiment, faults, message, network(2), tiny, ("halos", options))
