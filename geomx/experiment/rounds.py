"""Global rounds that close without parties that are late: who asks for them, and for what nodes."""

from __future__ import annotations

from collections.abc import Iterator

from geomx import _core
from geomx.cluster import Cluster, NodeSpec
from geomx.errors import ConfigError
from geomx.experiment.native_parts import blaming
from geomx.options.schema import FaultOptions
from geomx.plugin.parts import Native
from geomx.plugin.selection import Selection


def close_early(cluster: Cluster, selection: Selection, faults: FaultOptions) -> bool:
    """Return whether global rounds may close without parties that are late.

    Args:
        cluster: All nodes.
        selection: The plugins, whose sync policy may say so.
        faults: Treatment of lost nodes, which may say so too.
    """
    policy = selection.sync_policy(cluster)
    return faults.quorum is not None or policy.round_policy(cluster) is not None


def may_lack_some(cluster: Cluster, selection: Selection, faults: FaultOptions) -> bool:
    """Return whether rounds may close without nodes that are lost or late.

    Args:
        cluster: All nodes.
        selection: The plugins.
        faults: Treatment of lost nodes.
    """
    return faults.continues or close_early(cluster, selection, faults)


def set_rounds(
    config: _core.NodeConfig,
    cluster: Cluster,
    selection: Selection,
    node: NodeSpec,
    faults: FaultOptions,
) -> None:
    """Set how the rounds of a node close that is no scheduler.

    Args:
        config: Configuration of the node.
        cluster: All nodes.
        selection: The plugins.
        node: The node.
        faults: Treatment of lost nodes.
    """
    if not close_early(cluster, selection, faults):
        return
    config.early_rounds = True
    if node.role != "global_server":
        return
    if faults.quorum is not None:
        parties, deadline_s = faults.quorum_of(len(cluster.parties)), faults.deadline_s or 0.0
        config.set_round_policy(_core.quorum_rounds(parties, deadline_s))
        return
    side = selection.sync_policy(cluster).round_policy(cluster)
    label = selection.sync_label(cluster)
    with blaming(label, side):
        if isinstance(side, Native):
            config.set_round_policy(_core.native_rounds(side.name, dict(side.options)))
        else:
            config.set_round_policy(_core.python_rounds(side, label))


def needs_all(cluster: Cluster, selection: Selection) -> Iterator[tuple[str, str]]:
    """Yield plugins with which no round can complete without some nodes, and why.

    Members forward contributions of others, or weights are stored at the parties only, so that a
    party without some answer cannot obtain them; or each party has a model of its own, which a
    returning worker or party would have to find again.

    Args:
        cluster: All nodes.
        selection: The plugins.
    """
    if not selection.sync_policy(cluster).workers_together:
        name = f"sync={selection.sync[0]}"
        yield name, "keeps a model at each party, which is lost with its server"
    for group, _ in selection.overlays(cluster):
        label = selection.overlay_label(group.root).split(":")[0]
        why = "forwards contributions by members, whose loss would lose contributions of others"
        yield label, why
    if selection.update_at_party(cluster):
        label = selection.labelled("geomx_update", cluster=cluster)[0][0].split(":")[0]
        why = "stores the weights at the parties only, so a party that comes back cannot get them"
        yield label, why


def check_rounds(cluster: Cluster, selection: Selection, faults: FaultOptions) -> None:
    """Check that global rounds can close without parties that are late, if anyone asks for it.

    Raises:
        ConfigError: The quorum is larger than the number of parties; two rules close rounds; the
            sync algorithm has no common rounds, or plans the steps of all workers; or logs cannot
            repeat who was late.
    """
    if not close_early(cluster, selection, faults):
        return
    policy, (name, _) = selection.sync_policy(cluster), selection.sync
    if policy.round_policy(cluster) is not None:
        _check_policy(selection, faults)
        return
    assert faults.quorum is not None
    remedy = "leave faults.quorum and faults.deadline_s out"
    parties = len(cluster.parties)
    if faults.quorum > parties:
        raise ConfigError("faults.quorum", faults.quorum, f"must be at most {parties}, the parties")
    if not policy.together:
        why = f"sync={name} applies each party's push by itself and has no common rounds"
        raise ConfigError("faults.quorum", faults.quorum, f"{why}; {remedy}")
    if selection.coordinators(cluster):
        why = f"sync={name} plans the steps of all workers so that none is late"
        raise ConfigError("faults.quorum", faults.quorum, f"{why}; {remedy}")


def _check_policy(selection: Selection, faults: FaultOptions) -> None:
    name, _ = selection.sync
    does = f"sync={name} decides itself when rounds close"
    if faults.quorum is not None:
        remedy = f"{does}; leave faults.quorum and faults.deadline_s out"
        raise ConfigError("faults.quorum", faults.quorum, remedy)
    if faults.durable == "log":
        remedy = (
            f"{does}, and workers' logs cannot repeat the steps that they leave out when they are "
            "late; choose faults.durable=replica or none"
        )
        raise ConfigError("faults.durable", faults.durable, remedy)
