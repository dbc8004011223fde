"""Detects accelerators that change nothing in an experiment, to warn before the run.

Examples are a codec after one that leaves no values, a slicer of shards that fit in one message,
and an overlay between parties that do not update together. Such a run equals one without the
plugin, which its results would not show. For each hook of an accelerator, its result is therefore
compared with the default, until the first effect is found. What `geomx_sim` does is looked at last.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from geomx import _core
from geomx.cluster import Cluster, Link
from geomx.errors import GeomxError
from geomx.experiment.experiment import Experiment
from geomx.experiment.hops import hop
from geomx.experiment.native_parts import chosen_optimizers, part
from geomx.experiment.wiring import MOST_SHARD_ELEMENTS
from geomx.limits.rules import hook_limited
from geomx.options.costs import WORK
from geomx.plugin.coordination import Overlay
from geomx.plugin.parts import ByTurns, Shard, cut_evenly
from geomx.plugin.selection import Selection
from geomx.workload import TensorSpec

MOST_LINKS = 200
"""Upper bound on the links that are checked; beyond it, a codec or slicer is assumed to be used."""


class PluginWarning(UserWarning):
    """A selected plugin has no effect."""


def warn_of_idle_plugins(experiment: Experiment) -> None:
    """Warn of every accelerator that changes nothing in `experiment`, with the reasons.

    Raises:
        PluginError: A plugin broke a rule.
    """
    try:
        with hook_limited("what accelerators change"):
            found = list(_idle(experiment))
    except GeomxError:
        raise
    except (Exception, SystemExit) as error:
        blamed = experiment.selection.blamed(error)
        if blamed is None:
            raise
        raise blamed from error
    for label, reasons in found:
        sentence = f"{label} changes nothing in this experiment: {'; '.join(reasons)}"
        warnings.warn(sentence, PluginWarning, stacklevel=3)


def _idle(experiment: Experiment) -> Iterator[tuple[str, list[str]]]:
    looking = _Looking(experiment)
    for label, hooks in experiment.selection.deciders():
        reasons: list[str] = []
        for hook in (hook for hook in _WAYS if hook in hooks):
            reason = _WAYS[hook](looking, f"{label}: {hook}")
            if reason is None:
                break
            reasons.append(reason)
        else:
            if reasons and not ("geomx_sim" in hooks and _acts_on_simulation(experiment, label)):
                yield label, reasons


def _acts_on_simulation(experiment: Experiment, label: str) -> bool:
    """Return whether `geomx_sim` of a plugin changes costs or uses SimPy, or may do so."""
    if experiment.mode == "live":
        return False
    shown = _Shown()
    try:
        experiment.selection.sim(shown, label)
    except GeomxError:  # since it does more than costs are enough for, or fails: the run will tell
        return True
    return shown.costs != _COSTS or (shown.charged and experiment.costs.by_plugin)


_COSTS = dict.fromkeys(WORK, (1.0, 1.0))
"""Costs of every kind of work, seconds per message and per byte."""


class _Shown:
    """What a plugin is shown of a simulation that there is not: its costs.

    Attributes:
        costs: As of `Simulation`.
        charged: Whether the plugin has told what codecs take.
    """

    def __init__(self) -> None:
        self.costs = dict(_COSTS)
        self.charged = False

    def charge(self, accelerator: str, costs: Any) -> None:
        """See `Simulation.charge`."""
        self.charged = True


class _Looking:
    """The effects of the plugins of one experiment, by hook.

    Each method returns why the result of plugin `label` for its hook has no effect; None if it has
    an effect, or if that is unknown.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.selection: Selection = experiment.selection
        self.cluster: Cluster = experiment.cluster
        self.workload = experiment.workload
        self.sync = self.selection.sync[0]
        self._links: dict[str, str | None] | None = None

    def changes_cluster(self, label: str) -> str | None:
        """Check `geomx_cluster`, whose effect the selection has recorded."""
        changed = label in self.selection.changed_cluster
        return None if changed else "the network already has what it adds"

    def decides_sync(self, label: str) -> str | None:
        """Check `geomx_sync_policy`; an accelerator's policy is always used."""
        own = self.selection.sync_label(self.cluster)
        return None if own == label else "it returns no sync policy"

    def updates(self, label: str) -> str | None:
        """Check `geomx_update`."""
        if self._answered("geomx_update", label, cluster=self.cluster) is None:
            return "it does not ask for updates at the parties"
        if self.selection.update_at_party(self.cluster):
            return None
        return (
            f"under sync={self.sync} parties or their workers do not update together, so the "
            "optimizer stays at the global server"
        )

    def optimizes(self, label: str) -> str | None:
        """Check `geomx_optimizer`."""
        brought = self.selection.optimizer()
        if brought is None or brought[1] != label:
            return "it supplies no optimizer"
        used = chosen_optimizers(self.cluster, self.selection, self.workload.optimizer)
        if any(optimizer is not None and optimizer["name"] == brought[0] for optimizer in used):
            return None
        return f"sync={self.sync} uses another optimizer"

    def overlays(self, label: str) -> str | None:
        """Check `geomx_overlay`."""
        policy = self.selection.sync_policy(self.cluster)
        together, workers_together = policy.together, policy.workers_together
        for group in self.selection.groups(self.cluster):
            overlay: Overlay | None = self._answered("geomx_overlay", label, group=group)
            if overlay is not None and (overlay.push or overlay.pull):
                return None
        if self.selection.closes_parties_early(self.cluster):
            return (
                f"under sync={self.sync} parties do not wait for all their workers, which are thus "
                "no group whose members could talk with each other"
            )
        if together and workers_together:
            return "there is no group of two members or more that it lets talk with each other"
        if not workers_together:
            return (
                f"under sync={self.sync} workers do not wait for each other, so they are no group "
                "whose members could talk with each other"
            )
        return (
            f"under sync={self.sync} parties do not update together, so their servers are no group "
            "whose members could talk with each other"
        )

    def partitions(self, label: str) -> str | None:
        """Check `geomx_partitioner`."""
        chain = self.selection.partitioners(self.cluster)
        labels = [label for label, _ in self._asked("geomx_partitioner", cluster=self.cluster)]
        if label not in labels:
            return "it cuts no tensor"
        for key, tensor in enumerate(self.workload.tensors):
            pieces = _whole(tensor)
            for whose, partitioner in zip(labels, chain, strict=True):
                cut = partitioner.cut(tensor, -key, pieces)
                if whose == label and list(cut) != pieces:
                    return None
                pieces = list(cut)
        return "it leaves every tensor as it is"

    def places(self, label: str) -> str | None:
        """Check `geomx_placement`."""
        tensors, servers = self.workload.tensors, len(self.cluster.global_servers)
        if self._answered("geomx_placement", label, cluster=self.cluster, tensors=tensors) is None:
            return "it places nothing"
        placement, otherwise = self.selection.placement(self.cluster, tensors), ByTurns(servers)
        for key, pieces in enumerate(self._pieces()):
            for number in range(len(pieces)):
                usual = otherwise.server(key, number, pieces)
                if placement.server(key, number, pieces) != usual:
                    return None
        plural = "" if servers == 1 else "s"
        return f"with {servers} global server{plural} every shard is where it is without it"

    def works_on_links(self, label: str) -> str | None:
        """Check `geomx_codec` and `geomx_slicer`."""
        if self._links is None:
            self._links = self._look_at_links()
        return self._links.get(label, _NOWHERE[label.rpartition(" ")[2]])

    def _look_at_links(self) -> dict[str, str | None]:
        """Return by label why a codec or slicer has no effect on any link; None if it has one."""
        sizes = sorted({piece.elements for pieces in self._pieces() for piece in pieces})
        found: dict[str, str | None] = {}
        known: set[tuple[Any, ...]] = set()
        links = _links(self.cluster, self.selection)
        for link in islice(links, MOST_LINKS):
            codecs = self._asked("geomx_codec", link=link)
            slicers = self._asked("geomx_slicer", link=link)
            handles = (
                tuple(part(codec, "codec", label) for label, codec in codecs),
                tuple(part(slicer, "slicer", label) for label, slicer in slicers),
            )
            labels = [label for label, _ in (*codecs, *slicers)]
            if all(found.get(label, "") is None for label in labels) or handles in known:
                continue
            known.add(handles)
            for size in reversed(sizes):
                encodes, cuts = _core.link_effects(list(handles[0]), list(handles[1]), size)
                for label, effect in zip(labels, (*encodes, *cuts), strict=True):
                    if effect:
                        found[label] = None
                encoding = [label for (label, _), on in zip(codecs, encodes, strict=True) if on]
                for label in labels:
                    found.setdefault(label, _unused(label, encoding))
        if next(links, None) is not None:  # some links were not checked
            return {f"{label}: {hook}": None for label, hooks in self.selection.deciders()
                    for hook in hooks}  # fmt: skip
        return found

    def _pieces(self) -> Iterator[Sequence[Shard]]:
        chain = self.selection.partitioners(self.cluster)
        for key, tensor in enumerate(self.workload.tensors):
            pieces: Sequence[Shard] = _whole(tensor)
            for partitioner in chain:
                pieces = partitioner.cut(tensor, -key, pieces)
            yield pieces

    def _asked(self, hook: str, **arguments: Any) -> list[tuple[str, Any]]:
        return self.selection.labelled(hook, **arguments)

    def _answered(self, hook: str, label: str, **arguments: Any) -> Any:
        return dict(self._asked(hook, **arguments)).get(label)


