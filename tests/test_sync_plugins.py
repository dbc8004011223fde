"""Laws of MixedSync, ESync and MultiGPS in simulations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from geomx.cluster import Cluster
from geomx.errors import ConfigError, GeomxError
from geomx.experiment.wiring import shards
from geomx.network.files import read_network
from geomx.plugin.registry import Registry
from geomx.workload import Workload
from tests.laws import PARTIES, Build, Run, by_hand, close, same

Row = dict[str, Any]


def seconds(rows: Sequence[Row]) -> float:
    """Return the mean duration of an iteration."""
    return sum(row["end_s"] - row["start_s"] for row in rows) / len(rows)


def of_party(run: Run, party: str) -> list[Row]:
    return [row for row in run.results.iterations if row["party"] == party]


# ---- MixedSync ----

SLOW = [(1.0, 1.0), (0.25, 0.25)]


@pytest.mark.needs("mixedsync")
def test_mixedsync_a_slow_party_does_not_delay_others(
    network: Build, sized: Build, simulate: Build
) -> None:
    workload = sized(200_000, 200_000, forward_s=0.03, backward_s=0.06)
    times = {}
    for sync in ("fsa", "mixedsync"):
        for name, speed in (("alike", []), ("slow", SLOW)):
            run = simulate(network(2, 2, speed=speed), workload, (sync, {}), iterations=20)
            times[sync, name] = seconds(of_party(run, "party0"))
    assert times["mixedsync", "slow"] <= 1.05 * times["mixedsync", "alike"]
    assert times["fsa", "slow"] > 1.5 * times["fsa", "alike"]


@pytest.mark.needs("mixedsync")
def test_mixedsync_staleness_counts_the_updates_of_others(
    network: Build, sized: Build, simulate: Build
) -> None:
    workload = sized(1000, forward_s=0.0, backward_s=0.4)
    alike, slow = (
        simulate(network(1, 1, speed=speed), workload, ("mixedsync", {}), iterations=24).results
        for speed in ([], [(1.0,), (0.25,)])
    )
    # Two equal parties alternate.
    assert alike.summary["staleness"]["max"] <= 2
    assert alike.summary["staleness"]["mean"] == pytest.approx(1.0, abs=0.1)
    # The fast party updates about four times per step of the slow one.
    assert 3 <= slow.summary["staleness"]["max"] <= 5
    fsa = simulate(network(1, 1), workload, iterations=3).results
    assert fsa.summary["staleness"] == {"mean": 0.0, "max": 0}


@pytest.mark.needs("mixedsync")
@pytest.mark.parametrize("bound", [0, 1, 3])
def test_mixedsync_staleness_is_bounded(
    bound: int, network: Build, sized: Build, simulate: Build
) -> None:
    """A party that is `bound` rounds ahead may still push, so between two updates of one party,
    another can go from 1 + bound behind to 1 + bound ahead."""
    workload = sized(1000, 300, forward_s=0.01, backward_s=0.02)
    counts, speed = (1, 2, 1), [(1.0,), (0.02, 0.02), (0.5,)]
    bounded, free = (
        simulate(
            network(*counts, speed=speed), workload, ("mixedsync", options), iterations=40
        ).results.summary
        for options in ({"staleness_bound": bound}, {})
    )
    most = (len(counts) - 1) * 2 * (1 + bound)
    assert bounded["staleness"]["max"] <= most < free["staleness"]["max"]
    assert bounded["rounds"] == free["rounds"]


@pytest.mark.needs("mixedsync")
@pytest.mark.parametrize("workers", [1, 3])
def test_mixedsync_with_one_party_equals_fsa(
    workers: int, network: Build, tiny: Workload, simulate: Build
) -> None:
    fsa = simulate(network(workers), tiny)
    mixed = simulate(network(workers), tiny, ("mixedsync", {}))
    assert close(mixed.parameters, fsa.parameters, 1e-6)
    for kind in ("wan_push", "wan_pull", "lan"):
        assert mixed.bytes[kind] == fsa.bytes[kind]


@pytest.mark.needs("mixedsync")
@pytest.mark.parametrize("variance", [False, True])
def test_mixedsync_with_delay_compensation_learns(
    variance: bool, network: Build, tiny: Workload, simulate: Build
) -> None:
    options = {"optimizer": "dcasgd", "learning_rate": 0.05, "variance": variance}
    speed = [(1.0,), (0.5, 0.5)]
    run, plain = (
        simulate(network(1, 2, speed=speed), tiny, ("mixedsync", chosen), iterations=120)
        for chosen in (options, {})
    )
    assert run.results.summary["accuracy"]["final"] >= 0.9
    assert run.results.summary["staleness"]["max"] >= 2
    assert not same(run.parameters, plain.parameters)


@pytest.mark.needs("mixedsync")
@pytest.mark.parametrize(
    "options",
    [
        {"staleness_bound": -1},
        {"staleness_bound": 2**31},
        {"momentum": 0.9},
        {"learning_rate": 0.0},
        {"optimizer": "sgd", "momentum": 1.0},
        {"optimizer": "sgd", "variance": True},
    ],
    ids=str,
)
def test_mixedsync_refuses_invalid_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"sync\.{list(options)[-1]}"):
        Registry.discover().select(("mixedsync", options))


@pytest.mark.needs("mixedsync")
def test_mixedsync_accepts_optimizers_with_their_options(
    network: Build, tiny: Workload, simulate: Build
) -> None:
    """With one party, the plugin's optimizer equals the same optimizer of the workload."""
    for named in (
        {"name": "sgd", "learning_rate": 0.02, "momentum": 0.9},
        {"name": "adam", "learning_rate": 0.003},
    ):
        workload = replace(tiny, optimizer=named)
        options = {**named, "optimizer": named["name"]}
        del options["name"]
        mixed = simulate(network(2), tiny, ("mixedsync", options))
        assert close(mixed.parameters, simulate(network(2), workload).parameters, 1e-6)
    with pytest.raises(GeomxError, match="momentum"):
        bad = {"optimizer": "adam", "momentum": 0.5}
        simulate(network(2), tiny, ("mixedsync", bad))


