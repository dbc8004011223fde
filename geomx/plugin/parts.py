"""The nouns that plugins answer hooks with. Hooks build them once; they do the work afterwards.

Everything on the data path (codecs, slicers, party policies, coordinators, optimizers) is either
*native*, named by a `Native` (compiled with the core from the plugin's own folder or, for codecs,
in a shared library of the plugin's), or a Python object with the methods below, which the core
calls with the interpreter lock held. Decisions that are taken per tensor or per local step are
always Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from geomx.cluster import Cluster, NodeSpec, Party
from geomx.workload import TensorSpec

__all__ = [
    "BySize",
    "Codec",
    "Coordinator",
    "Group",
    "Native",
    "Optimizer",
    "Overlay",
    "Partitioner",
    "PartySync",
    "Placement",
    "Shard",
    "Site",
    "Slicer",
    "SyncPolicy",
    "WorkerSync",
    "cut_evenly",
]


@dataclass(frozen=True)
class Native:
    """A part compiled into the core, by name.

    Attributes:
        kind: ``codec``, ``slicer``, ``policy`` or ``coordinator``.
        name: As registered by the plugin's C++ source.
        options: Numbers only (booleans count as 0 and 1).
        library: Codecs: the shared library that has it (geomx/include/geomx/codec.h); empty: it was
            compiled into the core.
        grace_s: Slicers: seconds for which a receiver waits for best-effort slices after the
            reliable ones of a round are in.
    """

    kind: str
    name: str
    options: Mapping[str, float] = field(default_factory=dict)
    grace_s: float = 0.0
    library: str = ""


@dataclass(frozen=True)
class Shard:
    """A piece of a tensor that is synchronised on its own.

    Attributes:
        offset: First element within the tensor.
        elements: Length.
        priority: Larger leaves first, on every hop and in both directions.
    """

    offset: int
    elements: int
    priority: int = 0


class Partitioner:
    """Cuts tensors into shards. Partitioners chain, each refining what the one before returned."""

    def cut(self, tensor: TensorSpec, priority: int, shards: Sequence[Shard]) -> list[Shard]:
        """Return shards that cover what `shards` cover, in order of offset.

        Args:
            tensor: Whose shards these are.
            priority: What the training loop asks for: minus the tensor's position, so that the
                first layers, which the next forward pass needs first, come first.
            shards: At first one shard for the whole tensor, of priority 0.
        """
        raise NotImplementedError


class Placement:
    """Which global server holds which shard."""

    def server(self, key: int, shard: int, shards: Sequence[Shard]) -> int:
        """Index of the global server that holds shard number `shard` of tensor `key`."""
        raise NotImplementedError


@dataclass(frozen=True)
class ByTurns(Placement):
    """The default placement: shard i of key k goes to server (k + i) mod n."""

    servers: int

    def server(self, key: int, shard: int, shards: Sequence[Shard]) -> int:
        """See `Placement.server`."""
        return (key + shard) % self.servers


class SyncPolicy:
    """When nodes synchronise, what a worker says then, and where the optimizer runs.

    The base class is the fully synchronous algorithm: every worker pushes its gradient after every
    local step and the global server updates the weights with their mean.

    Attributes:
        exchange: What a worker pushes and pulls: its ``gradients`` (the answer is new weights), or
            its ``parameters`` (the worker runs an optimizer of its own between two syncs).
        together: Whether a global server waits for all parties before it updates and answers. If
            not, it applies and answers every party's push by itself.
        staleness_bound: Then: how many rounds a party may be ahead of the slowest; None: any.
    """

    exchange: str = "gradients"
    together: bool = True
    staleness_bound: int | None = None

    def after_step(self, step: int, steps: int) -> bool:
        """Whether a worker synchronises after local step number `step` (from 0) of `steps`."""
        return True

    def push_scale(self, cluster: Cluster, worker: NodeSpec) -> float:
        """Factor on what `worker` pushes; the store sums and never divides."""
        return 1.0

    def global_optimizer(self, optimizer: Mapping[str, Any], workers: int) -> dict[str, Any] | None:
        """What the global server runs, given the workload's optimizer; None: it only sums."""
        return {**optimizer, "rescale_grad": 1.0 / workers}

    def local_optimizer(self, optimizer: Mapping[str, Any]) -> dict[str, Any] | None:
        """What every worker runs after each local step; None: nothing."""
        return None

    def coordinators(self, cluster: Cluster) -> Sequence[Site]:
        """Minds that the policy needs; a worker reports to one by its position in this list."""
        return ()

    def worker(self, cluster: Cluster, worker: NodeSpec, steps: int) -> WorkerSync:
        """One worker's side: by default as `after_step` says, for `steps` local steps."""
        return Stepwise(self, steps)

    def party_policy(self, cluster: Cluster, party: Party) -> Native | PartySync | None:
        """The local server's side; None: every round goes to the global server."""
        return None


