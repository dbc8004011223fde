"""Adjustment of the workloads' pace to what this machine can sustain.

The nodes of a live run share one machine, on which every worker of a model that learns computes
real gradients within the pace of its workload. If they cannot keep that pace, the live run differs
from the simulated experiment. Therefore the study first measures, as ``geomx calibrate`` does, how
long a batch takes when as many workers compute at once as a place has, and slows the pace of places
that demand more. A seed draws the same places on every machine; the actual pace is recorded.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

from geomx.calibrate import layers
from geomx.config.compose import compose
from sim_vs_live.draw import Combination, Place, write_network

# Servers, codecs and the kernel's network stack need cores as well.
SPARE = 2.0
ROUND_MS = 10
MEASURED_S = 5.0
KEPT = "batches.json"


def keepable(
    drawn: Sequence[Combination], folder: Path, measured: Callable[[Place], float] | None = None
) -> list[Combination]:
    """Return the same combinations, with paces that this machine can sustain.

    Args:
        drawn: The combinations as drawn.
        folder: Folder of measured times, so that a resumed study has the same places.
        measured: Returns the seconds of a batch at a place; `batch_s` by default.
    """
    kept = folder / KEPT
    times: dict[str, float] = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    places = {one.place.number: one.place for one in drawn}
    for number, place in places.items():
        if place.learns:
            workers = str(place.workers)
            if workers not in times:
                times[workers] = (measured or batch_s)(place)
            places[number] = slowed(place, times[workers])
    folder.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(times, indent=1) + "\n", encoding="utf-8")
    return [replace(one, place=places[one.place.number]) for one in drawn]


def slowed(place: Place, taken_s: float) -> Place:
    """Return `place` at its own pace, or slowed if workers take `taken_s` seconds per batch."""
    needed_ms = SPARE * 1e3 * taken_s * place.forward_ms / place.batch_ms
    if place.forward_ms >= needed_ms:
        return place
    return replace(place, forward_ms=ROUND_MS * ceil(needed_ms / ROUND_MS))


def batch_s(place: Place, measured_s: float = MEASURED_S) -> float:
    """Return seconds per batch while all the workers of `place` compute, as in `geomx calibrate`.

    Args:
        place: Where they compute.
        measured_s: How long, in seconds.

    Raises:
        GeomxError: The measurement failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        network = Path(scratch) / "network.yaml"
        write_network(place, network)
        experiment, _ = compose([f"network={network}", *place.workload], directory=Path(scratch))
        times = layers.measure(experiment, measured_s, lambda: None)
    assert times is not None, f"{place.workload[0]} has no numerics"
    return sum(times["forward_s"]) + sum(times["backward_s"])


def slower(places: Mapping[Any, Sequence[int]]) -> str:
    """Return a sentence about ``{number of a place: [drawn, kept forward_ms]}``."""
    each = (f"{number} ({drawn} -> {kept} ms)" for number, (drawn, kept) in places.items())
    why = "forward_ms is longer than drawn, for this machine to keep pace"
    return f"{why}, at place {', '.join(each)}"
