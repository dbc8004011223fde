"""From repeated measurements of processor time to a cost per message and one per byte.

Every measurement is a sum of known counts of messages and bytes with unknown costs. All of them
together are solved by non-negative least squares on relative errors, so that small messages and
large ones weigh alike. What counts is the median of the repeats; how far the repeats' own solutions
lie apart is the spread.
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
        counts: How much there was of each figure, by name.
        seconds: What it took, by repeat.
    """

    counts: Mapping[str, float]
    seconds: Sequence[float]


def fit(samples: Sequence[Sample]) -> tuple[dict[str, float], dict[str, float]]:
    """Costs by name, and their spread: half the distance of the quartiles over the cost.

    Args:
        samples: With equally many repeats, each above zero.
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
