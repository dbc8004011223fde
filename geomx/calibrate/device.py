"""What a GPU takes to move tensors to the host and back, and to encode and update them there."""

from __future__ import annotations

from typing import Any

from geomx import _core
from geomx.calibrate.fit import Sample, fit

ELEMENTS = (1 << 12, 1 << 18, 1 << 22, 1 << 24)
"""Sizes of tensors, in float32 values."""

MEASURED = "measured"


def gpu() -> tuple[str, str] | None:
    """The first GPU that this build has kernels for: what it is called, and what it is."""
    return next((device for device in _core.devices() if device[0] != "cpu"), None)


def measure(name: str, about: str, repeats: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Values of `geomx.options.costs.DeviceCosts`, and the spread of each figure.

    A copy's cost is the same both ways; it is fitted to both.

    Args:
        name: As `geomx info` calls the device.
        about: What it is.
        repeats: How often each size is moved, encoded and updated, after a pass that does not
            count.
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