@pytest.mark.needs("mixedsync")
@pytest.mark.parametrize("chosen", [{"name": "sgd"}, {"name": "adam", "learning_rate": 0.003}])
def test_mixedsync_optimizers_keep_the_workloads_settings(
    chosen: dict[str, Any], network: Build, tiny: Workload, simulate: Build
) -> None:
    """And its learning rate, if they are the workload's own."""
    own = {
        "name": "sgd", "learning_rate": 0.02, "wd": 0.1, "clip_gradient": 0.01,
        "lr_mult.0": 0.5, "wd_mult.1": 3.0,
        "schedule.factor.step": 2, "schedule.factor.factor": 0.5,
    }  # fmt: skip
    options = {**chosen, "optimizer": chosen["name"]}
    del options["name"]
    mixed = simulate(network(2), replace(tiny, optimizer=own), ("mixedsync", options))
    plain = simulate(network(2), replace(tiny, optimizer=own | chosen))
    assert close(mixed.parameters, plain.parameters, 1e-6)


# ---- ESync ----

UNEVEN = [(0.01, 1.0, 1.0), (1.0, 0.01, 1.0)]


@pytest.mark.needs("esync")
def test_esync_fills_the_time_of_fast_workers(
    network: Build, sized: Build, simulate: Build
) -> None:
    """Two slow workers, and four that are a hundred times faster (Li et al., 2022)."""
    workload = sized(50_000, 50_000, forward_s=0.005, backward_s=0.01)
    fsa, esync = (
        simulate(network(3, 3, speed=UNEVEN), workload, (sync, {}), iterations=5)
        for sync in ("fsa", "esync")
    )
    rates = [run.results.summary["samples_per_second"] for run in (fsa, esync)]
    assert rates[1] >= 30 * rates[0]

    rows = esync.results.iterations
    steps = Counter(row["worker"] for row in rows)
    slow = [name for name, count in steps.items() if count == 5]
    assert len(slow) == 2
    assert min(count for name, count in steps.items() if name not in slow) > 200
    rounds = [row for row in rows if row["worker"] == slow[0]]
    for began, ended in ((row["start_s"], row["end_s"]) for row in rounds[1:]):
        # After the first round, which has no measurements, no worker is idle.
        for worker in set(steps) - set(slow):
            waits = [
                row["wait_s"]
                for row in rows
                if row["worker"] == worker and began < row["end_s"] <= ended + 1
            ]
            assert sum(waits) < 0.1 * (ended - began)