def _whole(tensor: TensorSpec) -> list[Shard]:
    """Return the shards of a tensor without partitioners."""
    return cut_evenly(Shard(0, tensor.elements), MOST_SHARD_ELEMENTS)


_NOWHERE = {
    "geomx_codec": "it encodes nothing on any link",
    "geomx_slicer": "it cuts nothing on any link",
}


def _unused(label: str, encoding: Sequence[str]) -> str:
    """Return why a codec or slicer has no effect on its links."""
    others = " and ".join(other.rpartition(":")[0] for other in encoding)
    if label.endswith("geomx_codec"):
        return f"its codec comes after {others}, which leaves no float32 values to encode"
    if others:
        makes = "makes" if len(encoding) == 1 else "make"
        return f"its slicer neither cuts nor reorders what {others} {makes}"
    return "its slicer neither cuts nor reorders what is sent"


def _links(cluster: Cluster, selection: Selection) -> Iterator[Link]:
    """Yield every directed hop, those of the first party first."""
    for party in cluster.parties:
        ends = [(party.server, root) for root in cluster.global_servers]
        ends += [(worker, party.server) for worker in party.workers]
        for low, high in ends:
            yield hop(cluster, selection, low, high, "push")
            yield hop(cluster, selection, high, low, "pull")


_WAYS: dict[str, Callable[[_Looking, str], str | None]] = {
    "geomx_cluster": _Looking.changes_cluster,
    "geomx_sync_policy": _Looking.decides_sync,
    "geomx_update": _Looking.updates,
    "geomx_optimizer": _Looking.optimizes,
    "geomx_overlay": _Looking.overlays,
    "geomx_codec": _Looking.works_on_links,
    "geomx_slicer": _Looking.works_on_links,
    "geomx_partitioner": _Looking.partitions,
    "geomx_placement": _Looking.places,
    "geomx_wan_model": lambda looking, label: None,
    "geomx_scenario": lambda looking, label: None,
}
"""The check of each hook; fast ones first."""
