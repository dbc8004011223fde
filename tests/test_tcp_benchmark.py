"""Laws of ``benchmarks/tcp``: draws follow from the seed, all transfers are measured."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from geomx import _core

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from tcp import connections


def test_a_way_follows_from_seed_and_number():
    ways = [connections.draw(seed, number, "bbr") for seed in (1, 2) for number in (0, 1)]
    assert ways[0] == connections.draw(1, 0, "bbr")
    assert len({way.mbps for way in ways}) == 4
    for way in ways:
        sizes = [size for state in way.sizes.values() for size in state]
        assert all(1e4 <= size <= 1e8 for size in sizes)
        assert max(sizes) <= way.mbps * 125_000 * connections.LONGEST_S


@pytest.mark.skipif(bool(_core.why_no_namespaces()), reason="needs root and network namespaces")
def test_transfers_over_the_kernel_are_compared():
    sizes = {state: [20_000 + index for index in range(2)] for state in connections.STATES}
    rows = list(connections.rows_of(connections.Way(50.0, 4.0, "reno", sizes, [0.01, 0.02])))
    assert [(row["state"], row["bytes"]) for row in rows] == [
        ("new", 20_000), ("new", 20_001), ("kept", 20_001), ("idle", 20_000), ("idle", 20_001),
    ]  # fmt: skip
    least_s = 20_000 / (50 * 125_000)
    assert all(row["seconds"] > least_s for row in rows)  # not even here is anything quicker
    assert all(math.isfinite(error) for row in rows for error in row["errors"].values())
    assert all(row["errors"]["size / bandwidth"] < 0 for row in rows)
    found = dict(connections.groups(rows))
    assert connections.figures(found["all"])["transfers"] == 5
    assert connections.table(rows).count("| reno, ") == 3 + 5
