"""Certainty of a plan: the lead of its first choice compared with the known uncertainties.

There are two. The simulator errs; its error is read from the results of ``benchmarks/fidelity`` if
there are any, and otherwise assumed, which is reported. And runs with different seeds differ if
anything is random. Both are modelled as normal in the logarithm of the time and independent between
candidates. In fact the simulator's errors on one network are correlated between candidates, so the
probabilities given here are conservative.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np

from geomx.errors import ConfigError

DRAWS = 20_000
HALF, MOST = 0.6745, 1.96
"""Half, and 95 %, of a normal distribution lie within this many sigma of its mean."""


@dataclass(frozen=True)
class Fidelity:
    """Error of the simulated seconds_per_iteration against live runs.

    Attributes:
        median: Median of the relative error's magnitude, over experiments.
        p95: Its 95th percentile.
        source: Origin of the two values.
    """

    median: float
    p95: float
    source: str

    @property
    def sigma(self) -> float:
        """Deviation of the log-normal error that is at least as wide as both values imply."""
        return max(self.median / HALF, self.p95 / MOST)

    def __str__(self) -> str:
        return f"median error {self.median:.1%}, 95th percentile {self.p95:.1%}; {self.source}"


ASSUMED = Fidelity(
    0.05, 0.15, "assumed: the simulator's target; there are no results of benchmarks/fidelity here"
)


def fidelity(path: str | None, emulate: str = "shaper") -> Fidelity:
    """Return the simulator's measured error, or `ASSUMED`.

    Args:
        path: A file of ``benchmarks/fidelity``: a study, or a list of them, each with ``emulate``
            and ``rows`` with a relative ``error``. None: the file of this checkout, if there is
            one.
        emulate: How live runs emulate the network; studies of that kind are used, or all if there
            are none.

    Returns:
        Median and 95th percentile over all rows.

    Raises:
        ConfigError: The file is missing or has another form.
    """
    place = Path(path) if path else Path(__file__).parents[2] / "benchmarks/results/fidelity.json"
    if path is None and not place.is_file():
        return ASSUMED
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
        studies = found if isinstance(found, list) else [found]
        alike = [one for one in studies if one["emulate"] == emulate] or studies
        errors = np.abs([float(row["error"]) for one in alike for row in one["rows"]])
        middle, most = np.percentile(errors, [50, 95])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        remedy = "must be a file from benchmarks/fidelity: emulate, and rows with an error each"
        raise ConfigError("plan.fidelity", str(place), remedy) from error
    kinds = " and ".join(sorted({one["emulate"] for one in alike}))
    source = f"measured: {place.name}, {len(errors)} combinations, emulate={kinds}"
    return Fidelity(float(middle), float(most), source)


@dataclass(frozen=True)
class Certainty:
    """Certainty of the first choice.

    Attributes:
        margin: How much longer the second takes, relative to the first; None without a second.
        first: Probability that the first choice is the fastest of all ranked candidates.
        two: Probability that it is among the two fastest.
        regret: Expected excess of the first choice's time over the fastest, relative.
    """

    margin: float | None
    first: float
    two: float
    regret: float

    @classmethod
    def of(cls, times: Sequence[Sequence[float]], error: Fidelity) -> Certainty:
        """Estimate the certainty of a ranking, by Monte Carlo.

        Args:
            times: Simulated seconds by candidate and seed, the first choice first; all finite.
            error: Error of the simulator.
        """
        means = np.array([sum(seeds) / len(seeds) for seeds in times])
        # The mean of n seeds has the deviation of their logarithms over the square root of n.
        drawn = [
            stdev(map(math.log, seeds)) / math.sqrt(len(seeds)) if len(seeds) > 1 else 0.0
            for seeds in times
        ]
        sigma = np.hypot(error.sigma, drawn)
        noise = np.random.default_rng(0).standard_normal((DRAWS, len(means)))
        truths = np.log(means) + sigma * noise
        ranks = (truths < truths[:, :1]).sum(axis=1)
        regret = np.exp(truths[:, 0] - truths.min(axis=1)) - 1
        margin = float(means[1] / means[0] - 1) if len(means) > 1 else None
        return cls(
            margin, float((ranks == 0).mean()), float((ranks <= 1).mean()), float(regret.mean())
        )

    def to_json(self) -> dict[str, Any]:
        """Return its part of ``plan.json``."""
        return asdict(self)
