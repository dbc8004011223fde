"""One byte per value over the WAN: options and hook in Python, arithmetic in C++ (eightbit.cc).

geomx loads the library beside this file and calls it in both modes, without Python's interpreter
lock. Dettmers, ICLR 2016 (arXiv 1511.04561), trains with 8 bits per value.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import geomx
from geomx.cluster import Link

geomx_api = "2.0"
# With pip install -e the built library is in another folder than this file; __path__ has both.
PLACES = [Path(folder, "eightbit.so") for folder in __path__]
LIBRARY = next((place for place in PLACES if place.exists()), PLACES[0])


@dataclass(frozen=True)
class EightBitConfig:
    """Options of the codec."""

    levels: int = 127
    """Steps from zero to the largest value, 1 to 127."""

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= 127:
            raise geomx.ConfigError("levels", self.levels, "must be 1 to 127")


class EightBit:
    """One byte per value upwards over the WAN, with error feedback, in C++."""

    def __init__(self, config: EightBitConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_codec(self, link: Link) -> geomx.Native | None:
        """Encode contributions that cross the WAN."""
        if link.kind != "wan" or link.carries != "contributions":
            return None
        options = {"levels": float(self.config.levels)}
        return geomx.Native("codec", "eightbit", options, library=str(LIBRARY))


@geomx.hookimpl
def geomx_register(register) -> None:
    """Register ``accel=[eightbit]``."""
    register("accel", "eightbit", EightBitConfig, EightBit)
