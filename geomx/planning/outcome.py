"""What is known of a candidate and of its runs; when an accuracy counts as reached.

A target counts as reached where it lasts. The first crossing, by which MLPerf Training times a run,
is the luckiest evaluation of a noisy curve: of two candidates that are alike, the noisier one
crosses first. Experiments in federated learning have the same trouble: McMahan et al. (AISTATS
2017) count rounds on the best accuracy so far, Reddi et al. (ICLR 2021) average over the last
rounds. Here all later evaluations of the run have to hold the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from geomx.planning.candidates import Candidate
from geomx.results.results import Results, Row

HELD = 4
"""So many evaluations after the one that reaches the target have to hold it."""
LIVE_HELD = 1
"""The same of a live run of a command, which may get there later than the simulated one."""
DIP = 0.01
"""An evaluation that holds the target may be this much below it: evaluations are noisy."""


@dataclass(frozen=True)
class Outcome:
    """What one run of a candidate came to.

    Attributes:
        seconds_per_iteration: Mean.
        seconds: Until the target accuracy is reached and lasts (`lasting`); None where it does not
            or there is no target.
        iterations: The same in iterations of the first worker.
        held: Mean accuracy from then on over `HELD` further evaluations; None likewise.
        accuracy: At the end; None without gradients.
        wan_bytes: Over the WAN per iteration, both ways.
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
        """Read a run that is over; the rest is of `lasting`."""
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
    """What is known of a candidate.

    Attributes:
        candidate: Which.
        lossless: It trains as the baseline does.
        reason: Why it cannot be run; empty if it can.
        sized: Its run without gradients.
        outcomes: Its runs of the dearest kind so far, by seed.
        earliest: Iterations before which the target does not count as reached, because a command
            that stopped soon after did not end at it.
        ends: By seed, the accuracy with which its command ends in simulation; empty where that has
            not been tried.
        live: Its live run.
        live_reason: Why there is none; empty where it was not asked for.
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
    """A run's evaluations from the one on that reaches `target` for good; empty where none does.

    It is the first at or above `target` after which no evaluation of the run is more than `DIP`
    below it, and there are `held` such evaluations at least.

    Args:
        evaluations: Rows of ``evaluations.csv``, in their order.
        target: An accuracy in 0..1; None: nothing reaches it.
        earliest: The first iteration, from 1, whose evaluation counts.
        held: Evaluations that have to follow.
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
    """The arithmetic mean of one value or more."""
    return sum(values) / len(values)
