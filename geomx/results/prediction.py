"""Comparison of a simulated run with the live run that it predicts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.results.results import Results


def compare(sim: Results, live: Results) -> dict[str, Any]:
    """Compare a prediction with the measurement.

    Args:
        sim: The simulated run.
        live: The live run.

    Returns:
        The content of ``comparison.json``. Every entry has both values and ``relative_error`` =
        (sim -
        live) / live, None if undefined. ``parameters`` has the largest of max |sim - live| / max
        |live|
        over all tensors, None without parameters or if tensors differ in shape; ``mismatch`` has
        the
        names of the latter.
    """
    groups = {
        "seconds_per_iteration": ("mean", "p50", "p95"),
        "bytes": tuple(live.summary["bytes"]),
        "accuracy": ("final",),
        "loss": ("final",),
    }
    comparison: dict[str, Any] = {
        group: {
            name: _error(sim.summary[group].get(name), live.summary[group].get(name))
            for name in names
        }
        for group, names in groups.items()
    }
    comparison["parameters"] = _parameter_difference(sim.parameters(), live.parameters())
    return comparison


def _error(sim: float | None, live: float | None) -> dict[str, float | None]:
    error: float | None = None
    if sim is not None and live is not None and math.isfinite(sim - live):
        error = 0.0 if sim == live else (sim - live) / live if live else None
    return {"sim": sim, "live": live, "relative_error": error}


def _parameter_difference(
    sim: dict[str, NDArray[Any]], live: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    names = sorted(sim.keys() | live.keys())
    shapes = [{name: array.shape for name, array in side.items()} for side in (sim, live)]
    mismatch = [name for name in names if shapes[0].get(name) != shapes[1].get(name)]
    difference: float | None = None
    if names and not mismatch:
        found = [_relative(sim[name], live[name]) for name in names]
        difference = max(found) if all(map(math.isfinite, found)) else None
    return {"max_relative_difference": difference, "mismatch": mismatch, "tensors": len(names)}


def _relative(sim: NDArray[Any], live: NDArray[Any]) -> float:
    if live.size == 0:
        return 0.0
    tiny = float(np.finfo(np.float32).tiny)
    gap = np.abs(sim.astype(np.float64) - live.astype(np.float64)).max()
    return float(gap / max(float(np.abs(live).max()), tiny))
