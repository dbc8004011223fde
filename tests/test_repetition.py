"""Counting repetitions equals simulating them, and is used only if that is certain."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest
import simpy

import geomx
from geomx.options.schema import Costs, SimOptions
from geomx.plugin.sync import SyncPolicy
from tests.laws import Build, Run, Watch, registry_with

ITERATIONS = 40
SPEEDS = (1.0, 0.6, 1.7)
FILES = ("iterations.csv", "links.csv", "edges.csv")


def both(simulate: Build, *arguments: Any, **changes: Any) -> tuple[Run, Run]:
    """Simulate an experiment with and without counting repetitions."""
    skipped, whole = (
        simulate(*arguments, **{"iterations": ITERATIONS, "sim": SimOptions(skip=skip), **changes})
        for skip in (True, False)
    )
    assert whole.results.summary["skipped_iterations"] == 0
    return skipped, whole


def equal(one: Run, other: Run) -> bool:
    """Return whether two runs have equal files, except for the timeline."""
    fields = ("seconds", "rounds", "bytes", "seconds_per_iteration", "best_effort_slices")
    return all(
        (one.results.directory / name).read_bytes() == (other.results.directory / name).read_bytes()
        for name in FILES
    ) and all(one.results.summary[field] == other.results.summary[field] for field in fields)


@pytest.mark.parametrize("counts", [(1,), (2, 2), (3, 1, 2)])
@pytest.mark.parametrize("costs", [Costs(), Costs(cores=2), None])
@pytest.mark.parametrize("delay_ms", [1, 40])
def test_repetitions_are_counted(
    counts: tuple[int, ...], costs: Costs | None, delay_ms: float,
    network: Build, sized: Build, simulate: Build,
) -> None:  # fmt: skip
    workload = sized(300_000, 7, 70_000)
    changes = {} if costs is None else {"costs": costs}
    wan = network(*counts, delay_ms=delay_ms, speed=[SPEEDS[:count] for count in counts])
    skipped, whole = both(simulate, wan, workload, **changes)
    assert equal(skipped, whole)
    assert skipped.results.summary["skipped_iterations"] > ITERATIONS / 2
    assert skipped.simulation.fabric.messages == whole.simulation.fabric.messages


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sync", "accel"),
    [
        pytest.param(("hfa", {"k1": 2, "k2": 3}), [], marks=pytest.mark.needs("hfa")),
        pytest.param(("diloco", {"h": 3}), [], marks=pytest.mark.needs("diloco")),
        pytest.param(None, ["p3", "fp16"], marks=pytest.mark.needs("p3", "fp16")),
        pytest.param(None, ["twobit"], marks=pytest.mark.needs("twobit")),
        pytest.param(None, ["sparseloco"], marks=pytest.mark.needs("sparseloco")),
    ],
)
def test_repetitions_with_plugins_that_describe_their_state_are_counted(
    sync: Any, accel: list[str], network: Build, sized: Build, simulate: Build
) -> None:
    workload = sized(300_000, 7, 70_000)
    wan = network(2, 1, 2, speed=[(1.0, 0.8), (1.1,), (0.7, 1.0)])
    skipped, whole = both(simulate, wan, workload, sync, accel, iterations=60)
    assert equal(skipped, whole)
    assert skipped.results.summary["skipped_iterations"] > 0


class Odd(SyncPolicy):
    """Synchronises at square numbers, so that no period repeats."""

    def after_step(self, step: int, steps: int) -> bool:
        return step == steps - 1 or int(step**0.5) ** 2 == step


class OddSync:
    @geomx.hookimpl
    def geomx_sync_policy(self, cluster: Any) -> SyncPolicy:
        return Odd()


def test_a_schedule_without_repetition_is_simulated(
    network: Build, sized: Build, simulate: Build
) -> None:
    registry = registry_with(odd=("sync", OddSync()))
    skipped, whole = both(simulate, network(2, 1), sized(9000), ("odd", {}), (), registry)
    assert equal(skipped, whole)


class Clock:
    """A plugin with its own SimPy process."""

    def __init__(self) -> None:
        self.ticks = 0

    @geomx.hookimpl
    def geomx_sim(self, simulation: Any) -> None:
        def tick() -> Generator[simpy.Event, Any, None]:
            for self.ticks in itertools.count(1):
                yield simulation.env.timeout(10_000_000)

        simulation.env.process(tick())


@pytest.mark.parametrize("plugin", [Watch, Clock])
def test_runs_that_a_plugin_observes_are_simulated(
    plugin: type, network: Build, sized: Build, simulate: Build
) -> None:
    seen = plugin()
    registry = registry_with(eyes=("accel", seen))
    run = simulate(network(2, 1), sized(9000), None, ["eyes"], registry, iterations=ITERATIONS)
    assert run.results.summary["skipped_iterations"] == 0
    assert seen.ticks > ITERATIONS / 2 if plugin is Clock else len(seen.seen) >= 6 * ITERATIONS


def test_runs_with_numerics_are_simulated(network: Build, tiny: Any, simulate: Build) -> None:
    run = simulate(network(1, 1), replace(tiny, iterations=ITERATIONS))
    assert run.results.summary["skipped_iterations"] == 0


@pytest.mark.needs("dgt")
def test_runs_with_packet_loss_are_simulated(network: Build, sized: Build, simulate: Build) -> None:
    wan = network(2, 1, loss=0.05)
    run = simulate(wan, sized(200_000), accel=["dgt"], iterations=ITERATIONS)
    assert run.results.summary["skipped_iterations"] == 0
    assert run.simulation.fabric.lost_messages > 0
