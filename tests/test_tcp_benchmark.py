"""Laws of ``benchmarks/tcp``: draws depend on the seed. Its measurements: test_netns.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from tcp import connections


def test_a_path_depends_on_seed_and_number():
    ways = [connections.draw(seed, number, "bbr") for seed in (1, 2) for number in (0, 1)]
    assert ways[0] == connections.draw(1, 0, "bbr")
    assert len({way.mbps for way in ways}) == 4
    for way in ways:
        sizes = [size for state in way.sizes.values() for size in state]
        assert all(1e4 <= size <= 1e8 for size in sizes)
        assert max(sizes) <= way.mbps * 125_000 * connections.LONGEST_S
