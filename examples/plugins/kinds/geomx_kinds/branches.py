"""branches: a new value spreads over the members of a group as a tree of a given width.

Without it, the root sends a value for n members n times. Here every member that has the value sends
it to a few others: the root sends twice, and all have it after about log2(n) hops. A coordinator,
on a node that all members communicate with, tracks which members have which value and assigns the
next ones; contributions go directly to the root as usual.
"""

from __future__ import annotations

from dataclasses import dataclass

import geomx

geomx_api = "2.0"


@dataclass(frozen=True)
class BranchesConfig:
    """Options of branches."""

    width: int = 2
    """Number of members that a member sends a value to, 1 or more."""

    def __post_init__(self) -> None:
        if self.width < 1:
            raise geomx.ConfigError("width", self.width, "must be 1 or more")


class TreeCoordinator:
    """The coordinator: tracks which members lack which value."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lacking: dict[tuple[int, ...], list[int]] = {}

    def on_report(self, source, values, now_s):
        """Handle a member's report; return (member, order) pairs."""
        report = geomx.OverlayReport.read(values)
        item = report.root, report.key, report.shard, report.round
        if report.what == "origin":
            self.lacking[item] = list(report.members)
        elif report.what != "has":
            return []
        next_ones = self.lacking.get(item, [])[: self.width]
        if next_ones:
            del self.lacking[item][: self.width]
            if not self.lacking[item]:
                del self.lacking[item]  # all are served
        return [(source, geomx.overlay_order("pull", report, member)) for member in next_ones]


class Branches:
    """New values spread over the parties as a tree."""

    lossless = True

    def __init__(self, config: BranchesConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_overlay(self, group: geomx.Group) -> geomx.Overlay | None:
        """Use the overlay among local servers; inside a party the LAN is fast enough."""
        if group.level != "global":
            return None
        coordinator = TreeCoordinator(self.config.width)
        return geomx.Overlay(geomx.Site(group.scheduler, coordinator), push=False, pull=True)


@geomx.hookimpl
def geomx_register(register) -> None:
    """Register ``accel=[branches]``."""
    register("accel", "branches", BranchesConfig, Branches)
