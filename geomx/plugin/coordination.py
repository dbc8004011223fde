"""Coordinators, and overlays: the members of a group talk with each other as a coordinator says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from geomx.cluster import NodeSpec
from geomx.plugin.parts import Native

__all__ = ["Coordinator", "Group", "Overlay", "Site"]


@runtime_checkable
class Coordinator(Protocol):
    """A coordinator written in Python.

    Its attribute ``seed`` is set to the experiment's. With ``next_timeout()``, seconds of its clock
    or None, and ``on_timeout(now_s)``, which answers like `on_report`, it can act by itself.
    """

    def on_report(
        self, source: int, values: Sequence[float], now_s: float
    ) -> Sequence[tuple[int, Sequence[float]]]:
        """Handle the report of a node.

        Args:
            source: Id of the node that reports.
            values: What it reports, as numbers.
            now_s: Seconds on this node's clock, which starts at an arbitrary moment and never
                jumps.

        Returns:
            Messages as (node id, numbers), in the order in which they are sent.
        """
        ...


@dataclass(frozen=True)
class Site:
    """A coordinator and the node that it runs on.

    Attributes:
        host: A local server or the scheduler; nodes that report must already talk with it.
        native: The coordinator, compiled or in Python.
    """

    host: NodeSpec
    native: Native | Coordinator


@dataclass(frozen=True)
class Group:
    """A node and all nodes that push to it, as an overlay sees them.

    Attributes:
        level: ``party`` for a local server and its workers; ``global`` for a global server and the
            local servers of all parties.
        root: The server.
        members: The nodes that push to it, at least two, in order of their ids.
        scheduler: The scheduler, which all nodes talk with.
    """

    level: str
    root: NodeSpec
    members: tuple[NodeSpec, ...]
    scheduler: NodeSpec


@dataclass(frozen=True)
class Overlay:
    """Members of a group talk with each other, as a coordinator tells them.

    Groups with equal overlays share one coordinator.

    Attributes:
        site: The coordinator, on a node that all members talk with anyway: the root or the
            scheduler. It hears `OverlayReport` and answers with `overlay_order`
            (`geomx.plugin.overlay`); a native one gets the experiment's ``seed`` among its options.
        push: Contributions are added on the way to the root.
        pull: Values are handed on from member to member.
    """

    site: Site
    push: bool = True
    pull: bool = True
