"""Rounds that close without parties or workers that are late: who asks for them, for what nodes."""

from __future__ import annotations

from collections.abc import Iterator

from geomx import _core
from geomx.cluster import Cluster, NodeSpec
from geomx.errors import ConfigError
from geomx.experiment.native_parts import blaming
from geomx.options.schema import FaultOptions
from geomx.plugin.parts import Native
from geomx.plugin.rounds import RoundPolicy
from geomx.plugin.selection import Selection


def close_early(cluster: Cluster, selection: Selection, faults: FaultOptions) -> bool:
    """Return whether some rounds may close without parties or workers that are late.

    Args:
        cluster: All nodes.
        selection: The plugins, whose sync policy may say so.
        faults: Treatment of lost nodes, which may say so too.
    """
    policy = selection.sync_policy(cluster)
    if faults.quorum is not None or policy.round_policy(cluster) is not None:
        return True
    return _parties_close_early(cluster, selection, faults)


def _parties_close_early(cluster: Cluster, selection: Selection, faults: FaultOptions) -> bool:
    if faults.party_quorum is not None:
        return True
    return selection.closes_parties_early(cluster)


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
    policy, label = selection.sync_policy(cluster), selection.sync_label(cluster)
    side: Native | RoundPolicy | None = None
    quorum: tuple[int, float] | None = None
    if node.role == "server":
        party = cluster.party_of(node)
        side = policy.party_round_policy(cluster, party)
        if faults.party_quorum is not None:
            members = len(party.workers)
            workers = min(faults.party_quorum_of(members), members)
            quorum = (workers, faults.party_deadline_s or 0.0)
        if (side or quorum) and policy.exchange == "parameters":
            scales = {each.id: policy.push_scale(cluster, each) for each in party.workers}
            config.parameter_scales = scales
    elif node.role == "global_server" and policy.together:
        side = policy.round_policy(cluster)
        if faults.quorum is not None:
            quorum = (faults.quorum_of(len(cluster.parties)), faults.deadline_s or 0.0)
        elif side is None:  # parties may close rounds after the others' last: those have left
            quorum = (len(cluster.parties), 0.0)
    if quorum is not None:
        config.set_round_policy(_core.quorum_rounds(*quorum))
    elif side is not None:
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
    """Check that rounds can close without parties or workers that are late, if anyone asks for it.

    Raises:
        ConfigError: A quorum is larger than the number of members; two rules close rounds; the
            sync algorithm has no common rounds, or plans the steps of all workers; or logs cannot
            repeat who was late.
    """
    policy = selection.sync_policy(cluster)
    own = policy.round_policy(cluster) is not None
    own_in_parties = selection.closes_parties_early(cluster)
    if own or own_in_parties:
        _check_policy(selection, faults)
    if faults.quorum is not None and not own:
        of = "applies each party's push by itself" if not policy.together else ""
        _check_quorum(cluster, selection, "quorum", faults.quorum, len(cluster.parties), of)
    if faults.party_quorum is not None and not own_in_parties:
        most = max(len(party.workers) for party in cluster.parties)
        of = "applies each worker's push by itself" if not policy.workers_together else ""
        _check_quorum(cluster, selection, "party_quorum", faults.party_quorum, most, of)


def _check_quorum(
    cluster: Cluster, selection: Selection, key: str, quorum: float, most: int, alone: str
) -> None:
    """Check a quorum of the options; `alone` says why there are no common rounds, or is empty."""
    name, _ = selection.sync
    remedy = f"leave faults.{key} and faults.{key.replace('quorum', 'deadline_s')} out"
    if quorum > most:
        whom = "the parties" if key == "quorum" else "the workers of the largest party"
        raise ConfigError(f"faults.{key}", quorum, f"must be at most {most}, {whom}")
    if alone:
        why = f"sync={name} {alone} and has no common rounds"
        raise ConfigError(f"faults.{key}", quorum, f"{why}; {remedy}")
    if selection.coordinators(cluster):
        why = f"sync={name} plans the steps of all workers so that none is late"
        raise ConfigError(f"faults.{key}", quorum, f"{why}; {remedy}")


def _check_policy(selection: Selection, faults: FaultOptions) -> None:
    name, _ = selection.sync
    does = f"sync={name} decides itself when rounds close"
    for key, quorum in (("quorum", faults.quorum), ("party_quorum", faults.party_quorum)):
        if quorum is not None:
            deadline = key.replace("quorum", "deadline_s")
            remedy = f"{does}; leave faults.{key} and faults.{deadline} out"
            raise ConfigError(f"faults.{key}", quorum, remedy)
    if faults.logs("worker"):
        remedy = (
            f"{does}, and workers' logs cannot repeat the steps that they leave out when they are "
            "late; choose faults.durable=replica or none, or faults.on_loss=continue, with which "
            "workers keep no logs"
        )
        raise ConfigError("faults.durable", faults.durable, remedy)