@runtime_checkable
class PartySync(Protocol):
    """A local server's side of a sync policy, written in Python; every server has a deep copy.

    `shard` is (key, number of the shard). Where sizes alone are simulated all arrays are empty, and
    what is made of them must be too. Two more methods are called where there are any:
    ``initial(shard, value)`` hears the master's initial values, before anything is pushed, and
    ``answer(shard, value)`` turns the global server's answer into what the workers get.
    """

    def complete(
        self, shard: tuple[int, int], round_number: int, last: bool, total: NDArray[np.float32]
    ) -> tuple[bool, NDArray[np.float32]]:
        """The party's workers are summed up in `total`.

        Returns:
            Whether it goes on to the global server, or straight back to the workers; and what.
        """
        ...


@runtime_checkable
class Coordinator(Protocol):
    """A coordinator written in Python.

    Its attribute ``seed`` is set to the experiment's. With ``next_timeout()``, seconds of its clock
    or None, and ``on_timeout(now_s)``, which answers like `on_report`, it can act by itself.
    """

    def on_report(
        self, source: int, values: Sequence[float], now_s: float
    ) -> Sequence[tuple[int, Sequence[float]]]:
        """Node `source` reports; answer with (node id, numbers) for whoever is to hear something.

        `now_s` is this node's clock: seconds from some moment that does not change.
        """
        ...


@runtime_checkable
class Optimizer(Protocol):
    """An optimizer written in Python; every shard is moved by a deep copy."""

    def update(
        self, weight: NDArray[np.float32], gradient: NDArray[np.float32], learning_rate: float
    ) -> NDArray[np.float32]:
        """The new weights. `gradient` has been scaled and clipped as the workload says."""
        ...


@dataclass(frozen=True)
class Site:
    """A coordinator and the node it lives on.

    Attributes:
        host: A local server or the scheduler; those who report must talk with it anyway.
        native: What it does.
    """

    host: NodeSpec
    native: Native | Coordinator


@dataclass(frozen=True)
class Group:
    """A node and all who push to it, as an overlay sees them.

    Attributes:
        level: ``party``: a local server and its workers; ``global``: a global server and the local
            servers of all parties.
        root: The server.
        members: Who push to it, in id order; at least two.
        scheduler: The scheduler, with whom everyone talks.
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


class WorkerSync:
    """When one worker synchronises, and when it is done; may listen to a coordinator.

    Attributes:
        coordinator: Its position among `SyncPolicy.coordinators`; None: none.
    """

    coordinator: int | None = None

    def after_step(self, step: int) -> bool:
        """Whether to synchronise after local step number `step` (from 0)."""
        raise NotImplementedError

    def finished(self, step: int) -> bool:
        """Whether `step` is this worker's last. It then synchronises."""
        raise NotImplementedError

    def report(self, step_s: float) -> list[float]:
        """What to tell the coordinator at a sync. `step_s`: seconds of one local step."""
        return []

    def reply(self, values: Sequence[float]) -> None:
        """What the coordinator answered; always before the next local step."""


