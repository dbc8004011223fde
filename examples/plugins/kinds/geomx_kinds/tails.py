"""tails: a fraction of the contributions over the WAN may be lost, a different one in each round.

Retransmitting a lost message takes a round trip, and all nodes wait for it. Training tolerates the
loss of some gradient values: therefore a window of every shard is sent on channel 1, best effort,
and the round ends when the rest has arrived. The window moves from round to round, so that no value
is always at risk, and it is sent first, so that it is rarely late. Codecs whose messages must all
arrive are not cut, and lose nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import geomx
from geomx.cluster import Link

geomx_api = "2.0"

RELIABLE, BEST_EFFORT = 0, 1


@dataclass(frozen=True)
class TailsConfig:
    """Options of tails."""

    share: float = 0.25
    """Fraction of every shard's rows that may be lost, more than 0 and at most 0.5."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 0.5:
            raise geomx.ConfigError("share", self.share, "must be more than 0 and at most 0.5")


class Window:
    """Cuts the encoded rows of one shard on one link into up to three slices."""

    best_effort = True

    def __init__(self, share: float) -> None:
        self.share = share

    def cut(self, slices, row_bytes, round_number):
        """Return slices (first row, rows, priority, channel) of the same rows, the window first."""
        made = []
        for first, rows, priority, channel in slices:
            width = 8 * int(self.share * rows / 8)
            if width == 0 or channel != RELIABLE:
                made.append((first, rows, priority, channel))
                continue
            places = -(-rows // width)
            begin = round_number % places * width
            end = min(begin + width, rows)
            made.append((first + begin, end - begin, priority, BEST_EFFORT))
            if begin > 0:
                made.append((first, begin, priority, RELIABLE))
            if end < rows:
                made.append((first + end, rows - end, priority, RELIABLE))
        return made


class Tails:
    """A moving part of every contribution is sent over the WAN best effort."""

    def __init__(self, config: TailsConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_slicer(self, link: Link) -> Window | None:
        """Slice contributions over the WAN; weights must not be lost."""
        up = link.kind == "wan" and link.carries == "contributions"
        return Window(self.config.share) if up else None


@geomx.hookimpl
def geomx_register(register) -> None:
    """Register ``accel=[tails]``."""
    register("accel", "tails", TailsConfig, Tails)
