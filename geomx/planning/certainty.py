"""How sure a plan is: the lead of its first choice against what is known to be uncertain.

Two things are. The simulator errs; how much is read from the results of ``benchmarks/fidelity``
where there are any, else it is assumed, and said so. And runs with different seeds differ, where
anything is drawn. Both are taken as normal in the logarithm of the time and independent between
candidates. The simulator's errors on one network are not: what it gets wrong there it gets wrong
for all, so that the chances given here are on the cautious side.
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
"""Within so many sigma of its mean lie half, and 95 %, of a normal distribution."""


@dataclass(frozen=True)
class Fidelity:
    """How far the simulator's seconds_per_iteration are from live ones.

    Attributes:
        median: Of the relative error's magnitude, over experiments.
        p95: Its 95th percentile.
        source: Where the two come from.
    """

    median: float
    p95: float
    source: str

    @property
    def sigma(self) -> float:
        """Of a normal distribution of the logarithm that is at least as wide as either says."""
        return max(self.median / HALF, self.p95 / MOST)

    def __str__(self) -> str:
        return f"median error {self.median:.1%}, 95th percentile {self.p95:.1%}; {self.source}"


ASSUMED = Fidelity(
    0.05, 0.15, "assumed: what the simulator is held to; no results of benchmarks/fidelity are here"
)


def fidelity(path: str | None, emulate: str = "shaper") -> Fidelity:
    """The simulator's error as measured, or `ASSUMED`.

    Args:
        path: What ``benchmarks/fidelity`` has written: a study, or a list of them, each with
            ``emulate`` and ``rows``, whose ``error`` is relative. None for what this checkout has.
        emulate: How live runs have their network; studies of that kind count, all where there are
            none.

    Raises:
        ConfigError: The file is absent, or does not say it.
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
        remedy = "must be what benchmarks/fidelity writes: emulate, and rows with an error each"
        raise ConfigError("plan.fidelity", str(place), remedy) from error
    kinds = " and ".join(sorted({one["emulate"] for one in alike}))
    source = f"measured: {place.name}, {len(errors)} combinations, emulate={kinds}"
    return Fidelity(float(middle), float(most), source)


@dataclass(frozen=True)
class Certainty:
    """What is known of the first choice.

    Attributes:
        margin: How much longer the second takes, relative to the first; None without a second.
        first: Chance that the first choice is the fastest of all that were ranked.
        two: Chance that it is among the two fastest.
        regret: What the first choice is expected to take longer than the fastest, relative.
    """

    margin: float | None
    first: float
    two: float
    regret: float

    @classmethod
    def of(cls, times: Sequence[Sequence[float]], error: Fidelity) -> Certainty:
        """Weigh a ranking.

        Args:
            times: By candidate, the first choice first, its simulated seconds by seed; all finite.
            error: The simulator's.
        """
        means = np.array([sum(seeds) / len(seeds) for seeds in times])
        # The mean of n seeds is as uncertain as their logarithms' deviation over the root of n.
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
        """Its content of ``plan.json``."""
        return asdict(self)
