"""Checks what plugins' sync policies, placements and partitioners return against the contracts.

`geomx.plugin.selection` wraps each of these objects in one of the classes below, which check every
result, in both modes and for scripts. A result that the contract does not allow raises a
`PluginError` with the plugin, the hook, the class, the method and what is allowed. Parts on the
data path (codecs, party policies and so on) are checked in runtime_cpp/bindings/python_*.cc.

A public method or attribute whose name is almost one that geomx uses is refused as misspelt
(`check_names`). Otherwise, the method of the base class would silently be used instead.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.cluster import Cluster, NodeSpec, Party
from geomx.errors import PluginError, near
from geomx.options.costs import WORK
from geomx.plugin.contract_terms import Held, check_names, is_real
from geomx.plugin.coordination import Group, Overlay, Site
from geomx.plugin.parts import (
    BySize,
    Codec,
    Native,
    Optimizer,
    Partitioner,
    Placement,
    Shard,
    Slicer,
)
from geomx.plugin.party import PartyModel, PartySync
from geomx.plugin.rounds import RoundPolicy
from geomx.plugin.sync import Stepwise, SyncPolicy, WorkerSync
from geomx.workload import TensorSpec

EXCHANGES = ("gradients", "parameters")
STAGES = ("select", "quantise", "cast")


def exchanges_at_once(policy: SyncPolicy, worker: WorkerSync, fragments: int) -> bool:
    """Return whether all tensors are exchanged at once, and the next step takes the answers.

    Args:
        policy: A sync policy.
        worker: Its part for a worker.
        fragments: Number of fragments of the model.
    """
    return fragments == 1 and policy.delay == 0 and not getattr(worker, "merges", False)


class CheckedPolicy(SyncPolicy):
    """A plugin's sync policy, with checks of its results.

    Args:
        policy: The plugin's policy.
        label: The plugin, as named in errors.

    Raises:
        PluginError: An attribute has a value that the contract does not allow, or a name is
            misspelt. Methods raise it for invalid results.
    """

    def __init__(self, policy: SyncPolicy, label: str) -> None:
        check_names(label, SyncPolicy, policy)
        self._policy, self._held = policy, Held(policy, label)
        held, bound = self._held, policy.staleness_bound
        if policy.exchange not in EXCHANGES:
            raise held.broken("exchange", "'gradients' or 'parameters'", policy.exchange)
        self.exchange = policy.exchange
        for name in ("together", "workers_together"):
            held.promise(name, getattr(policy, name))
        self.together, self.workers_together = policy.together, policy.workers_together
        if bound is not None:
            bound = held.whole("staleness_bound", bound, 0, 2**31 - 1, "None or rounds")
        self.staleness_bound = bound
        self.delay = held.whole("delay", policy.delay, 0, 2**31 - 1, "steps")
        if self.delay and self.exchange != "parameters":
            raise held.broken("delay", "0 where gradients are exchanged", self.delay)

    def after_step(self, step: int, steps: int) -> bool:
        """See `SyncPolicy.after_step`."""
        return self._held.truth("after_step", self._policy.after_step(step, steps))

    def fragments(self, elements: Sequence[int]) -> list[list[int]]:
        """See `SyncPolicy.fragments`."""
        answer = self._policy.fragments(elements)
        try:
            divided = [[int(key) for key in keys] for keys in answer]
        except (TypeError, ValueError):
            raise self._held.broken("fragments()", "lists of keys", answer) from None
        if sorted(key for keys in divided for key in keys) != list(range(len(elements))):
            wanted = f"lists of keys with each of the {len(elements)} keys in one"
            raise self._held.broken("fragments()", wanted, answer)
        if len(divided) > 1 and self.exchange != "parameters":
            raise self._held.broken("fragments()", "one where gradients are exchanged", answer)
        return divided

    def due(self, step: int, steps: int, fragments: int) -> list[int]:
        """See `SyncPolicy.due`."""
        return self._held.numbers("due", self._policy.due(step, steps, fragments), fragments)

    def push_scale(self, cluster: Cluster, worker: NodeSpec) -> float:
        """See `SyncPolicy.push_scale`."""
        return self._held.number("push_scale", self._policy.push_scale(cluster, worker))

    def global_optimizer(self, optimizer: Mapping[str, Any], workers: int) -> dict[str, Any] | None:
        """See `SyncPolicy.global_optimizer`."""
        answer = self._policy.global_optimizer(optimizer, workers)
        return self._held.known_optimizer("global_optimizer", answer, optimizer.get("name"))

    def local_optimizer(self, optimizer: Mapping[str, Any]) -> dict[str, Any] | None:
        """See `SyncPolicy.local_optimizer`."""
        answer, needed = self._policy.local_optimizer(optimizer), self.exchange == "parameters"
        return self._held.known_optimizer("local_optimizer", answer, optimizer.get("name"), needed)

    def coordinators(self, cluster: Cluster) -> Sequence[Site]:
        """See `SyncPolicy.coordinators`."""
        answer, held = self._policy.coordinators(cluster), self._held
        if not isinstance(answer, Sequence):
            raise held.broken("coordinators()", "a list of geomx.Site", answer)
        hosts = {cluster.scheduler, *(party.server for party in cluster.parties)} if answer else ()
        where = "a local server or the scheduler"
        return [
            held.site(f"coordinators()[{number}]", site, hosts, where)  # type: ignore[arg-type]
            for number, site in enumerate(answer)
        ]

    def worker(self, cluster: Cluster, worker: NodeSpec, steps: int) -> WorkerSync:
        """See `SyncPolicy.worker`."""
        held = self._held
        answer = held.copied(self._policy, cluster).worker(cluster, worker, steps)
        if not isinstance(answer, WorkerSync):
            raise held.broken("worker()", "a geomx.WorkerSync", answer)
        sites = () if answer.coordinator is None else self._policy.coordinators(cluster)
        checked = CheckedWorker(answer, held.label, len(sites))
        if checked.merges and self.exchange != "parameters":
            raise held.broken("exchange", "'parameters' if answers are merged", self.exchange)
        return checked

    def party_policy(
        self, cluster: Cluster, party: Party
    ) -> Native | PartySync | PartyModel | None:
        """See `SyncPolicy.party_policy`."""
        answer, held = self._policy.party_policy(cluster, party), self._held
        if isinstance(answer, Native):
            return held.native("party_policy()", answer, "policy")
        if not self.workers_together:
            if not isinstance(answer, PartyModel):
                wanted = "a PartyModel or a Native if workers_together is False"
                raise held.broken("party_policy()", wanted, answer, PartyModel)
            check_names(held.label, PartyModel, answer)
            return answer
        if answer is None:
            return None
        if not isinstance(answer, PartySync):
            wanted = "a PartySync, a Native or None"
            raise held.broken("party_policy()", wanted, answer, PartySync)
        check_names(held.label, PartySync, answer)
        Held(answer, held.label).promise("makes_up", getattr(answer, "makes_up", False))
        return answer

    def round_policy(self, cluster: Cluster) -> Native | RoundPolicy | None:
        """See `SyncPolicy.round_policy`."""
        answer = self._policy.round_policy(cluster)
        return self._rounds("round_policy()", answer, cluster, self.together)

    def party_round_policy(self, cluster: Cluster, party: Party) -> Native | RoundPolicy | None:
        """See `SyncPolicy.party_round_policy`."""
        answer = self._policy.party_round_policy(cluster, party)
        return self._rounds("party_round_policy()", answer, cluster, True)

    def _rounds(
        self, method: str, answer: Any, cluster: Cluster, together: bool
    ) -> Native | RoundPolicy | None:
        common = together and self.workers_together and not self._policy.coordinators(cluster)
        if answer is not None and not common:
            raise self._held.broken(method, "None without common, unplanned rounds", answer)
        return self._held.rounds(method, answer)


class CheckedWorker(WorkerSync):
    """A worker's part of a plugin's sync policy, with checks of its results.

    Args:
        sync: The plugin's object.
        label: The plugin, as named in errors.
        coordinators: Number of coordinators of the policy.

    Attributes:
        stepwise: Whether it depends on its policy's `SyncPolicy.after_step` and `SyncPolicy.due`
            only.
        merges: Whether it merges answers, and does not take them as they are.
        label: The plugin, as named in errors.
    """

    def __init__(self, sync: WorkerSync, label: str, coordinators: int) -> None:
        check_names(label, WorkerSync, sync)
        asked = sync.policy if isinstance(sync, Stepwise) else sync
        self._sync, self._held = sync, Held(asked, label)
        self.label = label
        self.stepwise = type(sync) is Stepwise
        self.merges = type(asked).merge not in (SyncPolicy.merge, WorkerSync.merge)
        number = sync.coordinator
        if number is not None:
            what = "None or a position in coordinators()"
            number = self._held.whole("coordinator", number, 0, coordinators - 1, what)
        self.coordinator = number

    def after_step(self, step: int) -> bool:
        """See `WorkerSync.after_step`."""
        answer = self._sync.after_step(step)
        if answer is True or answer is False:
            return answer
        return self._held.truth("after_step", answer)

    def due(self, step: int, fragments: int) -> list[int]:
        """See `WorkerSync.due`."""
        return self._held.numbers("due", self._sync.due(step, fragments), fragments)

    def merge(
        self, key: int, local: NDArray[np.float32], value: NDArray[np.float32], age: int
    ) -> NDArray[np.float32]:
        """See `WorkerSync.merge`."""
        answer: Any = self._sync.merge(key, local, value, age)
        right = isinstance(answer, np.ndarray) and answer.dtype == np.float32
        if right and answer.shape == value.shape:
            merged: NDArray[np.float32] = answer
            return merged
        wanted = f"a float32 array of {value.size} elements"
        got = getattr(answer, "dtype", type(answer)), np.shape(answer)
        raise self._held.broken("merge()", wanted, got)

    def finished(self, step: int) -> bool:
        """See `WorkerSync.finished`."""
        answer = self._sync.finished(step)
        if answer is True or answer is False:
            return answer
        return self._held.truth("finished", answer)

    def resume(self, rounds: int) -> int | None:
        """See `WorkerSync.resume`."""
        if rounds > 0 and self.coordinator is not None:
            self._held.overrides(WorkerSync, self._sync, "resume", "earlier replies are unknown")
        answer, what = self._sync.resume(rounds), "the number of a step, or None"
        return None if answer is None else self._held.whole("resume()", answer, 0, 2**53, what)

    def report(self, step_s: float) -> list[float]:
        """See `WorkerSync.report`."""
        answer = self._sync.report(step_s)
        if not isinstance(answer, Sequence | np.ndarray) or isinstance(answer, str | bytes):
            raise self._held.broken("report()", "a list of numbers", answer)
        return [self._held.number("report", value) for value in answer]

    def reply(self, values: Sequence[float]) -> None:
        """See `WorkerSync.reply`."""
        self._sync.reply(values)


class CheckedPlacement(Placement):
    """A plugin's placement, with checks: indices must be less than `servers`."""

    def __init__(self, placement: Placement, label: str, servers: int) -> None:
        check_names(label, Placement, placement)
        self._placement, self._held = placement, Held(placement, label)
        self._last = servers - 1

    def server(self, key: int, shard: int, shards: Sequence[Shard]) -> int:
        """See `Placement.server`."""
        answer = self._placement.server(key, shard, shards)
        return self._held.whole("server()", answer, 0, self._last, "the index of a global server")


