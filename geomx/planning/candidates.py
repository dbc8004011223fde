"""The candidates of a plan: every sync algorithm with every distinct list of accelerators.

Candidates come from the registry, external plugins included; no plugin is named here. Two lists of
accelerators that lead to the same wiring (the same shards, codecs, slicers and overlays) are one
candidate, so the order counts only where it makes a difference. Options keep their defaults, except
for fields that a plugin offers for a search, by ``field(default=4, metadata={"search": (1, 4,
10)})`` in its dataclass.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product
from typing import Any

from geomx.errors import ConfigError, GeomxError, near
from geomx.experiment.experiment import Experiment
from geomx.experiment.hops import hop
from geomx.experiment.wiring import shards
from geomx.options.schema import PlanOptions
from geomx.plugin.registration import DEFAULT_SYNC, Plugin
from geomx.plugin.registry import Registry
from geomx.plugin.selection import Selection
from geomx.results.words import key_of

Setting = tuple[str, Any]
"""An option's key on the command line (``sync.k1``) and its value."""


@dataclass(frozen=True)
class Candidate:
    """One combination.

    Attributes:
        sync: Name of the sync algorithm.
        accel: Names of the accelerators, in order.
        settings: Options that the plan changes from their defaults.
    """

    sync: str
    accel: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()

    @property
    def overrides(self) -> tuple[str, ...]:
        """The overrides that select it."""
        said = (f"{key}={value}" for key, value in self.settings)
        return (f"sync={self.sync}", f"accel=[{','.join(self.accel)}]", *said)

    @property
    def name(self) -> str:
        """Its name in tables: ``sync + accel, accel, option=value``."""
        moved = [f"{key.rpartition('.')[2]}={value}" for key, value in self.settings]
        parts = ", ".join([*self.accel, *moved])
        return f"{self.sync} + {parts}" if parts else self.sync

    @property
    def folder(self) -> str:
        """Folder of its runs, relative to the plan's directory."""
        return "candidates/" + re.sub(r"\W+", "_", " ".join(self.overrides)).strip("_")

    @property
    def share(self) -> float:
        """Fraction of all workers that it trains with, 0..1."""
        return 1.0


BASELINE = Candidate(DEFAULT_SYNC)
"""The reference of all others: the default sync algorithm without accelerators."""


class Space:
    """All candidates of a plan.

    Args:
        base: The experiment with the baseline's plugins; its cluster is that of the network alone.
        options: Restrictions of the choice.
        registry: The installed plugins.
        fixed: Overrides of plugins' options (``accel.NAME.k=0.6``), for candidates with these
            plugins.

    Raises:
        ConfigError: `options` names an unknown plugin, or `fixed` an unknown option.
    """

    def __init__(
        self,
        base: Experiment,
        options: PlanOptions,
        registry: Registry,
        fixed: Sequence[str] = (),
    ) -> None:
        self._base, self._options, self._registry = base, options, registry
        self._fixed = {key_of(override): override for override in fixed}
        self.syncs = self._names("sync", options.sync)
        self.accels = self._names("accel", options.accel)
        self.slots = min(options.together, len(self.accels))
        self._known: dict[Any, Candidate] = {}
        self._canonical = lru_cache(maxsize=None)(self._find_canonical)
        settable = self._fields([*registry.plugins("sync"), *registry.plugins("accel")])
        for key, override in self._fixed.items():
            if key not in settable:
                raise ConfigError(key, override.partition("=")[2], near(key, settable))

    def _names(self, kind: str, wanted: Sequence[str] | None) -> list[str]:
        usable = [plugin.name for plugin in self._registry.plugins(kind)]
        for name in wanted or ():
            if name not in usable:
                raise ConfigError(f"plan.{kind}", name, near(name, usable))
        return [name for name in usable if wanted is None or name in wanted]

    def has(self, candidate: Candidate) -> bool:
        """Return whether `candidate` may be chosen: the baseline is simulated in any case."""
        return candidate.sync in self.syncs

    def plugins(self, candidate: Candidate) -> list[Plugin]:
        """Return the plugins of `candidate`, sync first."""
        kinds = [("sync", candidate.sync), *(("accel", name) for name in candidate.accel)]
        return [self._registry.find(kind, name) for kind, name in kinds]

    def lossless(self, candidate: Candidate) -> bool:
        """Return whether `candidate` trains exactly as the baseline does, for any workload."""
        everyone = candidate.share == 1
        return everyone and all(plugin.lossless for plugin in self.plugins(candidate))

    def overrides(self, candidate: Candidate) -> list[str]:
        """Return the overrides that select `candidate`, with the fixed ones of its plugins."""
        own = self._fields(self.plugins(candidate))
        return [
            *candidate.overrides,
            *(override for key, override in self._fixed.items() if key in own),
        ]

    def axes(self, sync: str, accel: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        """Return the options that are searched.

        Args:
            sync: Name of the sync algorithm.
            accel: Names of the accelerators.

        Returns:
            Values by key, the default first.
        """
        if not self._options.options:
            return {}
        fields = self._fields(self.plugins(Candidate(sync, tuple(accel))))
        return {
            key: tuple(dict.fromkeys([field.default, *field.metadata["search"]]))
            for key, field in fields.items()
            if "search" in field.metadata and key not in self._fixed
        }

    def _fields(self, plugins: Iterable[Plugin]) -> dict[str, dataclasses.Field[Any]]:
        """Return the option fields of `plugins` by key."""
        return {
            f"{'sync' if plugin.kind == 'sync' else f'accel.{plugin.name}'}.{field.name}": field
            for plugin in plugins
            for field in dataclasses.fields(plugin.config)
        }

    def candidate(self, sync: str, accel: Sequence[str], values: dict[str, Any]) -> Candidate:
        """Return the candidate that represents a combination and all that are wired alike.

        Args:
            sync: Name of the sync algorithm.
            accel: Names of the accelerators, in any order.
            values: Values by key, for keys of `axes`.
        """
        order = self._canonical(sync, tuple(accel))
        axes = self.axes(sync, accel)
        moved = (item for item in values.items() if item[1] != axes[item[0]][0])
        return Candidate(sync, order, tuple(sorted(moved)))

    def all(self) -> Iterator[Candidate]:
        """Yield every candidate once, by increasing number of accelerators."""
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
    """Return the decisions of an experiment's plugins as text; equivalent lists have equal texts.

    The core orders codecs itself, so their order is ignored here.
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


def replaced(overrides: Iterable[str], own: Sequence[str]) -> list[str]:
    """Replace overrides.

    Args:
        overrides: Overrides.
        own: Overrides that replace those of the same keys, and of options below these keys.

    Returns:
        The remaining `overrides`, then `own`.
    """
    keys = {key_of(override) for override in own}
    kept = (
        override
        for override in overrides
        if not keys.intersection((key_of(override), _group(override)))
    )
    return [*kept, *own]


def _group(override: str) -> str:
    """Return ``network`` for ``network.delay_ms=1``."""
    return key_of(override).partition(".")[0]
