"""Weighted max-min sharing of edges by progressive filling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SLACK = 1e-12
"""Relative difference below which two levels count as equal."""


@dataclass(frozen=True)
class Stream:
    """What wants to be sent.

    Attributes:
        hops: Bytes on each edge per byte of the stream's rate: 1 on its way, and a few per cent on
            the way back for acknowledgements.
        weight: Share, relative to the other streams of an edge.
        cap: The most that it can use, in bytes/s.
        priority_class: Lower classes are served first.
    """

    hops: Mapping[int, float]
    weight: float = 1.0
    cap: float = math.inf
    priority_class: int = 0


def share(capacities: Sequence[float], streams: Sequence[Stream]) -> list[float]:
    """Return the weighted max-min rates of streams.

    Of each class, all rates rise together, in proportion to the weights, until an edge is full or a
    stream has reached its cap; such streams keep their rates, and the others continue (Bertsekas
    and Gallager, Data Networks, 6.5).

    Args:
        capacities: Of the edges, in bytes/s; may be infinite.
        streams: The streams.

    Returns:
        Their rates in bytes/s; infinite where nothing limits one.
    """
    free = list(capacities)
    rates = [0.0] * len(streams)
    for present in sorted({stream.priority_class for stream in streams}):
        rising = {n for n, s in enumerate(streams) if s.priority_class == present and s.cap > 0}
        while rising:
            weights: dict[int, float] = {}
            for n in rising:
                for edge, per_byte in streams[n].hops.items():
                    weights[edge] = weights.get(edge, 0.0) + per_byte * streams[n].weight
            edge_level = {edge: max(free[edge], 0.0) / weight for edge, weight in weights.items()}
            cap_level = {n: streams[n].cap / streams[n].weight for n in rising}
            level = min([*edge_level.values(), *cap_level.values()])
            if level == math.inf:
                for n in rising:
                    rates[n] = math.inf
                break
            full = {e for e, reached in edge_level.items() if reached <= level * (1 + SLACK)}
            ended = {
                n
                for n in rising
                if cap_level[n] <= level * (1 + SLACK) or not full.isdisjoint(streams[n].hops)
            }
            for n in ended:
                rates[n] = min(level * streams[n].weight, streams[n].cap)
                for edge, per_byte in streams[n].hops.items():
                    free[edge] -= per_byte * rates[n]
            rising -= ended
    return rates