class CheckedPartitioner(Partitioner):
    """A plugin's partitioner, with checks: shards must cover the tensor in order."""

    def __init__(self, partitioner: Partitioner, label: str) -> None:
        check_names(label, Partitioner, partitioner)
        self._partitioner, self._held = partitioner, Held(partitioner, label)

    def cut(self, tensor: TensorSpec, priority: int, shards: Sequence[Shard]) -> list[Shard]:
        """See `Partitioner.cut`."""
        answer, held = self._partitioner.cut(tensor, priority, shards), self._held
        if not isinstance(answer, Sequence) or not all(isinstance(s, Shard) for s in answer):
            raise held.broken("cut()", "a list of geomx.Shard", answer)
        end = 0
        for piece in answer:
            for name in ("offset", "elements", "priority"):
                if not isinstance(getattr(piece, name), int | np.integer):
                    raise held.broken("cut()", "shards of whole numbers", piece)
            if piece.offset != end or piece.elements <= 0:
                break
            end += piece.elements
        else:
            if end == tensor.elements:
                return list(answer)
        wanted = f"shards that cover the {tensor.elements} elements of {tensor.name} in order"
        raise held.broken("cut()", wanted, answer)


def check_part(label: str, kind: str, answer: Any) -> None:
    """Check the attributes of a codec, slicer or optimizer.

    Args:
        label: The plugin, as named in errors.
        kind: ``codec``, ``slicer`` or ``optimizer``.
        answer: The object, of one of the types that the hook may return.

    Raises:
        PluginError: An attribute is invalid; the message says what is allowed.
    """
    held = Held(answer, label)
    if isinstance(answer, Native):
        held.native("", answer, kind)
        if not is_real(answer.grace_s) or not 0 <= float(answer.grace_s) < math.inf:
            raise held.broken("grace_s", "seconds, 0 or more", answer.grace_s)
    elif isinstance(answer, BySize):
        held.whole("bound", answer.bound, 1, 2**63 - 1, "elements of a large shard")
        for name in ("small", "large"):
            chain = getattr(answer, name)
            whole = isinstance(chain, Sequence) and all(
                isinstance(c, Codec | Native) for c in chain
            )
            if not whole:
                raise held.broken(name, "a list of codecs", chain)
            for codec in chain:
                check_part(label, kind, codec)
    else:
        check_names(label, {"codec": Codec, "slicer": Slicer}.get(kind, Optimizer), answer)
        if kind == "codec":
            _check_attributes(held, answer)


