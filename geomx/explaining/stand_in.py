"""A workload in place of a script: what-if simulations do not run the script again.

It has the script's tensors, and the mean computing of its steps on a worker of speed 1.0, divided
among the tensors by their sizes: a third of it forward, the rest backward.
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import yaml

from geomx.errors import GeomxError
from geomx.explaining.evidence import Evidence
from geomx.pages.commands import setting

FORWARD = 1 / 3
"""A backward pass computes gradients of inputs and of weights, and takes twice a forward pass."""


def stand_in(evidence: Evidence, folder: Path) -> tuple[str, ...]:
    """Write a workload that stands for the script of a run.

    Args:
        evidence: The run.
        folder: Where the file is written.

    Returns:
        Overrides that choose it; none if the run has no script.

    Raises:
        GeomxError: The run has no parameters, so that the tensors are not known.
    """
    run = evidence.results
    if "script" not in run.summary:
        return ()
    values = {name: value for name, value in run.parameters().items() if value.size}
    if not values:
        raise GeomxError("changes cannot be simulated: the script's tensors are not known")
    rows = [row for row in run.iterations if row["iteration"]] or run.iterations
    step_ms = 1e3 * mean(row["compute_s"] * evidence.speed[row["worker"]] for row in rows)
    whole = sum(value.size for value in values.values())
    layers = [
        {
            "name": name,
            "forward_ms": FORWARD * step_ms * value.size / whole,
            "backward_ms": (1 - FORWARD) * step_ms * value.size / whole,
            "tensors": {"value": [*value.shape] or [1]},
        }
        for name, value in values.items()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "script.yaml"
    path.write_text(yaml.safe_dump({"layers": layers}, sort_keys=False), encoding="utf-8")
    iterations = run.summary["iterations"]
    return "workload=profile", setting("workload.path", path), f"iterations={iterations}"
