"""DiLoCo: workers train locally for H steps, then an outer optimizer applies their mean change.

Douillard et al., 2023 (arXiv 2311.08105). Every worker runs the workload's optimizer, whose state
stays with it. After every `h` steps and after the last, parties send the mean change of their
workers from the common model, and the global server applies the mean of all changes as a gradient:
SGD with Nesterov momentum. The WAN carries 1 / h of the bytes of full synchronisation.

Streaming DiLoCo (Douillard et al., 2025, arXiv 2501.18512) divides the model into `fragments` of
whole tensors, each with steps of its own within the h, so that the peak of the traffic is 1 /
fragments; and it trains on for `tau` steps before it applies an answer, so that communication is
hidden. A worker then keeps `alpha` of what its own tensors differ from the answer.

With `outer_lr` 1 and `outer_momentum` 0 the model becomes the mean of all workers (local SGD), and
with `h` 1 as well, and SGD on the workers, it is that of full synchronisation.

Decoupled DiLoCo (Douillard et al., 2026, arXiv 2604.21428) closes the round of a fragment when a
`quorum` of parties has contributed and, `deadline_s` later, without the others, whose contributions
count in the next round. With `weights` ``tokens`` a party's weight is tokens * (tokens / steps): a
contribution of fewer local steps counts less. What differs: the deadline is fixed and does not
adapt to the time that is left of a step, and changes are averaged, not their norms and directions
apart. `party_quorum` and `party_deadline_s` are the same inside every party: a round of a party
closes without its slowest workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Interval, Unit
from numpy.typing import NDArray

from geomx.cluster import Cluster, NodeSpec, Party
from geomx.errors import ConfigError
from geomx.options.bounds import OneOf
from geomx.plugin import Native, SyncPolicy
from geomx.plugin.hookspecs import hookimpl
from geomx.plugin.registration import Register


@dataclass(frozen=True)
class DiLoCoConfig:
    """Options of DiLoCo."""

    h: Annotated[int, Ge(1), Unit("steps")] = field(default=20, metadata={"search": (10, 20, 50)})
    """Local steps between two synchronisations."""
    fragments: Annotated[int, Ge(1)] = 1
    """Parts of the model with steps of their own, as equal in size as whole tensors allow."""
    tau: Annotated[int, Ge(0), Unit("steps")] = 0
    """Steps of training before an answer is applied, below h."""
    alpha: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    """What a worker keeps of its own difference from an answer: 0 takes the answer."""
    outer_lr: Annotated[float, Gt(0)] = 0.7
    """Learning rate of the outer optimizer."""
    outer_momentum: Annotated[float, Interval(ge=0, lt=1)] = 0.9
    """Nesterov momentum of the outer optimizer."""

    quorum: Annotated[int | None, Ge(1), Unit("parties")] = None
    """Parties with which a round may close without the others; null: all that take part."""
    deadline_s: Annotated[float | None, Ge(0), Unit("s")] = None
    """Seconds for which it then waits for the others; null: 0."""
    party_quorum: Annotated[int | None, Ge(1), Unit("workers")] = None
    """Workers with which a party's round may close without its others; null: all that take part."""
    party_deadline_s: Annotated[float | None, Ge(0), Unit("s")] = None
    """Seconds for which it then waits for these; null: 0."""
    weights: Annotated[str, OneOf(("equal", "tokens"))] = "equal"
    """Weights in the mean: ``equal`` for all workers, or by the ``tokens`` behind a change."""

    def __post_init__(self) -> None:
        if self.deadline_s is not None and self.quorum is None:
            raise ConfigError("deadline_s", self.deadline_s, "has no effect without quorum")
        if self.party_deadline_s is not None and self.party_quorum is None:
            remedy = "has no effect without party_quorum"
            raise ConfigError("party_deadline_s", self.party_deadline_s, remedy)
        if self.tau >= self.h:
            remedy = f"must be below h={self.h}, so that an answer is applied before the next push"
            raise ConfigError("tau", self.tau, remedy)
        if self.fragments > self.h:
            remedy = f"must be at most h={self.h}, so that each has a step of its own"
            raise ConfigError("fragments", self.fragments, remedy)


