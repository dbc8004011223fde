"""Laws of the ring in complete runs: a star's sums, and 2 (n - 1) / n of the model per link."""

from __future__ import annotations

import sys
from json import loads
from pathlib import Path
from typing import Any

import pytest
import yaml

import geomx
from geomx import run
from geomx.config.compose import compose
from geomx.errors import ConfigError
from geomx.live.launcher import run_script
from geomx.network.files import read_network
from geomx.plugin.registry import Registry
from geomx.plugin.reliability import sends_best_effort
from geomx.runner import simulate_command
from geomx.workload import Workload
from tests.laws import Build, Run, close, counting, same, short_form

pytestmark = pytest.mark.needs("ring")

HEADER_BYTES = 80


def around(content: Any, workload: Workload, simulate: Build, **options: Any) -> Run:
    """Simulate the ring."""
    accel = options.pop("accel", [("ring", {})])
    cluster = Registry.discover().select(None, accel).cluster(read_network(content))
    return simulate(cluster, workload, options.pop("sync", None), accel, **options)


@pytest.mark.parametrize("sync", ["fsa", "hfa", "diloco"])
@pytest.mark.parametrize(
    ("workers", "options"),
    [
        ((2, 2), {}),
        ((3, 1, 2), {}),  # parties count by their workers
        ((1, 2, 1, 3), {"speed": ((1,), (1, 0.2), (0.5,), (1, 1, 1))}),  # and however late they are
        ((2, 1, 1), {"loss": 0.05}),  # and however often what they send is lost
    ],
)
def test_sums_are_those_of_the_star(
    network: Build, tiny: Any, simulate: Build, sync: str, workers: Any, options: Any
) -> None:
    if sync not in {plugin.name for plugin in Registry.discover().plugins("sync")}:
        pytest.skip(f"not installed: {sync}")
    content = network(*workers, **options)
    choice = (sync, {"h": 2} if sync == "diloco" else {})
    star = simulate(content, tiny, choice)
    ring = around(content, tiny, simulate, sync=choice)
    assert close(star.parameters, ring.parameters, 1e-5)


def test_exact_sums_are_equal_to_the_last_bit(
    network: Build, tiny: Any, simulate: Build, seed: int, monkeypatch: Any
) -> None:
    """Sums of ones are exact in any order: no contribution is lost or added twice."""
    ones = counting(tiny, seed, monkeypatch)
    content = network(3, 1, 2, 1)
    star = simulate(content, ones, iterations=12)
    ring = around(content, ones, simulate, iterations=12)
    assert same(star.parameters, ring.parameters)


def test_a_sum_may_come_before_the_initial_value(
    network: Build, tiny: Any, simulate: Build
) -> None:
    """Where two hops of the ring take less time than the direct way."""
    content = network(1, 1, 1)
    ways = {"party0": {"party1": 0.0, "party2": 500.0}, "party1": {"party2": 0.0}}
    content["delay_ms"] = ways | {"hub": {"party0": 3.0, "party1": 3.0, "party2": 3.0}}
    star = simulate(content, tiny)
    assert close(star.parameters, around(content, tiny, simulate).parameters, 1e-5)


SCRIPT = """
import numpy as np, geomx, geomx.kv
store = geomx.kv.create("dist_sync")
if store.global_rank == 2:
    geomx.sleep(LATE)
store.init([0, 1], [np.zeros(30), np.ones(7)])
OPTIMIZER
for step in range(2):
    store.push([0, 1], [np.full(30, 1.0), np.full(7, 2.0)])
    values = [float(each.mean()) for each in store.pull([0, 1])]
assert np.allclose(values, EXPECTED, rtol=1e-5), values
"""


