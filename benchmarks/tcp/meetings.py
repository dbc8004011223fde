#!/usr/bin/env python3
"""TCP connections that share a hub, compared with the model, on random stars.

A star is 2 to 5 leaves around a hub, each a network namespace, with a router between them
(`geomx._core.Router`). Over one connection per leaf, all towards the hub or all away from it,
bursts of equal size start repeatedly and slightly staggered, as in rounds of training. The kernel's
times are compared with those of `geomx.sim.transfer_times` for the same starts: of each leaf, and
of the whole round up to the last arrival, for which synchronous training waits.

    python benchmarks/tcp/meetings.py              # root; about eight minutes
    python benchmarks/tcp/meetings.py --stars 2    # a look; nothing is written
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
from bursts import Pair, connected, timed
from connections import WINDOW_BYTES

from geomx import _core
from geomx.live.namespaces import FIRST_ADDRESS, queue_bytes, settings
from geomx.sim import transfer_times
from geomx.terminal import units
from geomx.terminal.progress import progress

RESULTS = Path(__file__).parents[1] / "results"
STARS = 24
ROUNDS = 12
LEARNING = 2  # initial rounds, which are ignored
MBPS = (10.0, 500.0)
SIZES = (1e5, 3e6)


@dataclass(frozen=True)
class Star:
    """A hub, its leaves, and the traffic of every round."""

    outward: bool
    hub_mbps: float
    leaf_mbps: list[float]
    delay_ms: list[float]
    size: int
    offset_s: list[float]
    pause_s: float

    def graph(self) -> nx.DiGraph:
        """The star as a graph for the model."""
        graph = nx.DiGraph()
        hub = {"bandwidth_mbps": self.hub_mbps, "delay_ms": 0.0}
        graph.add_edges_from([("hub", "core", hub), ("core", "hub", hub)])
        for leaf, (mbps, delay_ms) in enumerate(zip(self.leaf_mbps, self.delay_ms, strict=True)):
            edge = {"bandwidth_mbps": mbps, "delay_ms": delay_ms}
            graph.add_edges_from([(leaf, "core", edge), ("core", leaf, edge)])
        return graph


def draw(seed: int, number: int) -> Star:
    """Return star `number`; bandwidths and the size are log-uniform."""
    rng = np.random.default_rng([seed, number])

    def even(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    leaves = int(rng.integers(2, 6))
    return Star(
        outward=bool(rng.integers(2)),
        hub_mbps=round(even(*MBPS), 1),
        leaf_mbps=[round(even(*MBPS), 1) for _ in range(leaves)],
        delay_ms=[round(float(rng.uniform(1, 50)), 2) for _ in range(leaves)],
        size=round(even(*SIZES)),
        offset_s=[float(rng.choice([0.0, 0.0, 0.03, 0.1])) for _ in range(leaves)],
        pause_s=round(float(rng.uniform(0.05, 0.3)), 2),
    )


class Ground:
    """The namespaces of a star, with a connection for each leaf. Use as a context manager."""

    def __init__(self, star: Star, congestion: str) -> None:
        self._star, self._congestion = star, congestion
        self._router = router = _core.Router(1)
        hub, kernel = FIRST_ADDRESS, settings(WINDOW_BYTES)
        leaves = range(len(star.leaf_mbps))
        self._spaces = [
            router.add_site([hub + number], kernel) for number in (0, *map(_after, leaves))
        ]
        longest_s = 2 * max(star.delay_ms) / 1e3
        out, into = (self._edge(star.hub_mbps, 0.0, longest_s) for _ in range(2))
        for leaf in leaves:
            delay_ms = star.delay_ms[leaf]
            up, down = (
                self._edge(star.leaf_mbps[leaf], delay_ms, 2 * delay_ms / 1e3) for _ in range(2)
            )
            router.add_route(hub + _after(leaf), hub, [up, into])
            router.add_route(hub, hub + _after(leaf), [out, down])

    def __enter__(self) -> Ground:
        self._router.start()
        self.pairs = [self._connect(leaf) for leaf in range(len(self._star.leaf_mbps))]
        return self

    def __exit__(self, *raised: object) -> None:
        for end in (end for pair in self.pairs for end in pair):
            end.close()
        self._router.stop()

    def _edge(self, mbps: float, delay_ms: float, rtt_s: float) -> int:
        queue = queue_bytes({"bandwidth_mbps": mbps}, rtt_s)
        return self._router.add_edge(mbps * 125_000, round(delay_ms * 1e6), 0, 0.0, queue)

    def _connect(self, leaf: int) -> Pair:
        source, target = (0, _after(leaf)) if self._star.outward else (_after(leaf), 0)
        return connected(self._spaces, source, target, self._congestion)


def _after(leaf: int) -> int:
    """Return the number of a leaf's address; the hub's is 0."""
    return leaf + 1


def measured(star: Star, congestion: str) -> tuple[np.ndarray, np.ndarray]:
    """Return start and arrival of every burst, in seconds; rounds by leaves."""
    pauses_s = [star.pause_s + offset_s for offset_s in star.offset_s]
    with Ground(star, congestion) as ground:
        return timed(ground.pairs, [star.size] * len(pauses_s), pauses_s, ROUNDS)


def modelled(star: Star, congestion: str, began_s: np.ndarray) -> np.ndarray:
    """Return the arrivals by the model."""
    flows = [
        ("hub", leaf, star.size, start_s) if star.outward else (leaf, "hub", star.size, start_s)
        for row in began_s
        for leaf, start_s in enumerate(row)
    ]
    ends = transfer_times(
        star.graph(), flows, congestion=congestion, new_connections=False, fifo=True
    )
    return np.array(ends).reshape(began_s.shape)


def row_of(star: Star, congestion: str) -> dict[str, object]:
    """Return medians over rounds per leaf and for the whole round, measured and modelled."""
    began_s, ended_s = measured(star, congestion)
    took = {}
    for name, ends in (("measured", ended_s), ("model", modelled(star, congestion, began_s))):
        each = np.median((ends - began_s)[LEARNING:], axis=0)
        whole = np.median((ends.max(axis=1) - began_s.min(axis=1))[LEARNING:])
        took[name] = {"each": np.round(each, 5).tolist(), "whole": round(float(whole), 5)}
    return {**star.__dict__, "congestion": congestion, **took}


def errors(rows: list[dict], what: str) -> np.ndarray:
    """Return relative errors of the model, of ``"each"`` leaf or of the ``"whole"`` round."""
    pairs = [
        (np.atleast_1d(row["model"][what]), np.atleast_1d(row["measured"][what])) for row in rows
    ]
    return np.concatenate([model / took - 1 for model, took in pairs])


def table(rows: list[dict]) -> str:
    """Return the errors, and every star, as Markdown."""
    lines = ["| | number | mean error | median | 95th percentile | bias |", "|---" * 6 + "|"]
    for congestion in dict.fromkeys(row["congestion"] for row in rows):
        own = [row for row in rows if row["congestion"] == congestion]
        for what in ("whole", "each"):
            found = errors(own, what)
            size = np.abs(found)
            figures = (size.mean(), np.median(size), np.quantile(size, 0.95), np.median(found))
            name = f"{congestion}, {'whole rounds' if what == 'whole' else 'single leaves'}"
            lines.append(f"| {name} | {len(found)} | {' | '.join(map(units.share, figures))} |")
    lines += [
        "",
        "| | direction | hub, Mbit/s | leaves, Mbit/s (ms one way) | bytes | took | model |",
        "|---" * 7 + "|",
    ]
    for row in rows:
        pairs = zip(row["leaf_mbps"], row["delay_ms"], strict=True)
        leaves = ", ".join(f"{mbps:g} ({delay_ms:g})" for mbps, delay_ms in pairs)
        took, model = (row[name]["whole"] for name in ("measured", "model"))
        cells = [
            row["congestion"], "outward" if row["outward"] else "inward",
            f"{row['hub_mbps']:g}", leaves,
            units.size(row["size"]), units.duration(took), units.signed_share(model / took - 1),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--stars", type=int, default=STARS, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--congestion", default="bbr,cubic", help="each star has these in turn")
    arguments = parser.parse_args()
    if reason := _core.why_no_namespaces():
        sys.exit(f"network namespaces are needed: {reason}")
    controls = arguments.congestion.split(",")
    rows = []
    with progress(arguments.stars * len(controls), "stars") as advance:
        for congestion in controls:
            for number in range(arguments.stars):
                rows.append(row_of(draw(arguments.seed, number), congestion))
                advance(1)
    print(table(rows))
    if arguments.stars < STARS:
        return
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}"
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    (RESULTS / "meetings.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    (RESULTS / "meetings.md").write_text(
        "# TCP connections that share a hub against the model\n\n"
        f"Generated by `benchmarks/tcp/meetings.py`: {arguments.stars} random stars, seed "
        f"{arguments.seed}, {machine}. Medians of {ROUNDS - LEARNING} rounds; errors are "
        "(model - measured) / measured.\n\n" + table(rows),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