@dataclass(frozen=True)
class DiLoCoPolicy(SyncPolicy):
    """Exchanges parameters every h steps; the global servers run the outer optimizer."""

    config: DiLoCoConfig
    exchange = "parameters"

    def after_step(self, step: int, steps: int) -> bool:
        """Return whether this is an h-th step, or the last."""
        return (step + 1) % self.config.h == 0 or step + 1 == steps

    @property
    def delay(self) -> int:  # type: ignore[override]
        """See `DiLoCoConfig.tau`."""
        return self.config.tau

    def fragments(self, elements: Sequence[int]) -> list[list[int]]:
        """Give each tensor, the largest first, to the fragment with the fewest elements.

        Raises:
            ConfigError: There are fewer tensors than fragments.
        """
        count = self.config.fragments
        if count > len(elements):
            remedy = f"must be at most {len(elements)}, the tensors of the model"
            raise ConfigError("sync.fragments", count, remedy)
        keys: list[list[int]] = [[] for _ in range(count)]
        sizes = [0] * count
        for key in sorted(range(len(elements)), key=lambda key: -elements[key]):
            least = sizes.index(min(sizes))
            keys[least].append(key)
            sizes[least] += elements[key]
        return [sorted(each) for each in keys]

    def due(self, step: int, steps: int, fragments: int) -> list[int]:
        """Return the fragment whose turn it is, every h steps for each, at equal distances."""
        h = self.config.h
        return [n for n in range(fragments) if (step + 1 - n * h // fragments) % h == 0]

    def push_scale(self, cluster: Cluster, worker: NodeSpec) -> float:
        """Return 1 / (number of all workers), so that the sum of all is the mean."""
        return 1.0 / len(cluster.workers)

    def party_policy(self, cluster: Cluster, party: Party) -> Native:
        """Return the native policy that sends the party's change of the model."""
        return Native("policy", "changes", {"workers": float(len(cluster.workers))})

    def round_policy(self, cluster: Cluster) -> Native | None:
        """Return the native policy of diloco.cc, where rounds need not wait for all parties.

        Raises:
            ConfigError: There are fewer parties than the quorum.
        """
        config, parties = self.config, len(cluster.parties)
        if config.quorum is None and config.weights == "equal":
            return None
        if config.quorum is not None and config.quorum > parties:
            remedy = f"must be at most {parties}, the parties"
            raise ConfigError("sync.quorum", config.quorum, remedy)
        return self._rounds(config.quorum or parties, config.deadline_s)

    def party_round_policy(self, cluster: Cluster, party: Party) -> Native | None:
        """Return the same policy for the rounds of a party, which need not wait for all workers.

        Raises:
            ConfigError: All parties have fewer workers than the quorum.
        """
        config, workers = self.config, len(party.workers)
        if config.party_quorum is None:
            return None
        most = max(len(each.workers) for each in cluster.parties)
        if config.party_quorum > most:
            remedy = f"must be at most {most}, the workers of the largest party"
            raise ConfigError("sync.party_quorum", config.party_quorum, remedy)
        return self._rounds(min(config.party_quorum, workers), config.party_deadline_s)

    def _rounds(self, quorum: int, deadline_s: float | None) -> Native:
        options = {
            "quorum": float(quorum),
            "deadline_s": deadline_s or 0.0,
            "by_tokens": float(self.config.weights == "tokens"),
        }
        return Native("rounds", "diloco", options)

    def global_optimizer(self, optimizer: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return the outer optimizer: SGD with Nesterov momentum."""
        config = self.config
        return {
            "name": "nag",
            "learning_rate": config.outer_lr,
            "momentum": config.outer_momentum,
        }

    def local_optimizer(self, optimizer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the workload's optimizer, which every worker runs with its own state."""
        return dict(optimizer)


class MixingPolicy(DiLoCoPolicy):
    """The same, where workers keep a part of what their tensors differ from an answer."""

    def merge(
        self, key: int, local: NDArray[np.float32], value: NDArray[np.float32], age: int
    ) -> NDArray[np.float32]:
        """See `SyncPolicy.merge`."""
        return value + np.float32(self.config.alpha) * (local - value)


class DiLoCo:
    """Local steps on every worker, then an outer Nesterov step on their mean change."""

    def __init__(self, config: DiLoCoConfig) -> None:
        self.config = config

    @hookimpl
    def geomx_sync_policy(self, cluster: Cluster) -> SyncPolicy:
        """Return the sync policy of this algorithm."""
        return MixingPolicy(self.config) if self.config.alpha else DiLoCoPolicy(self.config)


@hookimpl
def geomx_register(register: Register) -> None:
    """Register ``sync=diloco``."""
    register("sync", "diloco", DiLoCoConfig, DiLoCo)
