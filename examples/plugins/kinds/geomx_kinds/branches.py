"""branches: a new value spreads over the members of a group as a tree, so many branches at a node.

Sent by the root alone, a value for n members leaves the root n times. Here everybody who has it
sends it to so many others: the root sends twice, and all have it after about log2(n) hops. A
coordinator on a node that all members talk with hears who has which value, and says who is next;
contributions go straight to the root as always.
"""

from __future__ import annotations

from dataclasses import dataclass

import geomx

geomx_api = "1.1"


@dataclass(frozen=True)
class BranchesConfig:
    """Options of branches."""

    width: int = 2
    """To how many members a member hands a value on, 1 or more."""

    def __post_init__(self) -> None:
        if self.width < 1:
            raise geomx.ConfigError("width", self.width, "must be 1 or more")


class Gardener:
    """The coordinator: who still lacks which value."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lacking: dict[tuple[int, ...], list[int]] = {}

    def on_report(self, source, values, now_s):
        """A member has something; answer with (who, what it is to do)."""
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
                del self.lacking[item]  # all are served: nothing is kept for ever
        return [(source, geomx.overlay_order("pull", report, member)) for member in next_ones]


class Branches:
    """New values spread as a tree over the parties."""

    lossless = True

    def __init__(self, config: BranchesConfig) -> None:
        self.config = config

    @geomx.hookimpl
    def geomx_overlay(self, group: geomx.Group) -> geomx.Overlay | None:
        """Among local servers; inside a party the LAN is wide enough."""
        if group.level != "global":
            return None
        gardener = Gardener(self.config.width)
        return geomx.Overlay(geomx.Site(group.scheduler, gardener), push=False, pull=True)


@geomx.hookimpl
def geomx_register(register) -> None:
    """Announce ``accel=[branches]``."""
    register("accel", "branches", BranchesConfig, Branches)
