"""The law of full synchrony: n workers equal one worker on all their batches.

Lossless plugins (overlays, placements, slices), alone, in pairs and all together, in any order, may
change sums by rounding errors only. Tensors are divided and placed as in GeoMX.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from geomx.network.files import read_network
from geomx.plugin.parts import ByTurns, Shard, cut_evenly
from tests.conftest import installed
from tests.laws import Build, close, on_all_batches

INSTALLED = {plugin.name for plugin in installed().plugins("accel")}
LOSSLESS: dict[str, dict[str, Any]] = {
    "p3": {"slice_elements": 50},
    "multigps": {"servers": 3, "shard_elements": 30},
    "tsengine": {},
    "bisparse": {"ratio": 1.0, "min_elements": 1, "warmup_rounds": 0},
    "dgt": {"k": 1.0, "adaptive": False, "block_bytes": 64},
}
TRANSPORTS = [(name,) for name in LOSSLESS if name in INSTALLED]
TRANSPORTS += permutations([name for name in LOSSLESS if name in INSTALLED], 2)
TRANSPORTS.append(tuple(name for name in LOSSLESS if name in INSTALLED))


@pytest.mark.parametrize("names", TRANSPORTS, ids="+".join)
@pytest.mark.parametrize("counts", [(3,), (2, 1, 3)])
def test_one_worker_on_all_batches(
    counts: tuple[int, ...],
    names: tuple[str, ...],
    network: Build,
    tiny: Any,
    simulate: Build,
    seed: int,
) -> None:
    alone = on_all_batches(tiny, seed, sum(counts))
    accel = [(name, LOSSLESS[name]) for name in names]
    selection = installed().select(None, accel)
    cluster = selection.cluster(read_network(network(*counts)))
    run = simulate(cluster, tiny, accel=accel)
    assert close(run.parameters, alone, 1e-5)


@pytest.mark.parametrize(
    ("servers", "expected"),
    [(1, [0] * 10), (2, [0, 1] * 5), (3, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0])],
)
def test_small_tensors_are_placed_as_in_geomx(servers: int, expected: list[int]) -> None:
    """Keys 0 to 9 by key * 9973 mod n, which is round robin."""
    placed = [ByTurns(servers).server(key, 0, [Shard(0, 1)]) for key in range(10)]
    assert placed == expected == [key * 9973 % servers for key in range(10)]


@pytest.mark.needs("multigps")
@pytest.mark.parametrize(
    ("elements", "servers", "expected"),
    [
        (1_000_001, 3, [333_334, 333_333, 333_334]),
        (1_000_000, 3, [333_333, 333_334, 333_333]),
        (2_359_296, 2, [1_179_648] * 2),
        (999_999, 3, [999_999]),
    ],
)
def test_large_tensors_are_divided_as_in_geomx(
    elements: int, servers: int, expected: list[int], network: Build, sized: Build
) -> None:
    accel = ("multigps", {"servers": servers, "shard_elements": 1_000_000})
    selection = installed().select(None, [accel])
    cluster = selection.cluster(read_network(network(1)))
    (tensor,) = sized(elements).tensors
    pieces = [Shard(0, elements)]
    for partitioner in selection.partitioners(cluster):
        pieces = partitioner.cut(tensor, 0, pieces)
    assert [piece.elements for piece in pieces] == expected


def test_even_pieces_cover_the_shard_and_obey_the_bound(seed: int) -> None:
    draw = np.random.default_rng(seed)
    for _ in range(500):
        elements, bound = (int(n) for n in draw.integers(1, 5000, 2))
        start = int(draw.integers(0, 100))
        pieces = cut_evenly(Shard(start, elements), bound)
        sizes = [piece.elements for piece in pieces]
        assert max(sizes) <= bound
        assert max(sizes) - min(sizes) <= 1
        ends = [piece.offset + piece.elements for piece in pieces]
        assert [piece.offset for piece in pieces] == [start, *ends[:-1]]
        assert ends[-1] == start + elements
