"""Times of a GPU: copies of tensors to and from the host, encoding and optimizer steps."""

from __future__ import annotations

from typing import Any

from geomx import _core
from geomx.calibrate.fit import Sample, fit

ELEMENTS = (1 << 12, 1 << 18, 1 << 22, 1 << 24)
"""Sizes of tensors, in float32 values."""

MEASURED = "measured"


def gpu() -> tuple[str, str] | None:
    """Return name and description of the first GPU that this build has kernels for, or None."""
    return next((device for device in _core.devices() if device[0] != "cpu"), None)


def measure(name: str, about: str, repeats: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Measure a GPU.

    A copy has one cost for both directions, fitted to the measurements of both.

    Args:
        name: Name of the device, as in `geomx info`.
        about: Its description.
        repeats: Number of times that each size is copied, encoded and updated, after one unmeasured
            pass.

    Returns:
        Values of `geomx.options.costs.DeviceCosts`, in seconds, and the relative spread of each.
    """
    copies, encodings, updates = [], [], []
    for elements in ELEMENTS:
        seconds = _core.time_device(name, elements, repeats)
        for way in ("to_host", "to_device"):
            copies.append(Sample(_counts("copy", elements), seconds[way]))
        encodings.append(Sample(_counts("encode", elements), seconds["encode"]))
        updates.append(Sample(_counts("update", elements), seconds["update"]))
    figures: dict[str, Any] = {"name": about, "basis": MEASURED}
    spread: dict[str, float] = {}
    for samples in (copies, encodings, updates):
        times, their_spread = fit(samples)
        figures |= times
        spread |= their_spread
    return figures, spread


def _counts(work: str, elements: int) -> dict[str, float]:
    return {f"{work}_message_s": 1.0, f"{work}_byte_s": 4.0 * elements}
