"""The plugins of one experiment, each with its own plugin manager.

Hooks are called in the order of the command line. Two results of an exclusive hook are an error
that names both plugins. An exception or an invalid result raises a `PluginError` that names the
plugin and the hook.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

from geomx.cluster import Cluster, Link, NodeSpec
from geomx.errors import ConfigError, PluginError
from geomx.plugin.calling import (
    admit,
    call,
    check_answer,
    check_instance,
    has_hook,
    hooks,
    one_line,
)
from geomx.plugin.contracts import (
    CheckedPartitioner,
    CheckedPlacement,
    CheckedPolicy,
    check_costs,
    check_overlay,
)
from geomx.plugin.coordination import Group, Overlay, Site
from geomx.plugin.experiment import Experiment
from geomx.plugin.groups import groups_of
from geomx.plugin.parts import (
    BySize,
    ByTurns,
    Codec,
    Native,
    Optimizer,
    Partitioner,
    Placement,
    Slicer,
)
from geomx.plugin.registration import DEFAULT_SYNC, Choice, Options, Plugin
from geomx.plugin.reliability import refuse_best_effort
from geomx.plugin.sync import SyncPolicy, WorkerSync
from geomx.plugin.tracking import TrackedRun, Tracker
from geomx.plugin.wan import WanModel
from geomx.workload import TensorSpec

Found = TypeVar("Found")


@dataclass(frozen=True)
class Built:
    """A selected plugin: its registration, all its options, and the instance."""

    plugin: Plugin
    options: Options
    instance: Any

    @property
    def label(self) -> str:
        """Its name in errors: ``accel NAME``."""
        return f"{self.plugin.kind} {self.plugin.name}"

    @property
    def choice(self) -> Choice:
        """Its name and options, for `Registry.select`."""
        return self.plugin.name, dict(self.options)


class Selection:
    """The plugins of one experiment, in order: sync first, then accelerators as listed.

    Args:
        chosen: The sync plugin, and the accelerators.
        trackers: The experiment trackers; they do not belong to what an experiment is.

    Attributes:
        sync: Name and all options of the sync plugin.
        accel: Names and all options of the accelerators, in order.
        changed_cluster: The plugins, as named in errors, whose `geomx_cluster` returned another
            cluster.
    """

    def __init__(self, chosen: Sequence[Built], trackers: Sequence[Built] = ()) -> None:
        self._chosen = (*chosen, *trackers)
        self.sync: Choice = chosen[0].choice
        self.accel: tuple[Choice, ...] = tuple(built.choice for built in chosen[1:])
        for built in self._chosen:
            check_instance(built.instance, built.label)
        self._managers = [admit(built.instance, built.label) for built in self._chosen]
        self.changed_cluster: set[str] = set()
        self._overlay_labels: dict[int, str] = {}  # by root
        self._kept: tuple[Cluster | None, dict[Any, Any]] = None, {}
        self._askable: dict[str, list[tuple[Built, Any]]] = {}  # by hook

    def validate(self, experiment: Experiment) -> None:
        """Call every plugin's `geomx_validate`, which may refuse the experiment."""
        self._ask("geomx_validate", experiment=experiment)

    def sync_policy(self, cluster: Cluster) -> SyncPolicy:
        """Return the sync policy (`geomx_sync_policy`)."""
        return self._sync(cluster)[1]

    def sync_label(self, cluster: Cluster) -> str:
        """Return the plugin of the sync policy, as named in errors."""
        return f"{self._sync(cluster)[0].label}: geomx_sync_policy"

    def _sync(self, cluster: Cluster) -> tuple[Built, SyncPolicy]:
        answers = self._ask("geomx_sync_policy", cluster=cluster)
        if len(answers) > 1 and self.sync[0] == DEFAULT_SYNC:
            answers = answers[1:]
        answer = self._only(answers, "the sync policy")
        if answer is None:
            raise PluginError(f"sync {self.sync[0]}: it returns no sync policy")
        built = answers[0][0]
        return built, CheckedPolicy(answer, f"{built.label}: geomx_sync_policy")

    def coordinators(self, cluster: Cluster) -> list[tuple[str, Site]]:
        """Return (plugin, coordinator) by number: the policy's first, then those of overlays."""
        built, policy = self._sync(cluster)
        label = f"{built.label}: geomx_sync_policy"
        found = [(label, site) for site in policy.coordinators(cluster)]
        for group, overlay in self.overlays(cluster):
            if all(site != overlay.site for _, site in found):
                found.append((self._overlay_labels[group.root.id], overlay.site))
        return found

    def coordinator(self, cluster: Cluster, number: int) -> str:
        """Return the description of coordinator `number` in errors, with plugin and node."""
        label, site = self.coordinators(cluster)[number]
        name = getattr(site.native, "name", "") or type(site.native).__name__
        return f"the coordinator {name} ({label}) on {site.host.name}"

    def placement(self, cluster: Cluster, tensors: Sequence[TensorSpec]) -> Placement:
        """Return the placement of a plugin, or the default (`geomx_placement`)."""
        answers = self._ask("geomx_placement", cluster=cluster, tensors=tensors)
        answer, servers = self._only(answers, "the placement"), len(cluster.global_servers)
        if answer is None:
            return ByTurns(servers)
        return CheckedPlacement(answer, f"{answers[0][0].label}: geomx_placement", servers)

    def cluster(self, cluster: Cluster) -> Cluster:
        """Return the nodes of the experiment, after all `geomx_cluster` hooks."""
        for built, manager in zip(self._chosen, self._managers, strict=True):
            for answer in call(manager, built.label, "geomx_cluster", cluster=cluster):
                check_answer(built.label, "geomx_cluster", answer)
                if answer is not cluster:
                    self.changed_cluster.add(f"{built.label}: geomx_cluster")
                cluster = answer
        return cluster

    def update_at_party(self, cluster: Cluster) -> bool:
        """Return whether local servers run the optimizer (`geomx_update`)."""
        together = self._waits_for_all(cluster) and self.sync_policy(cluster).workers_together
        if not together:
            return False
        answers = self._ask("geomx_update", cluster=cluster)
        for built, answer in answers:
            if answer not in ("party", "steps"):
                remedy = "geomx_update must return 'party', 'steps' or None"
                raise PluginError(f"{built.label}: {remedy}")
        return bool(answers)

    def keeps_steps(self, cluster: Cluster) -> bool:
        """Return whether parties push steps, and train with what codecs have not sent of them.

        Those of the optimizer (`geomx_update`), or moves of parameters where these are exchanged.
        """
        if not self.update_at_party(cluster):
            return False
        if self.sync_policy(cluster).exchange == "parameters":
            return True
        return any(answer == "steps" for _, answer in self._ask("geomx_update", cluster=cluster))

    def optimizer(self) -> tuple[str, str, Optimizer] | None:
        """Return (name, plugin, optimizer) of a plugin's optimizer; None if there is none."""
        answers = self._ask("geomx_optimizer")
        answer: Optimizer | None = self._only(answers, "the optimizer")
        if answer is None:
            return None
        built = answers[0][0]
        return built.plugin.name, f"{built.label}: geomx_optimizer", answer

    def groups(self, cluster: Cluster) -> list[Group]:
        """Return the groups that an overlay may serve: whose root waits for all members."""
        early = self.closes_parties_early(cluster)
        inside = self.sync_policy(cluster).workers_together and not early
        return groups_of(cluster, self._waits_for_all(cluster), inside)

    def closes_parties_early(self, cluster: Cluster) -> bool:
        """Return whether the policy closes rounds of parties without workers that are late."""
        return self.once(cluster, Selection._find_closing)

    def _find_closing(self, cluster: Cluster) -> bool:
        policy = self.sync_policy(cluster)
        return any(policy.party_round_policy(cluster, each) is not None for each in cluster.parties)

    def _waits_for_all(self, cluster: Cluster) -> bool:
        """Return whether rounds of the global servers wait for all parties."""
        policy = self.sync_policy(cluster)
        early = policy.round_policy(cluster) is not None or self.closes_parties_early(cluster)
        return policy.together and not early

    def overlays(self, cluster: Cluster) -> list[tuple[Group, Overlay]]:
        """Return the groups with an overlay, and their overlays (`geomx_overlay`)."""
        return self.once(cluster, Selection._find_overlays)

    def _find_overlays(self, cluster: Cluster) -> list[tuple[Group, Overlay]]:
        policy = self.sync_policy(cluster)
        answers = [(group, self._overlay(group)) for group in self.groups(cluster)]
        found = [(group, overlay) for group, overlay in answers if overlay is not None]
        for group, overlay in found:
            if overlay.reliable:
                self._refuse_best_effort(group, policy)
        return found

    def _refuse_best_effort(self, group: Group, policy: SyncPolicy) -> None:
        link = group.cluster.link(group.members[0], group.root, "push")
        link = replace(link, kind=group.kind, exchange=policy.exchange)
        name = self._overlay_labels[group.root.id].split(":")[0].split()[-1]
        accel = [each for each, _ in self.accel]
        refuse_best_effort(accel, name, self.labelled("geomx_slicer", link=link), _where(group))

    def once(self, cluster: Cluster, find: Callable[[Selection, Cluster], Found]) -> Found:
        """Return `find` of this selection and `cluster`, cached until the cluster changes.

        For results that every link of an experiment needs. They must not have state, because all
        callers share them.
        """
        if self._kept[0] is not cluster:
            self._kept = cluster, {}
        known = self._kept[1]
        if find not in known:
            known[find] = find(self, cluster)
        found: Found = known[find]
        return found

    def _overlay(self, group: Group) -> Overlay | None:
        answers = self._ask("geomx_overlay", group=group)
        for built, _ in answers:
            self._overlay_labels[group.root.id] = f"{built.label}: geomx_overlay"
        answer: Overlay | None = self._only(answers, f"the overlay {_where(group)}")
        if answer is not None:
            check_overlay(self._overlay_labels[group.root.id], answer, group)
        return answer

    def overlay_label(self, root: NodeSpec) -> str:
        """Return the plugin of the overlay of `root`'s group, as named in errors."""
        return self._overlay_labels.get(root.id, "")

    def partitioners(self, cluster: Cluster) -> list[Partitioner]:
        """Return the chain of partitioners (`geomx_partitioner`)."""
        answers = self.labelled("geomx_partitioner", cluster=cluster)
        return [CheckedPartitioner(answer, label) for label, answer in answers]

    def codecs(self, link: Link) -> list[Codec | Native | BySize]:
        """Return the chain of codecs on `link` (`geomx_codec`)."""
        return [answer for _, answer in self.labelled("geomx_codec", link=link)]

    def slicers(self, link: Link) -> list[Slicer | Native]:
        """Return the chain of slicers on `link` (`geomx_slicer`)."""
        return [answer for _, answer in self.labelled("geomx_slicer", link=link)]

    def labelled(self, hook: str, **arguments: Any) -> list[tuple[str, Any]]:
        """Return (plugin, result) of a hook for each plugin, in order."""
        answers = self._ask(hook, **arguments)
        return [(f"{built.label}: {hook}", answer) for built, answer in answers]

    def deciders(self) -> list[tuple[str, list[str]]]:
        """Return every accelerator, as named in errors, and the hooks that it implements."""
        decide = slice(1, 1 + len(self.accel))
        pairs = zip(self._chosen[decide], self._managers[decide], strict=True)
        return [(each.label, [h for h in hooks() if has_hook(m, h)]) for each, m in pairs]

    def blamed(self, error: BaseException) -> PluginError | None:
        """Return `error` as a `PluginError` if code of a selected plugin raised it; else None.

        For exceptions of plugins' objects during a run. Exceptions of hooks, and of codecs and
        other parts on the data path, are attributed where they are called. An exception that was
        raised again with another traceback, as SimPy does, is attributed to its first origin.
        """
        raised: BaseException | None = error
        while raised is not None:
            for frame, line in reversed(list(traceback.walk_tb(raised.__traceback__))):
                if self.owner(frame) is not None:
                    return PluginError(f"{self.named(frame, line)} failed: {one_line(raised)}")
            raised = raised.__cause__
        return None

    def owner(self, frame: FrameType) -> Built | None:
        """Return the selected plugin whose code runs in `frame`; None if there is none."""
        module = str(frame.f_globals.get("__name__", ""))
        for built in self._chosen:
            home = str(getattr(built.plugin.factory, "__module__", ""))
            if home and (module == home or module.startswith(f"{home}.")):
                return built
        return None

    def author(self, code: CodeType) -> Built | None:
        """Return the selected plugin whose file contains `code`; for code without a frame."""
        for built in self._chosen:
            module = sys.modules.get(str(getattr(built.plugin.factory, "__module__", "")))
            if code.co_filename == getattr(module, "__file__", None):
                return built
        return None

    def named(self, frame: FrameType, line: int | None = None, kind: str = "") -> str:
        """Return the description of a call in errors: plugin, hook, function, file and line.

        Args:
            frame: The call.
            line: Line number; None for the current one.
            kind: Text before the function's name, if it is not an ordinary call.

        Returns:
            The description.
        """
        built = self.owner(frame)
        where = f"{Path(frame.f_code.co_filename).name}:{line or frame.f_lineno}"
        whose = f"{built.label}: {_hook_of(frame.f_locals.get('self'))}" if built else ""
        return f"{whose}{kind}{frame.f_code.co_qualname} ({where})"

    def answers(self, hook: str) -> bool:
        """Return whether a plugin implements a hook."""
        return any(has_hook(manager, hook) for manager in self._managers)

    def labelled_by(self, hook: str) -> list[str]:
        """Return the plugins that implement a hook, as named in errors."""
        pairs = zip(self._chosen, self._managers, strict=True)
        return [f"{built.label}: {hook}" for built, manager in pairs if has_hook(manager, hook)]

    def sim(self, simulation: Any, label: str | None = None) -> None:
        """Call every `geomx_sim`, or only that of a plugin, and check the costs after each."""
        for built, manager in zip(self._chosen, self._managers, strict=True):
            if label not in (None, built.label):
                continue
            for answer in call(manager, built.label, "geomx_sim", simulation=simulation):
                check_answer(built.label, "geomx_sim", answer)
            if hasattr(simulation, "costs"):
                check_costs(f"{built.label}: geomx_sim", simulation.costs)

    def scenario(self, world: Any) -> None:
        """Call every `geomx_scenario`."""
        self._ask("geomx_scenario", world=world)

    def wan_model(self) -> WanModel | None:
        """Return the model of the network of a plugin (`geomx_wan_model`); None: there is none."""
        model: WanModel | None = self._only(self._ask("geomx_wan_model"), "the WAN model")
        return model

    def events(self, events: Any) -> None:
        """Call every `geomx_events`."""
        self._ask("geomx_events", events=events)

    def trackers(self, run: TrackedRun) -> list[tuple[str, Tracker]]:
        """Return (plugin, tracker) of every tracker of a run (`geomx_track`)."""
        return self.labelled("geomx_track", run=run)

    def _ask(self, hook: str, **arguments: Any) -> list[tuple[Built, Any]]:
        answers = []
        if hook not in self._askable:
            pairs = zip(self._chosen, self._managers, strict=True)
            self._askable[hook] = [pair for pair in pairs if has_hook(pair[1], hook)]
        for built, manager in self._askable[hook]:
            for answer in call(manager, built.label, hook, **arguments):
                check_answer(built.label, hook, answer)
                answers.append((built, answer))
        return answers

    def _only(self, answers: list[tuple[Built, Any]], what: str) -> Any:
        if len(answers) > 1:
            names = [built.plugin.name for built, _ in answers]
            accel = ",".join(name for name, _ in self.accel)
            raise ConfigError(
                "accel", f"[{accel}]", f"{' and '.join(names)} both decide {what}; choose one"
            )
        return answers[0][1] if answers else None


def _where(group: Group) -> str:
    return "inside parties" if group.level == "party" else "between parties"


def _hook_of(answer: Any) -> str:
    """Return the hook that returned an object, for errors; empty if unknown."""
    kinds = {
        "geomx_sync_policy": (SyncPolicy, WorkerSync),
        "geomx_placement": (Placement,),
        "geomx_partitioner": (Partitioner,),
    }
    hooks = [hook for hook, types in kinds.items() if isinstance(answer, types)]
    return f"{hooks[0]}: " if hooks else ""
