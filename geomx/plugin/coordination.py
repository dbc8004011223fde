"""Coordinators, and overlays, in which members of a group exchange data as a coordinator orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from geomx.cluster import Cluster, LinkKind, NodeSpec
from geomx.plugin.parts import Native

__all__ = ["Coordinator", "Group", "Overlay", "Site"]


@runtime_checkable
class Coordinator(Protocol):
    """A coordinator written in Python.

    geomx sets its attribute ``seed`` to the experiment's seed. It can also act without a report, by
    two optional methods: ``next_timeout()`` returns the time of its next action, in seconds of its
    clock, or None, and ``on_timeout(now_s)`` is called then and returns messages like `on_report`.
    With ``faults.on_loss=continue``, the optional ``on_member(node, back, now_s)`` hears of workers
    that are lost or back, and returns messages likewise.
    """

    def on_report(
        self, source: int, values: Sequence[float], now_s: float
    ) -> Sequence[tuple[int, Sequence[float]]]:
        """Handle the report of a node.

        Args:
            source: Id of the reporting node.
            values: Its report, as numbers.
            now_s: Seconds of this node's clock, which is monotonic and has an arbitrary origin.

        Returns:
            Messages as (node id, numbers), in the order in which they are sent.
        """
        ...


@dataclass(frozen=True)
class Site:
    """A coordinator and the node that it runs on.

    Attributes:
        host: A local server or the scheduler; the nodes that report must have a link with it.
        native: The coordinator, compiled or in Python.
    """

    host: NodeSpec
    native: Native | Coordinator


@dataclass(frozen=True)
class Group:
    """A server and the nodes that push to it, for which an overlay may be used.

    Attributes:
        level: ``party`` for a local server and its workers; ``global`` for a global server and the
            local servers of all parties.
        root: The server.
        members: The nodes that push to it, at least two, in order of their ids.
        scheduler: The scheduler, with which all nodes have a link.
        cluster: All nodes, and the network between them.
    """

    level: str
    root: NodeSpec
    members: tuple[NodeSpec, ...]
    scheduler: NodeSpec
    cluster: Cluster = field(compare=False, repr=False)

    @property
    def kind(self) -> LinkKind:
        """``wan`` if its nodes are in several parties; with an overlay, all its links are alike."""
        return "wan" if {member.party for member in self.members} != {self.root.party} else "lan"


@dataclass(frozen=True)
class Overlay:
    """Members of a group exchange data directly, as a coordinator orders.

    Groups with equal overlays share one coordinator.

    Attributes:
        site: The coordinator, on the root or the scheduler, with which all members have a link. It
            receives `OverlayReport` and replies with `overlay_order` (`geomx.plugin.overlay`). A
            native coordinator receives the experiment's ``seed`` as an option.
        push: Whether contributions are aggregated by members on the way to the root.
        pull: Whether members forward values.
        ahead: Whether a native coordinator plans rounds before they begin (`OverlayPlan` in
            runtime_cpp/core/overlay_group.h), so that a member may receive contributions before it
            has its own.
        reliable: Whether all slices of contributions must arrive in their round. Best-effort
            slicers on the group's links are then refused (`Slicer.best_effort`).
    """

    site: Site
    push: bool = True
    pull: bool = True
    ahead: bool = False
    reliable: bool = False
