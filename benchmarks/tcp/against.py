#!/usr/bin/env python3
"""TCP connections that send against each other, compared with the model, on random paths.

A path is two network namespaces with a router between them (`geomx._core.Router`) and a random
bandwidth each way. Over one connection per direction, bursts start repeatedly and at the same time.
Acknowledgements of each direction meet the data of the other, so the faster direction is slowed
where its way back is narrow. The kernel's times are compared with those of
`geomx.sim.transfer_times` for the same starts, with acknowledgements and without.

    python benchmarks/tcp/against.py              # root; about eight minutes
    python benchmarks/tcp/against.py --ways 2     # a look; nothing is written
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
from bursts import connected, timed
from connections import WINDOW_BYTES

from geomx import _core
from geomx.live.namespaces import FIRST_ADDRESS, queue_bytes, settings
from geomx.options.schema import ACK_SHARE
from geomx.sim import transfer_times
from geomx.terminal import units
from geomx.terminal.progress import progress

RESULTS = Path(__file__).parents[1] / "results"
WAYS = 24
ROUNDS = 6
LEARNING = 2  # initial rounds, which are ignored
MBPS = (10.0, 500.0)
RTT_MS = (5.0, 200.0)
ALONE_S = (0.1, 2.0)
PAUSE_S = 0.3
SHARES = {"model": ACK_SHARE, "without": 0.0}


@dataclass(frozen=True)
class Way:
    """The bandwidths of both directions, the round trip, and the bytes that each sends."""

    mbps: tuple[float, float]
    rtt_ms: float
    sizes: tuple[int, int]

    def graph(self) -> nx.DiGraph:
        """The path as a graph for the model."""
        edges = [{"bandwidth_mbps": mbps, "delay_ms": self.rtt_ms / 2} for mbps in self.mbps]
        return nx.DiGraph([(0, 1, edges[0]), (1, 0, edges[1])])


def draw(seed: int, number: int) -> Way:
    """Return path `number`; bandwidths, round trip and durations are log-uniform."""
    rng = np.random.default_rng([seed, number])

    def even(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    there, back = (round(even(*MBPS), 1) for _ in range(2))
    sizes = tuple(round(even(*ALONE_S) * mbps * 125_000) for mbps in (there, back))
    return Way((there, back), round(even(*RTT_MS), 1), sizes)


# ---- the kernel ----


class Ground:
    """The namespaces of a path, with a connection each way. Use as a context manager."""

    def __init__(self, way: Way, congestion: str) -> None:
        self._congestion = congestion
        self._router = _core.Router(1)
        addresses = FIRST_ADDRESS, FIRST_ADDRESS + 1
        self._spaces = [
            self._router.add_site([address], settings(WINDOW_BYTES)) for address in addresses
        ]
        for (source, target), mbps in zip((addresses, addresses[::-1]), way.mbps, strict=True):
            queue = queue_bytes({"bandwidth_mbps": mbps}, way.rtt_ms / 1e3)
            edge = self._router.add_edge(mbps * 125_000, round(way.rtt_ms * 5e5), 0, 0.0, queue)
            self._router.add_route(source, target, [edge])

    def __enter__(self) -> Ground:
        self._router.start()
        self.pairs = [
            connected(self._spaces, source, 1 - source, self._congestion) for source in range(2)
        ]
        return self

    def __exit__(self, *raised: object) -> None:
        for end in (end for pair in self.pairs for end in pair):
            end.close()
        self._router.stop()


def measured(way: Way, congestion: str) -> tuple[np.ndarray, np.ndarray]:
    """Return start and arrival of every burst, in seconds; rounds by directions."""
    with Ground(way, congestion) as ground:
        return timed(ground.pairs, way.sizes, [PAUSE_S] * 2, ROUNDS)


# ---- the model ----


def modelled(way: Way, congestion: str, began_s: np.ndarray, share: float) -> np.ndarray:
    """Return the arrivals by the model, for a share of acknowledgements on the way back."""
    flows = [
        (direction, 1 - direction, way.sizes[direction], float(start_s))
        for row in began_s
        for direction, start_s in enumerate(row)
    ]
    ends = transfer_times(
        way.graph(), flows, congestion=congestion, new_connections=False, fifo=True,
        reverse_share=share,
    )  # fmt: skip
    return np.array(ends).reshape(began_s.shape)


def row_of(way: Way, congestion: str) -> dict[str, object]:
    """Return the median seconds of each direction, measured and by the models."""
    began_s, ended_s = measured(way, congestion)
    ends = {name: modelled(way, congestion, began_s, share) for name, share in SHARES.items()}
    took = {
        name: np.round(np.median((each - began_s)[LEARNING:], axis=0), 5).tolist()
        for name, each in {"measured": ended_s, **ends}.items()
    }
    return {**way.__dict__, "congestion": congestion, **took}


def table(rows: list[dict]) -> str:
    """Return the errors, and the connections with the largest ones, as Markdown."""
    lines = ["| | number | mean error | median | 95th percentile | bias |", "|---" * 6 + "|"]
    for congestion in dict.fromkeys(row["congestion"] for row in rows):
        own = [row for row in rows if row["congestion"] == congestion]
        for name in SHARES:
            found = np.concatenate([np.divide(row[name], row["measured"]) - 1 for row in own])
            size = np.abs(found)
            figures = (size.mean(), np.median(size), np.quantile(size, 0.95), np.median(found))
            what = "acknowledgements" if name == "model" else "no acknowledgements"
            shares = " | ".join(map(units.share, figures))
            lines.append(f"| {congestion}, {what} | {len(found)} | {shares} |")
    lines += [
        "",
        "The ten largest errors of each:",
        "",
        "| | Mbit/s | round trip | bytes | took | model | without acknowledgements |",
        "|---" * 7 + "|",
    ]
    for congestion in dict.fromkeys(row["congestion"] for row in rows):
        own = [(row, end) for row in rows if row["congestion"] == congestion for end in range(2)]
        own.sort(key=lambda one: -abs(one[0]["model"][one[1]] / one[0]["measured"][one[1]] - 1))
        for row, end in own[:10]:
            took = row["measured"][end]
            cells = [
                congestion, f"{row['mbps'][end]:g} against {row['mbps'][1 - end]:g}",
                f"{row['rtt_ms']:g} ms", units.size(row["sizes"][end]), units.duration(took),
                *(units.signed_share(row[name][end] / took - 1) for name in SHARES),
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--ways", type=int, default=WAYS, help="how many are drawn")
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--congestion", default="bbr,cubic", help="each way has these in turn")
    arguments = parser.parse_args()
    if reason := _core.why_no_namespaces():
        sys.exit(f"network namespaces are needed: {reason}")
    controls = arguments.congestion.split(",")
    rows = []
    with progress(arguments.ways * len(controls), "ways") as advance:
        for congestion in controls:
            for number in range(arguments.ways):
                rows.append(row_of(draw(arguments.seed, number), congestion))
                advance(1)
    print(table(rows))
    if arguments.ways < WAYS:
        return
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}"
    (RESULTS / "against.md").write_text(
        "# TCP connections that send against each other, and the model\n\n"
        f"Generated by `benchmarks/tcp/against.py`: {arguments.ways} random paths, seed "
        f"{arguments.seed}, {machine}. Medians of {ROUNDS - LEARNING} rounds; errors are "
        "(model - measured) / measured.\n\n" + table(rows),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
