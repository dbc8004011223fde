"""Warnings for cases in which the network model is known to be inexact.

Loss-based congestion control shares a link between connections roughly in inverse proportion to
their round-trip times (Lakshman and Madhow 1997), and no flow model is much more exact than that:
measured against real TCP, shares of connections whose round trips differ more than twofold are 30
to 80 % off. BBR, which does not treat loss as congestion, is predictable there.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable

TWOFOLD = 2.0
LOSS_BASED = ("cubic", "reno")


class ModelWarning(UserWarning):
    """The model gives a result, but is known to be inexact in this case."""


def warn_of_uneven_round_trips(
    congestion: str, ways: Iterable[tuple[Iterable[Hashable], float]]
) -> None:
    """Warn if connections with very different round trips share an edge under loss-based control.

    Args:
        congestion: The congestion control.
        ways: For each connection, the edges that limit it and its round-trip time in seconds.
    """
    if congestion not in LOSS_BASED:
        return
    spans: dict[Hashable, tuple[float, float]] = {}
    for edges, rtt_s in ways:
        for edge in edges:
            low, high = spans.get(edge, (math.inf, 0.0))
            spans[edge] = (min(low, rtt_s), max(high, rtt_s))
    uneven = {edge: span for edge, span in spans.items() if span[1] > TWOFOLD * span[0] > 0}
    if not uneven:
        return
    edge = max(uneven, key=lambda edge: uneven[edge][1] / uneven[edge][0])
    low, high = uneven[edge]
    where = " -> ".join(map(str, edge)) if isinstance(edge, tuple) else str(edge)
    warnings.warn(
        f"connections with round trips from {low * 1e3:.3g} to {high * 1e3:.3g} ms share {where} "
        f"under {congestion}: predictions are then 30 to 80 % off; with bbr they are not",
        ModelWarning,
        stacklevel=3,
    )