@pytest.mark.needs("esync")
@pytest.mark.parametrize("scope", ["global", "party"])
@pytest.mark.parametrize("counts", PARTIES)
def test_esync_with_equal_workers_averages_every_step(
    scope: str, counts: tuple[int, ...], network: Build, tiny: Workload, simulate: Build, seed: int
) -> None:
    run = simulate(network(*counts), tiny, ("esync", {"scope": scope}))
    assert close(run.parameters, by_hand(tiny, seed, counts, tiny.iterations), 1e-5)
    assert run.results.summary["rounds"] == tiny.iterations
    assert len(run.results.iterations) == tiny.iterations * sum(counts)


@pytest.mark.needs("esync")
@pytest.mark.parametrize("iterations", [10, 12])
def test_esync_makes_local_steps(
    iterations: int, network: Build, tiny: Workload, simulate: Build, seed: int
) -> None:
    """As many in all as it was told, where the last round has fewer."""
    esync = ("esync", {"local_steps": 3, "most": 3})
    run = simulate(network(1, 2), tiny, esync, iterations=iterations)
    assert close(run.parameters, by_hand(tiny, seed, (1, 2), iterations, k1=3), 1e-5)
    assert run.results.summary["rounds"] == 4
    assert len(run.results.iterations) == 3 * iterations


PLANNED = [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("esync", "halos")]


@pytest.mark.parametrize("name", PLANNED)
def test_steps_are_planned_for_workers_that_compute_for_no_time(
    name: str, network: Build, sized: Build, simulate: Build
) -> None:
    workload = sized(1000, forward_s=0.0, backward_s=0.0)
    run = simulate(network(1, 2), workload, (name, {}), iterations=3, numerics=False)
    assert {row["compute_s"] for row in run.results.iterations} == {0.0}
    assert len(run.results.iterations) >= 9


@pytest.mark.needs("esync")
def test_esync_plans_within_a_party(network: Build, sized: Build, simulate: Build) -> None:
    """A party's plan balances its own workers; parties still wait for the slowest party."""
    workload = sized(1000, forward_s=0.01, backward_s=0.02)
    speed = [(1.0, 0.1), (0.02, 0.1)]
    runs = {
        scope: simulate(
            network(2, 2, speed=speed), workload, ("esync", {"scope": scope}), iterations=4
        ).results
        for scope in ("global", "party")
    }
    made = {
        scope: Counter(row["worker"] for row in results.iterations)
        for scope, results in runs.items()
    }
    for name, (inside, least) in {
        "party0/worker0": ("party", 3 * 8),
        "party1/worker1": ("party", 3 * 4),
    }.items():
        assert made[inside][name] >= least
    # A global plan also balances the parties.
    assert made["global"]["party0/worker1"] > 3 * made["party"]["party0/worker1"]
    assert made["party"]["party0/worker1"] == made["party"]["party1/worker0"] == 4


@pytest.mark.needs("esync")
@pytest.mark.parametrize("scope", ["global", "party"])
def test_esync_learns_with_uneven_workers(
    scope: str, network: Build, tiny: Workload, simulate: Build
) -> None:
    speed = [(1.0, 0.2), (0.5, 0.1)]
    run = simulate(
        network(2, 2, speed=speed), tiny, ("esync", {"scope": scope}), iterations=60
    ).results
    assert run.summary["accuracy"]["final"] >= 0.9
    assert run.summary["staleness"]["max"] == 0


