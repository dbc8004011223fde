"""Overlays that need every slice of a contribution, and slicers that send some best effort."""

from __future__ import annotations

from typing import Any

from geomx.errors import ConfigError


def sends_best_effort(slicer: Any) -> bool:
    """Return whether a slicer declares that some of its slices are sent best effort.

    Args:
        slicer: A slicer in Python, or a compiled one by name.
    """
    return bool(getattr(slicer, "best_effort", False)) or getattr(slicer, "grace_s", 0.0) > 0


def refuse_best_effort(
    accel: list[str], overlay: str, slicers: list[tuple[str, Any]], where: str
) -> None:
    """Check that all slices between members of an overlay that needs them are reliable.

    A slice that misses its round counts for the next round of the same link. Where members forward
    sums, it would have to follow the sum that left without it, and what is sent would depend on
    which slices were late.

    Args:
        accel: The selected accelerators.
        overlay: The plugin of the overlay.
        slicers: The slicers of the group's links, with their plugins' labels.
        where: ``between parties`` or ``inside parties``.

    Raises:
        ConfigError: Some slices are best effort.
    """
    for label, slicer in slicers:
        if sends_best_effort(slicer):
            name = label.split(":")[0].split()[-1]
            raise ConfigError(
                "accel",
                f"[{','.join(accel)}]",
                f"{overlay} forwards sums {where} once all of their slices are in, but {name} "
                f"sends some slices best effort, which may be late; leave out {name} or {overlay}",
            )
