"""The links between nodes as plugins see them, and what all nodes and links of an experiment share.

Servers add what linear codecs encode as it arrives, so that the codecs of all links to a server
have to fit together; this is where they are compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from geomx.cluster import Cluster, Direction, Link, NodeSpec
from geomx.errors import PluginError
from geomx.experiment.native_parts import encodings_are_added, linear_traits
from geomx.plugin.coordination import Group, Overlay, Site
from geomx.plugin.selection import Selection
from geomx.plugin.sync import SyncPolicy


@dataclass(frozen=True)
class Common:
    """Settings of all nodes and links of an experiment, for which plugins are called once.

    Attributes:
        policy: The sync policy.
        at_party: Whether local servers run the optimizer.
        steps_of: Number of workers if they exchange its steps, or moves of parameters, and keep
            what is not sent; else 0.
        hosts: Ids of nodes that run coordinators.
        sites: Sites of all coordinators, by number. Their coordinators must not be used, because
            each node needs its own.
        overlays: The groups, with their overlays, of which a node is the root or a member, by the
            node's id.
        alike: Whether links to global servers at a party's own site have the parts of WAN links.
    """

    policy: SyncPolicy
    at_party: bool
    steps_of: int
    hosts: frozenset[int]
    sites: tuple[Site, ...]
    overlays: Mapping[int, Sequence[tuple[Group, Overlay]]]
    alike: bool = False


def common(cluster: Cluster, selection: Selection) -> Common:
    """Return the settings that all nodes and links share; see `Common`."""
    return selection.once(cluster, _find_common)


def _find_common(selection: Selection, cluster: Cluster) -> Common:
    policy = selection.sync_policy(cluster)
    sites = tuple(site for _, site in selection.coordinators(cluster))
    overlays: dict[int, list[tuple[Group, Overlay]]] = defaultdict(list)
    for group, overlay in selection.overlays(cluster):
        for member in {group.root.id: group.root, **{m.id: m for m in group.members}}.values():
            overlays[member.id].append((group, overlay))
    shared = Common(
        policy,
        selection.update_at_party(cluster),
        len(cluster.workers) if selection.keeps_steps(cluster) else 0,
        frozenset(site.host.id for site in sites),
        sites,
        dict(overlays),
    )
    return replace(shared, alike=_must_be_alike(shared, selection, cluster))


def _must_be_alike(shared: Common, selection: Selection, cluster: Cluster) -> bool:
    """Return whether a party at a global server's site must encode as those behind the WAN do.

    A linear codec encodes on both kinds of links. Where another codec selects rows before it on
    WAN links alone, the server decodes what arrives over these, and would have to add what the
    party at its site has encoded as it is.
    """
    pushes: dict[str, Link] = {}
    for party in cluster.parties:
        for root in cluster.global_servers:
            link = _hop(shared, cluster, party.server, root, "push")
            pushes.setdefault(link.kind, link)
    if len(pushes) < 2:
        return False
    chains = [selection.labelled("geomx_codec", link=link) for link in pushes.values()]
    if all(linear_traits(codec) == "none" for chain in chains for _, codec in chain):
        return False
    one, other = encodings_are_added(chains)
    return one != other


def hop(
    cluster: Cluster,
    selection: Selection,
    source: NodeSpec,
    target: NodeSpec,
    direction: Direction,
) -> Link:
    """Return the directed link from `source` to `target`, as passed to hooks."""
    return _hop(common(cluster, selection), cluster, source, target, direction)


def _hop(
    shared: Common, cluster: Cluster, source: NodeSpec, target: NodeSpec, direction: Direction
) -> Link:
    with_global = source.role == ("server" if direction == "push" else "global_server")
    sums = with_global and shared.at_party
    link = cluster.link(source, target, direction, "sum" if sums and direction == "pull" else None)
    root = target if direction == "push" else source
    # Members of a group with an overlay forward what others have encoded, so its links are alike.
    kind = next((g.kind for g, _ in shared.overlays.get(root.id, ()) if g.root == root), link.kind)
    if with_global and shared.alike:
        kind = "wan"
    summed = sums and direction == "push"
    return replace(link, kind=kind, exchange=shared.policy.exchange, summed=summed)


def check_linear(node: NodeSpec, arriving: Sequence[Sequence[tuple[str, Any]]]) -> None:
    """Check that all senders to a server have the same linear codecs, as encodings are added.

    Raises:
        PluginError: The codecs differ.
    """
    chains = [{label: linear_traits(codec) for label, codec in chain} for chain in arriving]
    for label in {label for chain in chains for label in chain}:
        kinds = {chain.get(label, "none") for chain in chains}
        if len(kinds) > 1:
            raise PluginError(
                f"{label}: a linear codec must be the same on all links to a server; "
                f"to {node.name} there are {' and '.join(sorted(kinds))}"
            )
