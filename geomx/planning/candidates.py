"""What a plan chooses among: every sync algorithm with every list of accelerators that differs.

Nobody is named here: candidates come from the registry, a stranger's plugins among them. Two lists
of accelerators that give the same wiring (the same shards, codecs, slicers, talk among members) are
one candidate, so an order counts only where it is meaning. Options stand at their defaults, but for
fields that a plugin offers for a search, by ``field(default=4, metadata={"search": (1, 4, 10)})``
in its dataclass.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product
from typing import Any

from geomx.errors import ConfigError, GeomxError
from geomx.experiment.experiment import Experiment
from geomx.experiment.wiring import hop, shards
from geomx.options.parsing import near
from geomx.options.schema import PlanOptions
from geomx.plugin.registration import DEFAULT_SYNC, Plugin
from geomx.plugin.registry import Registry
from geomx.plugin.selection import Selection
from geomx.study.variants import key_of

Setting = tuple[str, Any]
"""A key as typed (``sync.k1``) and its value."""


@dataclass(frozen=True)
class Candidate:
    """One combination.

    Attributes:
        sync: Name of the sync algorithm.
        accel: Names of the accelerators, in order.
        settings: Options that are not at their defaults because the plan moved them.
    """

    sync: str
    accel: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """It, on the command line."""
        said = (f"{key}={value}" for key, value in self.settings)
        return (f"sync={self.sync}", f"accel=[{','.join(self.accel)}]", *said)

    @property
    def name(self) -> str:
        """It, for people: ``sync + accel, accel, option=value``."""
        moved = [f"{key.rpartition('.')[2]}={value}" for key, value in self.settings]
        parts = ", ".join([*self.accel, *moved])
        return f"{self.sync} + {parts}" if parts else self.sync

    @property
    def folder(self) -> str:
        """Where its runs go, in the plan's directory."""
        return "candidates/" + re.sub(r"\W+", "_", " ".join(self.words)).strip("_")

    @property
    def share(self) -> float:
        """Part of all workers that it trains with, 0..1."""
        return 1.0


BASELINE = Candidate(DEFAULT_SYNC)
"""What the others are held against: the default sync algorithm without accelerators."""


class Space:
    """All candidates of a plan.

    Args:
        base: The experiment with the baseline's plugins; its cluster is nobody's but the network's.
        options: What narrows the choice.
        registry: The plugins that exist.
        fixed: Words that set plugins' options (``accel.NAME.k=0.6``), for the candidates that have
            them.

    Raises:
        ConfigError: `options` names a plugin that there is not, or `fixed` an option.
    """

    def __init__(
        self,
        base: Experiment,
        options: PlanOptions,
        registry: Registry,
        fixed: Sequence[str] = (),
    ) -> None:
        self._base, self._options, self._registry = base, options, registry
        self._fixed = {key_of(word): word for word in fixed}
        self.syncs = self._names("sync", options.sync)
        self.accels = self._names("accel", options.accel)
        self.slots = min(options.together, len(self.accels))
        self._known: dict[Any, Candidate] = {}
        self._canonical = lru_cache(maxsize=None)(self._find_canonical)
        settable = self._fields([*registry.plugins("sync"), *registry.plugins("accel")])
        for key, word in self._fixed.items():
            if key not in settable:
                raise ConfigError(key, word.partition("=")[2], near(key, settable))

    def _names(self, kind: str, wanted: Sequence[str] | None) -> list[str]:
        usable = [p.name for p in self._registry.plugins(kind) if {"sim", "live"} <= {*p.backends}]
        for name in wanted or ():
            if name not in usable:
                raise ConfigError(f"plan.{kind}", name, near(name, usable))
        return [name for name in usable if wanted is None or name in wanted]

    def plugins(self, candidate: Candidate) -> list[Plugin]:
        """The plugins of a candidate, sync first."""
        kinds = [("sync", candidate.sync), *(("accel", name) for name in candidate.accel)]
        return [self._registry.find(kind, name) for kind, name in kinds]

    def lossless(self, candidate: Candidate) -> bool:
        """Whether it trains as the baseline does, whatever the workload."""
        everyone = candidate.share == 1
        return everyone and all(plugin.lossless for plugin in self.plugins(candidate))

    def words(self, candidate: Candidate) -> list[str]:
        """The candidate on the command line, with the words that are fixed for its plugins."""
        own = self._fields(self.plugins(candidate))
        return [*candidate.words, *(word for key, word in self._fixed.items() if key in own)]

    def axes(self, sync: str, accel: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        """Keys of the options that are searched, and their values, the default first."""
        if not self._options.options:
            return {}
        fields = self._fields(self.plugins(Candidate(sync, tuple(accel))))
        return {
            key: tuple(dict.fromkeys([field.default, *field.metadata["search"]]))
            for key, field in fields.items()
            if "search" in field.metadata and key not in self._fixed
        }

    def _fields(self, plugins: Iterable[Plugin]) -> dict[str, dataclasses.Field[Any]]:
        """Their options by key."""
        return {
            f"{'sync' if plugin.kind == 'sync' else f'accel.{plugin.name}'}.{field.name}": field
            for plugin in plugins
            for field in dataclasses.fields(plugin.config)
        }

    def candidate(self, sync: str, accel: Sequence[str], values: dict[str, Any]) -> Candidate:
        """The candidate that stands for this combination and all that are wired alike."""
        order = self._canonical(sync, tuple(accel))
        axes = self.axes(sync, accel)
        moved = (item for item in values.items() if item[1] != axes[item[0]][0])
        return Candidate(sync, order, tuple(sorted(moved)))

    def all(self) -> Iterator[Candidate]:
        """Every candidate, simple ones first, each once."""
        seen = set()
        for count in range(self.slots + 1):
            for sync, accel in product(self.syncs, permutations(self.accels, count)):
                axes = self.axes(sync, accel)
                for values in product(*axes.values()):
                    made = self.candidate(sync, accel, dict(zip(axes, values, strict=True)))
                    if made not in seen:
                        seen.add(made)
                        yield made

    def _find_canonical(self, sync: str, accel: tuple[str, ...]) -> tuple[str, ...]:
        chosen: Any = [(name, {}) for name in accel]
        try:
            selection = self._registry.select((sync, {}), chosen)
            wired = _wiring(self._base, selection)
        except GeomxError:
            return tuple(sorted(accel))  # refused in any order; running it says why
        key = (sync, frozenset(accel), wired)
        return self._known.setdefault(key, Candidate(sync, accel)).accel


def _wiring(base: Experiment, selection: Selection) -> str:
    """What the plugins of an experiment decided, with orders where they are meaning, as one text.

    The core orders codecs by what they do, so their order here is none.
    """
    cluster = selection.cluster(base.cluster)
    root = cluster.global_servers[0]
    links = []
    for party in cluster.parties:
        for low, high in ((party.workers[0], party.server), (party.server, root)):
            links.append(hop(cluster, selection, low, high, "push"))
            links.append(hop(cluster, selection, high, low, "pull"))
    told = [
        selection.overlays(cluster),
        shards(cluster, selection, base.workload.tensors),
        [sorted(map(repr, selection.codecs(link))) for link in links],
        [selection.slicers(link) for link in links],
    ]
    return repr(told)
