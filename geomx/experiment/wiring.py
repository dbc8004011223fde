"""Builds the core's node configurations from an experiment, for both modes.

The simulator and the live processes call the same functions with the same arguments, so that both
modes have the same codecs, slicers and policies on every link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from geomx import _core
from geomx.cluster import Cluster, Direction, NodeSpec
from geomx.errors import ConfigError, PluginError
from geomx.experiment.hops import check_linear, common, hop
from geomx.experiment.native_parts import blaming, optimizers, part
from geomx.experiment.rounds import set_rounds
from geomx.limits.rules import free_bytes
from geomx.options.schema import FaultOptions, RuntimeOptions
from geomx.plugin.coordination import Site
from geomx.plugin.parts import ByTurns, Native, Shard, cut_evenly
from geomx.plugin.selection import Selection
from geomx.workload import TensorSpec

PlacedShard = tuple[int, int, int, int]
"""(offset, elements, global server index, priority), the form that the core takes."""

MOST_SHARD_ELEMENTS: int = _core.MAX_SHARD_ELEMENTS
"""Larger tensors are divided, in both modes: a message has 32 bits for the rows of a shard."""

MOST_ELEMENTS = 2**42
"""Upper bound on the elements of a tensor: 16 TiB, more than any existing model needs."""


def children(cluster: Cluster, node: NodeSpec) -> list[NodeSpec]:
    """Return the nodes that push to `node`."""
    if node.role == "server":
        return list(cluster.party_of(node).workers)
    if node.role == "global_server":
        return [party.server for party in cluster.parties]
    return []


def parents(cluster: Cluster, node: NodeSpec) -> list[NodeSpec]:
    """Return the nodes to which `node` pushes."""
    if node.role == "worker":
        return [cluster.party_of(node).server]
    if node.role == "server":
        return list(cluster.global_servers)
    if node.role == "standby":
        return [cluster.stood_by(node)]
    return []


def node_config(
    cluster: Cluster,
    selection: Selection,
    node: NodeSpec,
    *,
    phantom: bool,
    runtime: RuntimeOptions,
    faults: FaultOptions,
    live: bool,
    seed: int,
    experiment_json: str = "",
    placed: Sequence[Sequence[PlacedShard]] | None = None,
) -> _core.NodeConfig:
    """Return the core's configuration of a node: peers, links, codecs, slicers and policy.

    Args:
        cluster: All nodes.
        selection: The plugins of the experiment.
        node: The node.
        phantom: Whether messages have sizes but no payloads.
        runtime: Frame size, and in live mode the servers' device.
        faults: Time limits of silence.
        live: Whether the node is a real process.
        seed: Seed of the experiment, for coordinators that draw random numbers.
        experiment_json: Text that the scheduler sends to every joining member.
        placed: The shards of all tensors in key order; servers refuse others. None: the first
            worker's initial values define them.

    Returns:
        The configuration.

    Raises:
        ConfigError: The servers' device does not exist.
        PluginError: The results of plugins contradict each other.
    """
    config = _core.NodeConfig(node.id, node.name, node.role)
    config.phantom = phantom
    config.frame_bytes = runtime.frame_bytes
    if live:
        config.most_early_bytes = free_bytes() // 2
    suspect_s = faults.suspect_after_s(runtime)
    config.set_heartbeat(min(0.25, suspect_s / 4), suspect_s)
    config.set_recovery(faults.patience_s if faults.waits else 0.0, faults.redial_s)
    config.continues = faults.continues
    shared = common(cluster, selection)
    if node.id in shared.hosts:
        for number, (label, site) in enumerate(selection.coordinators(cluster)):
            if site.host.id == node.id:
                _add_coordinator(config, number, site, seed, label)
        config.coordinated = {
            group.root.id: len(group.members)
            for group, overlay in selection.overlays(cluster)
            if overlay.site.host == node and not overlay.ahead
        }
    for other in peers(cluster, selection, node):
        config.add_peer(other.id, other.name, other.role)
    if node.role == "scheduler":
        config.experiment = experiment_json
        tree = [(top.id, p.server.id) for top in cluster.global_servers for p in cluster.parties]
        tree += [(p.server.id, worker.id) for p in cluster.parties for worker in p.workers]
        config.standbys = [(cluster.stood_by(each).id, each.id) for each in cluster.standbys]
        config.set_tree([*tree, *config.standbys])
        return config

    config.set_non_finite(runtime.non_finite)
    if live and node.role in ("server", "global_server"):
        _set_device(config, runtime.server_device)
    rules = (shared.policy.together, shared.policy.staleness_bound, shared.at_party)
    moves = shared.policy.exchange == "parameters"
    config.set_rounds(*rules, shared.steps_of, shared.policy.workers_together, moves)
    set_rounds(config, cluster, selection, node, faults)
    below, above = children(cluster, node), parents(cluster, node)
    config.scheduler = cluster.scheduler.id
    config.children = [child.id for child in below]
    config.parents = [parent.id for parent in above]
    if node.role == "standby":
        return config
    if standby := cluster.standby_of(node):
        config.standby = standby.id
    leads = {cluster.workers[0], cluster.party_of(cluster.workers[0]).server}
    config.master = next((child.id for child in below if child in leads), None)
    if placed is not None and below:
        config.declare(placed)
    config.quorum = len(below) if node.role == "server" else len(cluster.workers)
    if node.role == "global_server":
        config.stands_for = {party.server.id: len(party.workers) for party in cluster.parties}
    arriving = []
    for child in below:
        arriving.append(_add_link(config, cluster, selection, child, node, child, "push"))
        _add_link(config, cluster, selection, node, child, child, "pull")
    check_linear(node, arriving)
    for parent in above:
        _add_link(config, cluster, selection, node, parent, parent, "push")
        _add_link(config, cluster, selection, parent, node, parent, "pull")
    _add_groups(config, cluster, selection, node)
    if node.role == "server":
        side = selection.sync_policy(cluster).party_policy(cluster, cluster.party_of(node))
        label = selection.sync_label(cluster) if side is not None else ""
        with blaming(label, side):
            if isinstance(side, Native):
                config.set_policy(_core.native_policy(side.name, dict(side.options)))
            elif side is not None:
                config.set_policy(_core.python_policy(side, label))
    for optimizer in optimizers(selection):
        config.add_optimizer(optimizer)
    return config


def _set_device(config: _core.NodeConfig, name: str) -> None:
    """Set the device on which a server updates and encodes.

    Raises:
        ConfigError: This machine or this build does not have the device.
    """
    if name == "cpu":
        return
    try:
        config.set_device("cuda:0" if name == "cuda" else name)
    except ValueError as error:
        remedy = f"the machine of {config.name} has only {str(error).rpartition('there is ')[2]}"
        raise ConfigError("runtime.server_device", name, f"{remedy}; see `geomx info`") from error


def _add_coordinator(
    config: _core.NodeConfig, number: int, site: Site, seed: int, label: str
) -> None:
    coordinator = site.native
    with blaming(label, coordinator):
        if isinstance(coordinator, Native):
            config.add_coordinator(
                number, coordinator.name, {**coordinator.options, "seed": float(seed)}
            )
        else:
            handle = _core.python_coordinator(coordinator, float(seed), label)
            config.add_coordinator(number, handle)


def siblings(cluster: Cluster, selection: Selection, node: NodeSpec) -> list[NodeSpec]:
    """Return the nodes with which `node` communicates by overlays only."""
    found = {
        member
        for group, _ in common(cluster, selection).overlays.get(node.id, ())
        if node != group.root
        for member in group.members
        if member != node
    }
    return sorted(found, key=lambda member: member.id)


def peers(cluster: Cluster, selection: Selection, node: NodeSpec) -> list[NodeSpec]:
    """Return all nodes with which `node` communicates."""
    if node.role == "scheduler":
        return [other for other in cluster.nodes if other.id != node.id]
    standby = cluster.standby_of(node)
    return [
        cluster.scheduler,
        *children(cluster, node),
        *parents(cluster, node),
        *siblings(cluster, selection, node),
        *([standby] if standby else []),
    ]


def _add_groups(
    config: _core.NodeConfig,
    cluster: Cluster,
    selection: Selection,
    node: NodeSpec,
) -> None:
    """Add the node's overlays; links between siblings have the parts of links with the root."""
    known = set()
    shared = common(cluster, selection)
    for group, overlay in shared.overlays.get(node.id, ()):
        members = [member.id for member in group.members]
        config.add_group(
            group.root.id,
            members,
            overlay.site.host.id,
            shared.sites.index(overlay.site),
            overlay.push,
            overlay.pull,
            overlay.ahead,
            selection.overlay_label(group.root),
        )
        if node == group.root:
            continue
        for sibling in group.members:
            if sibling == node or sibling in known:
                continue
            known.add(sibling)
            _add_link(config, cluster, selection, node, group.root, sibling, "push")
            _add_link(config, cluster, selection, group.root, node, sibling, "pull")


