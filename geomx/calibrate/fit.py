"""Costs per message and per byte, fitted to repeated measurements of processor time.

Every measurement is a sum of known counts of messages and bytes times unknown costs. The costs are
solved for by non-negative least squares on relative errors, so that small and large messages have
the same weight. The result is the solution for the medians of the repeats; the spread is the
interquartile range of the solutions for single repeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls


@dataclass(frozen=True)
class Sample:
    """One situation, measured several times.

    Attributes:
        counts: Amount of each cost, by its name.
        seconds: Measured time of each repeat.
    """

    counts: Mapping[str, float]
    seconds: Sequence[float]


def fit(samples: Sequence[Sample]) -> tuple[dict[str, float], dict[str, float]]:
    """Fit costs to samples.

    Args:
        samples: All with the same number of repeats, each above zero.

    Returns:
        Costs by name, in seconds, and their spread: half the interquartile range over the cost.
    """
    names = sorted({name for sample in samples for name in sample.counts})
    counts = np.array([[sample.counts.get(name, 0.0) for name in names] for sample in samples])
    seconds = np.array([sample.seconds for sample in samples])  # samples x repeats
    costs = _solve(counts, np.median(seconds, axis=1))
    repeats = np.array([_solve(counts, column) for column in seconds.T])
    low, high = np.quantile(repeats, (0.25, 0.75), axis=0)
    spread = np.divide((high - low) / 2, costs, out=np.zeros_like(costs), where=costs > 0)
    return dict(zip(names, costs.tolist(), strict=True)), dict(
        zip(names, spread.tolist(), strict=True)
    )


def _solve(counts: NDArray[np.float64], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    relative = counts / seconds[:, None]
    scale = relative.max(axis=0)
    solution, _ = nnls(relative / scale, np.ones(len(seconds)))
    answer: NDArray[np.float64] = solution / scale
    return answer
