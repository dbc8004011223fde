"""P3's gain as a function of bandwidth has one maximum (Jayarajan et al., MLSys 2019).

With ample bandwidth, there is little communication to overlap; with scarce bandwidth, there is
little computation to overlap it with. In between, slices pipeline the transfer of large tensors,
and priorities let the next forward pass begin before the last gradient has been received. The bound
for equal layers, with a backward pass twice as long as the forward pass, is 4/3. Numerics are off,
as only sizes and times matter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import networkx as nx
import pytest

from geomx.network.files import read_network
from geomx.network.links import PAYLOAD_SHARE
from geomx.workload import Layer, TensorSpec, Workload
from tests.laws import Build

pytestmark = pytest.mark.needs("p3")

FORWARD_S, BACKWARD_S = 0.1, 0.2
PARAMETERS = 6_000_000
LAYERS = 12
UNIFORM = [PARAMETERS // LAYERS] * LAYERS
SMALL = PARAMETERS * 3 // 10 // (LAYERS - 1)
SKEWED = [SMALL] * (LAYERS - 2) + [PARAMETERS * 7 // 10, SMALL]
ITERATIONS = 6
PLAIN: list[Any] = []
SLICES = [("p3", {"prioritise": False})]
P3 = ["p3"]

Took = Callable[[list[int], float, list[Any]], float]


def workload(elements: list[int]) -> Workload:
    share = 1 / len(elements)
    layers = [Layer(f"l{i}", FORWARD_S * share, BACKWARD_S * share) for i in range(len(elements))]
    tensors = [TensorSpec(f"t{i}", (count,), i) for i, count in enumerate(elements)]
    return Workload("sizes", tuple(layers), tuple(tensors), 1, 1, ITERATIONS)


def mbps(load: float) -> float:
    """Return the bandwidth at which sending all parameters takes `load` times the computing."""
    return 32 * PARAMETERS / (load * (FORWARD_S + BACKWARD_S)) / 1e6 / PAYLOAD_SHARE


def steady(run: Any) -> float:
    """Return the seconds of an iteration in the middle of a run."""
    rows = [row for row in run.results.iterations if 2 <= row["iteration"] < ITERATIONS - 1]
    return fmean(row["end_s"] - row["start_s"] for row in rows)


@pytest.fixture
def took(network: Build, simulate: Build) -> Took:
    """Measure the seconds per iteration of two parties of one worker, at a load."""

    def measure(elements: list[int], load: float, accel: list[Any]) -> float:
        lan = {"mbps": 1e6, "delay_ms": 0.0}
        content = network(1, 1, mbps=mbps(load), delay_ms=0.1, lan=lan)
        return steady(simulate(content, workload(elements), accel=accel))

    return measure


@pytest.mark.slow
def test_the_gain_with_equal_layers_has_one_maximum(took: Took) -> None:
    gain = {
        load: took(UNIFORM, load, PLAIN) / took(UNIFORM, load, P3)
        for load in (0.05, 0.3, 0.7, 1.0, 2.0, 6.0, 40.0)
    }
    loads = list(gain)
    peak = max(loads, key=gain.__getitem__)
    assert gain[loads[0]] < 1.05, gain
    assert gain[loads[-1]] < 1.1, gain
    assert peak == 1.0
    assert 1.2 <= gain[peak] < 4 / 3 + 0.1, gain
    rising, falling = loads[: loads.index(peak) + 1], loads[loads.index(peak) :]
    assert sorted(rising, key=gain.__getitem__) == rising, gain
    assert sorted(falling, key=gain.__getitem__, reverse=True) == falling, gain


@pytest.mark.slow
def test_the_gain_with_one_large_layer(took: Took) -> None:
    """Slices cause most of it. With scarce bandwidth it is 1 + s, as both directions overlap."""
    plain, slices, p3 = (took(SKEWED, 1.0, accel) for accel in (PLAIN, SLICES, P3))
    assert plain / p3 >= 1.5
    assert plain / slices - 1 >= (plain / p3 - 1) / 2
    assert took(SKEWED, 0.05, PLAIN) / took(SKEWED, 0.05, P3) < 1.05
    assert took(SKEWED, 40.0, PLAIN) / took(SKEWED, 40.0, P3) == pytest.approx(1.7, rel=0.03)


@pytest.mark.slow
def test_the_gain_in_the_papers_setting(simulate: Build, tmp_path: Path) -> None:
    """Four machines with one link each, which the machine's worker and server share."""
    machines = 4

    def graph(bandwidth: float) -> nx.DiGraph:
        made = nx.DiGraph(name="machines")
        for number in range(machines):
            machine = f"machine{number}"
            kinds = ("worker", "server", "global_server")
            made.add_nodes_from((f"{machine}/{k}", {"kind": k, "party": machine}) for k in kinds)
            for kind in kinds:
                inside = {"bandwidth_mbps": 1e6}
                made.add_edge(f"{machine}/{kind}", machine, **inside)
                made.add_edge(machine, f"{machine}/{kind}", **inside)
            made.add_edge(machine, "switch", bandwidth_mbps=bandwidth, delay_ms=0.05)
            made.add_edge("switch", machine, bandwidth_mbps=bandwidth, delay_ms=0.05)
        return made

    def measure(load: float, accel: list[Any]) -> float:
        # A worker sends 3/4 of all bytes to other machines, and its server as much.
        content = nx.node_link_data(graph(1.5 * mbps(load)), edges="links")
        path = tmp_path / "machines.json"
        path.write_text(json.dumps(content))
        cluster = read_network({"file": str(path)})
        return steady(simulate(cluster, workload(UNIFORM), accel=accel))

    gains = [measure(load, PLAIN) / measure(load, P3) for load in (0.05, 1.0, 40.0)]
    assert gains[0] < 1.05, gains
    assert gains[1] >= 1.2, gains
    assert gains[2] < 1.05, gains