def _add_link(
    config: _core.NodeConfig,
    cluster: Cluster,
    selection: Selection,
    source: NodeSpec,
    target: NodeSpec,
    peer: NodeSpec,
    direction: Direction,
) -> list[tuple[str, Any]]:
    """Add one link with its codecs and slicers; return the codecs with their plugins' labels."""
    link = hop(cluster, selection, source, target, direction)
    chosen = selection.labelled("geomx_codec", link=link)
    codecs = [part(codec, "codec", label) for label, codec in chosen]
    cutting = selection.labelled("geomx_slicer", link=link)
    slicers = [part(slicer, "slicer", label) for label, slicer in cutting]
    grace_s = max((getattr(slicer, "grace_s", 0.0) for _, slicer in cutting), default=0.0)
    config.add_link(peer.id, direction, codecs, slicers, grace_s)
    return chosen


def shards(
    cluster: Cluster,
    selection: Selection,
    tensors: Sequence[TensorSpec],
    priorities: Mapping[int, int] | None = None,
    first: int = 0,
) -> list[list[PlacedShard]]:
    """Divide all tensors into shards and assign them to global servers.

    A tensor that is too large for one shard of the core is divided evenly before partitioners are
    called.

    Args:
        cluster: The nodes, for the number of global servers.
        selection: The plugins; their partitioners divide, and their placement assigns.
        tensors: All tensors in key order.
        priorities: The training loop's priorities by key; absent keys have minus the key.
        first: The first key to return; earlier tensors have been divided before.

    Returns:
        The shards of each tensor from `first` on: (offset, elements, global server, priority).

    Raises:
        ConfigError: A tensor is too large.
        PluginError: A partitioner's shards do not cover the tensor, a shard is too large, or its
            global server does not exist.
    """
    placement = selection.placement(cluster, tensors) or ByTurns(len(cluster.global_servers))
    partitioners = selection.partitioners(cluster)
    # A plugin's placement may depend on earlier calls, so it is called for all tensors.
    start = first if isinstance(placement, ByTurns) else 0
    placed = []
    for key, tensor in enumerate(tensors[start:], start):
        if tensor.elements > MOST_ELEMENTS:
            remedy = f"has {tensor.elements} elements; the limit is {MOST_ELEMENTS:,}"
            raise ConfigError("workload", tensor.name, remedy)
        pieces = cut_evenly(Shard(0, tensor.elements), MOST_SHARD_ELEMENTS)
        priority = (priorities or {}).get(key, -key)
        for partitioner in partitioners:
            pieces = list(partitioner.cut(tensor, priority, pieces))
        _check_sizes(tensor, pieces)
        placed.append(
            [
                (piece.offset, piece.elements, placement.server(key, index, pieces), piece.priority)
                for index, piece in enumerate(pieces)
            ]
        )
    return placed[first - start :]


def _check_sizes(tensor: TensorSpec, pieces: Sequence[Shard]) -> None:
    for piece in pieces:
        if piece.elements > MOST_SHARD_ELEMENTS:
            raise PluginError(
                f"a shard of tensor {tensor.name} has {piece.elements:,} elements; "
                f"the limit is {MOST_SHARD_ELEMENTS:,}"
            )
