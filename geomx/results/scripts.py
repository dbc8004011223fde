"""What is known of a training script's run only at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from geomx.results.rounding import rounded


def complete(
    header: dict[str, Any],
    elements: Sequence[int],
    computed_s: Iterable[Sequence[float]],
    **about: float,
) -> None:
    """Complete the part of ``summary.json`` that is known before a run, at the end of a script's.

    Args:
        header: That part; it has the field ``script``.
        elements: Of the script's tensors.
        computed_s: Seconds of computing of every local step, by worker.
        about: More fields of ``script``.
    """
    workers = [steps for steps in computed_s if steps]
    first = [steps[0] for steps in workers]
    later = [seconds for steps in workers for seconds in steps[1:]]
    total = sum(elements)
    header["workload"] |= {"tensors": len(elements), "elements": total, "bytes": 4 * total}
    header["iterations"] = max(map(len, workers), default=0)
    header["script"] |= {
        "first_step_s": rounded(sum(first) / len(first)) if first else 0.0,
        "step_s": rounded(sum(later) / len(later)) if later else None,
        **about,
    }