def run_around(folder: Path, accel: str, optimizer: str, expected: list[float], live: bool) -> None:
    """Run SCRIPT where two hops are quicker than the direct one; live, a worker starts late."""
    content = short_form(1, 1, 1)
    content["delay_ms"] = {"party0": {"party1": 0.0, "party2": 80.0}, "party1": {"party2": 0.0}}
    content["delay_ms"]["hub"] = {"party0": 1.0, "party1": 1.0, "party2": 1.0}
    (folder / "ring.yaml").write_text(yaml.safe_dump(content))
    script = SCRIPT.replace("OPTIMIZER", optimizer).replace("EXPECTED", str(expected))
    (folder / "train.py").write_text(script.replace("LATE", "0.3" if live else "0"))
    words = [f"network={folder / 'ring.yaml'}", f"+accel=[{accel}]"]
    experiment, directory = compose([*words, f"hydra.run.dir={folder / 'run'}"])
    command = [sys.executable, str(folder / "train.py")]
    if live:
        run_script(experiment, directory, command)
    else:
        simulate_command(experiment, directory, command, "constant:0.01")
    assert loads((directory / "summary.json").read_text())["rounds"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("live", [False, True])
def test_a_script_need_not_know_a_key_when_a_sum_comes(live: bool, tmp_path: Path) -> None:
    run_around(tmp_path, "ring", "", [3.0, 6.0], live)


@pytest.mark.slow
@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("accel", ["ring", "bisparse", "ring,bisparse", "multiroot", "tsengine"])
def test_no_push_is_used_before_the_optimizer_is_known(
    accel: str, live: bool, tmp_path: Path
) -> None:
    """It is set after the keys: the instruction may come later than pushes of other workers."""
    if not {*accel.split(",")} <= {plugin.name for plugin in Registry.discover().plugins("accel")}:
        pytest.skip(f"not installed: {accel}")
    optimizer = 'store.set_optimizer("sgd", learning_rate=0.25)'
    run_around(tmp_path, accel, optimizer, [-1.5, -2.0], live)


@pytest.mark.slow
@pytest.mark.parametrize("accel", ["ring", "bisparse", "tsengine"])
def test_another_optimizer_is_refused_during_training(accel: str, tmp_path: Path) -> None:
    """It would reach some servers after pushes that were made later."""
    if accel not in {plugin.name for plugin in Registry.discover().plugins("accel")}:
        pytest.skip(f"not installed: {accel}")
    script = f"""
def tell():
    store.set_optimizer("sgd", learning_rate=0.25)
tell()
tell()
store.push(0, np.full(30, 1.0))
store.pull(0)
try:
    tell()
except geomx.ConfigError as error:
    assert "another one was set before, and under accel {accel} servers" in str(error), error
else:
    raise AssertionError
"""
    run_around(tmp_path, accel, script, [-2.25, -2.0], live=False)


@pytest.mark.parametrize("workers", [(1, 1), (2, 1, 3), (1,) * 5, (1,) * 8])
def test_each_link_carries_all_parts_but_one_each_way(
    network: Build, sized: Build, simulate: Build, workers: tuple[int, ...]
) -> None:
    parties, iterations = len(workers), 3
    elements = [parties * 400, parties * 52]
    ring = around(network(*workers), sized(*elements), simulate, iterations=iterations)
    rows = [row for row in ring.results.links if row["kind"] == "wan" and row["bytes"]]
    names = [f"party{at}/server" for at in range(parties)]
    ways = {(names[at], names[(at + 1) % parties]) for at in range(parties)}
    assert {(row["source"], row["target"]) for row in rows} == ways
    part = sum(4 * count // parties + HEADER_BYTES for count in elements)
    for row in rows:
        assert row["bytes"] == iterations * 2 * (parties - 1) * part


def test_the_ring_relieves_a_hub(network: Build, sized: Build, simulate: Build) -> None:
    """Equal links of n parties: the hub's carries n times the model, a link of the ring 2."""
    content = network(*[1] * 8, delay_ms=0.1)
    content["central"] |= {"uplink_mbps": 100, "downlink_mbps": 100}
    workload = sized(*[500_000] * 8)
    star = simulate(content, workload, iterations=4)
    ring = around(content, workload, simulate, iterations=4)
    seconds = []
    for rows in (star.results.iterations, ring.results.iterations):
        seconds.append(max(row["end_s"] for row in rows) - max(row["start_s"] for row in rows[:8]))
    assert seconds[0] > 2.5 * seconds[1], seconds


@pytest.mark.slow
def test_simulated_and_live_runs_agree(tmp_path: Path) -> None:
    network = tmp_path / "network.yaml"
    content = short_form(2, 1, 1, mbps=1000, delay_ms=2)
    network.write_text(yaml.safe_dump(content), encoding="utf-8")
    words = [f"network={network}", "workload=tiny", "+accel=[ring]", "iterations=6", "mode=both"]
    run([*words, f"hydra.run.dir={tmp_path / 'run'}"])
    comparison = loads((tmp_path / "run" / "comparison.json").read_text(encoding="utf-8"))
    assert comparison["parameters"]["max_relative_difference"] <= 1e-5
    for kind in ("wan_push", "wan_pull", "lan"):
        assert comparison["bytes"][kind]["relative_error"] == 0


class Late:
    """A slicer of a third party that says of itself that it sends best effort."""

    best_effort = True


def test_best_effort_slices_are_refused_whoever_sends_them(network: Build) -> None:
    assert sends_best_effort(Late())
    assert sends_best_effort(geomx.Native("slicer", "any", grace_s=0.1))
    assert not sends_best_effort(geomx.Native("slicer", "any"))
    registry = Registry.discover()
    names = [("ring", {})]
    if "dgt" not in {plugin.name for plugin in registry.plugins("accel")}:
        pytest.skip("not installed: dgt")
    selection = registry.select(None, [*names, ("dgt", {})])
    cluster = selection.cluster(read_network(network(1, 1)))
    with pytest.raises(
        ConfigError, match=r"accel=\[ring,dgt\]: ring forwards .* leave out dgt or ring"
    ):
        selection.overlays(cluster)


def test_parties_that_do_not_update_together_have_no_ring(network: Build, tiny: Any) -> None:
    if "mixedsync" not in {plugin.name for plugin in Registry.discover().plugins("sync")}:
        pytest.skip("not installed: mixedsync")
    selection = Registry.discover().select(("mixedsync", {}), [("ring", {})])
    cluster = selection.cluster(read_network(network(2, 1)))
    assert selection.overlays(cluster) == []
    assert len(cluster.global_servers) == 2