@pytest.mark.needs("esync")
@pytest.mark.parametrize(
    "options",
    [
        {"scope": "world"},
        {"local_steps": 0},
        {"local_steps": 5, "most": 4},
        {"epsilon_ms": -1.0},
        {"timeout_s": 0.0},
    ],
    ids=str,
)
def test_esync_refuses_invalid_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"sync\.{list(options)[-1]}"):
        Registry.discover().select(("esync", options))


# ---- MultiGPS ----


def several(content: dict[str, Any], accel: tuple[str, dict[str, Any]]) -> Cluster:
    """Return the cluster of a network file's content, as changed by the accelerator."""
    return Registry.discover().select(None, [accel]).cluster(read_network(content))


@pytest.mark.needs("multigps")
@pytest.mark.parametrize(
    "optimizer",
    [{"name": "sgd", "learning_rate": 0.05}, {"name": "adam", "learning_rate": 0.01}],
    ids=lambda optimizer: optimizer["name"],
)
@pytest.mark.parametrize("servers", [2, 3])
def test_multigps_changes_no_bit(
    optimizer: dict[str, Any], servers: int, network: Build, tiny: Workload, simulate: Build
) -> None:
    workload = replace(tiny, optimizer=optimizer)
    accel = ("multigps", {"servers": servers, "shard_elements": 40})
    cluster = several(network(1, 3), accel)
    assert len(cluster.global_servers) == servers
    run = simulate(cluster, workload, accel=[accel])
    assert same(run.parameters, simulate(network(1, 3), workload).parameters)
    busy = {row["target"] for row in run.results.links if row["kind"] == "wan" and row["bytes"]}
    assert {server.name for server in cluster.global_servers} <= busy


@pytest.mark.needs("multigps")
@pytest.mark.parametrize("servers", [2, 3, 5])
def test_multigps_balances_bytes(
    servers: int, network: Build, sized: Build, simulate: Build
) -> None:
    workload = sized(1_000_000, 7, 300_000, 64, 20_000, 10_000, 16_384, 16_383, 5, 12_000)
    accel = ("multigps", {"servers": servers})
    cluster = several(network(2, 1), accel)
    run = simulate(cluster, workload, accel=[accel], iterations=2)
    pushed = {
        server.name: sum(row["bytes"] for row in run.results.links if row["target"] == server.name)
        for server in cluster.global_servers
    }
    assert len(pushed) == servers
    assert max(pushed.values()) <= 1.1 * min(pushed.values())
    plain = simulate(network(2, 1), workload, iterations=2).bytes
    # Only headers are added.
    assert plain["wan_push"] <= run.bytes["wan_push"] <= 1.001 * plain["wan_push"]


@pytest.mark.needs("multigps")
def test_multigps_divides_large_tensors_only(network: Build, sized: Build) -> None:
    workload = sized(16_383, 16_384, 1_000_001)
    selection = Registry.discover().select(None, [("multigps", {"servers": 4})])
    cluster = selection.cluster(read_network(network(1)))
    placed = shards(cluster, selection, workload.tensors)
    assert [len(pieces) for pieces in placed] == [1, 4, 4]
    for pieces in placed[1:]:
        elements = [count for _, count, _, _ in pieces]
        assert max(elements) - min(elements) <= 1
    assert {server for _, _, server, _ in placed[-1]} == set(range(4))


@pytest.mark.needs("multigps")
def test_multigps_keeps_additional_global_servers(network: Build) -> None:
    content = network(1)
    content["central"]["global_servers"] = 3
    assert len(several(content, ("multigps", {"servers": 2})).global_servers) == 3


@pytest.mark.needs("multigps")
@pytest.mark.parametrize("options", [{"servers": 0}, {"servers": 257}, {"shard_elements": 0}])
def test_multigps_refuses_invalid_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"accel\.multigps\.{next(iter(options))}"):
        Registry.discover().select(None, [("multigps", options)])