def _check_attributes(held: Held, codec: Any) -> None:
    for name in ("whole", "in_every_slice"):
        names = getattr(codec, name, ())
        listed = isinstance(names, Collection) and not isinstance(names, str)
        if not listed or not all(isinstance(each, str) for each in names):
            raise held.broken(name, "a set of parts' names", names)
    for name in ("survives_holes", "linear"):
        held.promise(name, getattr(codec, name, False))
    if getattr(codec, "stage", "select") not in STAGES:
        raise held.broken("stage", f"one of {', '.join(STAGES)}", codec.stage)


def check_costs(label: str, costs: Any) -> None:
    """Check endpoint costs that a plugin changed.

    Args:
        label: The plugin, as named in errors.
        costs: Seconds per message and per byte, by kind of work.

    Raises:
        PluginError: They are not pairs of seconds, 0 or more, for each kind of work.
    """
    if not isinstance(costs, Mapping):
        raise PluginError(f"{label}: simulation.costs must be a dict, not {costs!r}")
    for work, figures in costs.items():
        if work not in WORK:
            raise PluginError(f"{label}: simulation.costs has no {work!r}; {near(work, WORK)}")
        pair = figures if isinstance(figures, Sequence) and len(figures) == 2 else ()
        numbered = [is_real(each) and 0 <= float(each) < math.inf for each in pair]
        if not numbered or not all(numbered):
            raise PluginError(
                f"{label}: simulation.costs[{work!r}] must be (seconds per message, seconds per "
                f"byte), 0 or more each, not {figures!r}"
            )
    if lacking := [work for work in WORK if work not in costs]:
        raise PluginError(f"{label}: simulation.costs lacks {', '.join(lacking)}")


def check_overlay(label: str, overlay: Overlay, group: Group) -> Overlay:
    """Check an overlay that a plugin returned.

    Args:
        label: The plugin, as named in errors.
        overlay: The overlay.
        group: The group for which it was returned.

    Returns:
        The overlay, with checks of its attributes.

    Raises:
        PluginError: Its coordinator is invalid or is not on the group's root or the scheduler.
    """
    held = Held(overlay, label)
    hosts = (group.root, group.scheduler)
    held.site("site", overlay.site, hosts, "the group's root or the scheduler")
    for name in ("push", "pull", "ahead", "reliable"):
        held.promise(name, getattr(overlay, name))
    return overlay