@dataclass(frozen=True)
class Stepwise(WorkerSync):
    """Synchronise as the policy says, a fixed number of steps."""

    policy: SyncPolicy
    steps: int

    def after_step(self, step: int) -> bool:
        """See `WorkerSync.after_step`."""
        return self.policy.after_step(step, self.steps)

    def finished(self, step: int) -> bool:
        """See `WorkerSync.finished`."""
        return step + 1 == self.steps


Parts = dict[str, NDArray[Any]]


@runtime_checkable
class Codec(Protocol):
    """A codec written in Python; its attributes are its state.

    The dense input is ``{"values": float32[n]}``. Arrays whose length is the number of rows are cut
    into slices together; name those that must stay in one piece in `whole` (they ride in the first
    slice), or in ``in_every_slice``, where there is that attribute: small ones such as a scale. A
    codec that keeps some rows only adds ``"indices"``, uint32, one per row. Set `survives_holes` if
    any slice can be decoded without the others. What a hook returns is a prototype: every shard on
    every link works on a deep copy of it.

    With ``linear = True`` a codec says that encodings of different senders add up: all its parts
    are float32, it chooses no rows, and the sum of what they encoded decodes to the sum of what
    each decodes to. Servers then add parts and decode once; where the sum comes back
    (`Link.summed`) it comes as it is. There a method ``settle(parts)`` is called, if there is one,
    with that sum after it was decoded, on all senders in the same rounds.
    """

    whole: frozenset[str]
    survives_holes: bool

    def layout(self, spec: Mapping[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
        """What `encode` makes of parts with these (length, dtype): the same, without doing it."""
        ...

    def encode(self, parts: Parts) -> Parts:
        """Encode; what is returned must be as `layout` promised."""
        ...

    def decode(self, parts: Parts, length: int) -> Parts:
        """Undo `encode`: ``{"values": ...}`` of `length` rows (and ``"indices"``, if it has them).

        `length` is the number of rows in this slice, or of elements where all parts are whole.
        """
        ...


@dataclass(frozen=True)
class BySize:
    """Codecs that depend on the size of the shard, chosen when the shard is first sent.

    Attributes:
        bound: A shard of at least this many elements is large.
        small: Chain for shards below the bound; empty: dense float32.
        large: Chain for the others.
    """

    bound: int
    small: Sequence[Codec | Native] = ()
    large: Sequence[Codec | Native] = ()


@runtime_checkable
class Slicer(Protocol):
    """A slicer written in Python; every shard on every link works on a deep copy of it."""

    def cut(
        self, slices: Sequence[tuple[int, int, int, int]], row_bytes: float, round_number: int
    ) -> list[tuple[int, int, int, int]]:
        """Return slices (first row, rows, priority, channel) that cover the same rows."""
        ...


def optimizer_text(optimizer: Mapping[str, Any]) -> str:
    """An optimizer as it travels: its name, then one ``option value`` per line."""
    lines = [str(optimizer["name"])]
    lines += [f"{name} {float(value)!r}" for name, value in optimizer.items() if name != "name"]
    return "\n".join(lines) + "\n"


def cut_evenly(shard: Shard, elements: int) -> list[Shard]:
    """`shard` in pieces of at most `elements`, as equal as possible: they begin at rounded shares.

    GeoMX cuts in the same places.
    """
    pieces = -(-shard.elements // elements)
    bounds = [(2 * shard.elements * i + pieces) // (2 * pieces) for i in range(pieces + 1)]
    return [
        replace(shard, offset=shard.offset + start, elements=end - start)
        for start, end in pairwise(bounds)
    ]


def as_vector(array: NDArray[Any]) -> NDArray[np.float32]:
    """`array` as a contiguous float32 vector, copied only if it is not one already."""
    return np.ascontiguousarray(array, dtype=np.float32).reshape(-1)
