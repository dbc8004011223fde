"""Results of a candidate and of its runs, and the criterion for a reached accuracy.

A target counts as reached only if it lasts. The first crossing, by which MLPerf Training times a
run, is the luckiest evaluation of a noisy curve: of two equivalent candidates, the noisier one
crosses first. Experiments in federated learning have the same problem: McMahan et al. (AISTATS
2017) count rounds on the best accuracy so far, Reddi et al. (ICLR 2021) average over the last
rounds. Here all later evaluations of the run have to hold the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from geomx.planning.candidates import Candidate
from geomx.results.files import Row
from geomx.results.results import Results

HELD = 4
"""Number of evaluations after the one that reaches the target that have to hold it."""
LIVE_HELD = 1
"""The same for a live run of a command, which may reach the target later than the simulated run."""
DIP = 0.01
"""An evaluation that holds the target may be this much below it: evaluations are noisy."""


@dataclass(frozen=True)
class Outcome:
    """Result of one run of a candidate.

    Attributes:
        seconds_per_iteration: Mean.
        seconds: Time until the target accuracy is reached and lasts (`lasting`); None if it is not,
            or there is no target.
        iterations: The same in iterations of the first worker.
        held: Mean accuracy of that evaluation and the next `HELD`; None likewise.
        accuracy: Final accuracy, 0..1; None without gradients.
        wan_bytes: Bytes over the WAN per iteration, both directions.
    """

    seconds_per_iteration: float
    seconds: float | None
    iterations: int | None
    held: float | None
    accuracy: float | None
    wan_bytes: float

    @classmethod
    def of(
        cls, results: Results, target: float | None, earliest: int = 0, held: int = HELD
    ) -> Outcome:
        """Read a finished run.

        Args:
            results: The run.
            target: Target accuracy, 0..1, or None.
            earliest: See `lasting`.
            held: See `lasting`.
        """
        summary = results.summary
        rows = lasting(results.evaluations, target, earliest, held)
        crossed = summary["bytes"]["wan_push"] + summary["bytes"]["wan_pull"]
        return cls(
            summary["seconds_per_iteration"]["mean"],
            rows[0]["time_s"] if rows else None,
            rows[0]["iteration"] + 1 if rows else None,
            mean([row["accuracy"] for row in rows[: HELD + 1]]) if rows else None,
            summary["accuracy"]["final"],
            crossed / summary["iterations"],
        )


@dataclass
class Standing:
    """State of a candidate in the evaluation.

    Attributes:
        candidate: The candidate.
        lossless: Whether it trains exactly as the baseline does.
        reason: Why it cannot be run; empty if it can.
        sized: Result of its run without gradients.
        outcomes: Results of its most expensive runs so far, by seed.
        earliest: Iterations before which the target does not count as reached, because a command
            that stopped soon after did not end at it.
        ends: Final accuracy of its command in simulation, by seed; empty if that was not tried.
        live: Result of its live run.
        live_reason: Why the live run failed; empty if it did not, or was not requested.
    """

    candidate: Candidate
    lossless: bool
    reason: str = ""
    sized: Outcome | None = None
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    earliest: int = 0
    ends: dict[int, float] = field(default_factory=dict)
    live: Outcome | None = None
    live_reason: str = ""


def lasting(
    evaluations: Sequence[Row], target: float | None, earliest: int = 0, held: int = HELD
) -> Sequence[Row]:
    """Return a run's evaluations from the first that reaches `target` lastingly; perhaps none.

    It is the first at or above `target` after which no evaluation of the run is more than `DIP`
    below it, and after which there are at least `held` evaluations.

    Args:
        evaluations: Rows of ``evaluations.csv``, in order.
        target: An accuracy, 0..1; None: nothing reaches it.
        earliest: The first iteration, counted from 1, whose evaluation counts.
        held: Number of evaluations that have to follow.
    """
    if target is None:
        return []
    dips = [number for number, row in enumerate(evaluations) if row["accuracy"] < target - DIP]
    rest = evaluations[dips[-1] + 1 if dips else 0 :]
    for number, row in enumerate(rest[: max(0, len(rest) - held)]):
        if row["accuracy"] >= target and row["iteration"] + 1 >= earliest:
            return rest[number:]
    return []


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean of one or more values."""
    return sum(values) / len(values)
