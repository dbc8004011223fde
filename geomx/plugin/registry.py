"""Finds the installed plugins, and builds those that an experiment selects.

`Registry` loads every installed module in isolation and collects its plugins, so that a broken
plugin is shown as broken and the others work. `Registry.select` builds a `Selection`: instances
with validated options, each with its own plugin manager. There is no global state: experiments,
tests and sweeps in one process are independent of each other.

A misspelt hook is an error that names the correct one. `geomx.plugin.selection` documents the order
of calls, and how errors of plugins are reported.

Live node processes, which receive names and options from the scheduler, use this module too, so it
imports neither Hydra nor OmegaConf.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import typing
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import networkx as nx

from geomx.cluster import Cluster
from geomx.errors import ConfigError, GeomxError, PluginError, near
from geomx.limits.rules import hook_limited
from geomx.options.parsing import build_options, prefixed
from geomx.plugin import hookspecs
from geomx.plugin.api import check_version
from geomx.plugin.calling import (
    admit,
    call,
    check_tracker,
    one_line,
)
from geomx.plugin.composition import extended, part_of
from geomx.plugin.registration import DEFAULT_SYNC, KINDS, Broken, Choice, Options, Plugin, Register
from geomx.plugin.selection import Built, Selection
from geomx.plugin.sync import SyncPolicy
from geomx.plugin.workloads import check_workload
from geomx.workload import Workload

ENTRY_POINTS = "geomx"


@lru_cache(maxsize=1024)
def _types(config: type) -> dict[str, Any]:
    """Return the types of the fields of a class; every registry asks for the same ones."""
    return typing.get_type_hints(config)


@dataclass(frozen=True)
class _NoOptions:
    """The default policy has no options."""


class _Default:
    """The fully synchronous base policy, if no installed plugin has the default's name."""

    @hookspecs.hookimpl
    def geomx_register(self, register: Register) -> None:
        """Register the base policy under the default's name."""
        register("sync", DEFAULT_SYNC, _NoOptions, _DefaultPolicy)


class _DefaultPolicy:
    """Fully synchronous (the built-in default)."""

    def __init__(self, config: _NoOptions) -> None:
        self.config = config

    @hookspecs.hookimpl
    def geomx_sync_policy(self, cluster: Cluster) -> SyncPolicy:
        """Return the base class of all policies."""
        return SyncPolicy()


class Registry:
    """The installed plugins. See the module's documentation."""

    def __init__(self) -> None:
        self.broken: list[Broken] = []
        self._plugins: dict[tuple[str, str], Plugin] = {}
        self._clashes: dict[tuple[str, str], list[str]] = {}
        self._waiting: list[Plugin] | None = None  # combine plugins that may not be loaded yet

    @classmethod
    def discover(cls) -> Registry:
        """Return a registry with the plugins of all entry points of the group ``geomx``."""
        registry = cls()
        registry._waiting = []
        points = importlib.metadata.entry_points(group=ENTRY_POINTS)
        for point in sorted(set(points), key=lambda point: (point.value, point.name)):
            distribution = None
            if point.dist is not None:
                distribution = f"{point.dist.name} {point.dist.version}"
            registry.load(point.value, distribution, point.name)
        registry._compose()
        if ("sync", DEFAULT_SYNC) not in registry._plugins:
            registry.ask(_Default())
        return registry

    def load(self, module: str, distribution: str | None = None, name: str = "") -> None:
        """Import a module and call its `geomx_register`; failures are stored in `broken`.

        Args:
            module: Full name of the module.
            distribution: Name and version of its distribution, if known.
            name: Name of its entry point, which a user may select.
        """
        origin = f"{module} ({distribution})" if distribution else module
        names = frozenset(filter(None, (name, module.rpartition(".")[2])))
        try:
            with hook_limited(f"{origin}: its import"):
                loaded = importlib.import_module(module)
            self.ask(loaded, distribution)
        except Exception as error:
            self.broken.append(Broken(origin, one_line(error), names))
        except SystemExit as error:
            self.broken.append(Broken(origin, f"it ends the process ({error})", names))

    def ask(self, module: Any, distribution: str | None = None) -> None:
        """Call `geomx_register` of a module.

        Args:
            module: The module, or any object with that hook.
            distribution: Name and version of the distribution that installed it, if known.

        Raises:
            PluginError: It misspells the hook, registers something invalid, or was written for
                another version of the interface.
        """
        name = getattr(module, "__name__", type(module).__name__)
        check_version(name, getattr(module, "geomx_api", None))
        register = Register(self.add, self.load, name, distribution)
        call(admit(module, name), name, "geomx_register", register=register)

    def add(self, plugin: Plugin) -> None:
        """Add one plugin.

        Args:
            plugin: The plugin.

        Raises:
            PluginError: Its kind, name or config is invalid, or the name exists. An ambiguous name
                is refused from then on when selected.
        """
        where = f"{plugin.kind} {plugin.name} from {plugin.origin}"
        if plugin.kind not in KINDS:
            raise PluginError(f"{where}: the kind must be one of {', '.join(KINDS)}")
        if not plugin.name.isidentifier():
            raise PluginError(f"{where}: the name must be a Python identifier")
        if not (isinstance(plugin.config, type) and dataclasses.is_dataclass(plugin.config)):
            raise PluginError(f"{where}: its config must be a dataclass")
        try:
            _types(plugin.config)
        except Exception as error:
            raise PluginError(f"{where}: its config's types: {one_line(error)}") from error
        if not callable(plugin.factory):
            raise PluginError(f"{where}: its factory must be callable")
        lacking = [name for name in plugin.made_of if (plugin.kind, name) not in self._plugins]
        if lacking and self._waiting is not None:
            self._waiting.append(plugin)
            return
        if lacking:
            names = " and ".join(lacking)
            raise PluginError(f"{where}: is made of {plugin.kind} {names}, which is not installed")
        if plugin.made_of:
            others = {
                self._plugins[plugin.kind, name].config: left_out
                for name, left_out in plugin.made_of.items()
            }
            plugin = dataclasses.replace(plugin, config=extended(plugin.config, others, where))
        key = plugin.kind, plugin.name
        taken = self._plugins.setdefault(key, plugin)
        if taken is not plugin:
            origins = self._clashes.setdefault(key, [taken.origin])
            origins.append(plugin.origin)
            raise PluginError(
                f"{plugin.kind} {plugin.name} is registered twice: by {' and by '.join(origins)}"
            )

    def _compose(self) -> None:
        """Add the plugins that combine others, after all modules have been loaded."""
        waiting, self._waiting = self._waiting or [], None
        while waiting:
            plugin = waiting.pop(0)
            awaited = {(other.kind, other.name) for other in waiting}
            if any((plugin.kind, name) in awaited for name in plugin.made_of):
                waiting.append(plugin)
                continue
            try:
                self.add(plugin)
            except PluginError as error:
                self.broken.append(Broken(plugin.origin, str(error), frozenset({plugin.name})))

    def plugins(self, kind: str | None = None, variants: bool = False) -> list[Plugin]:
        """Return all plugins (of one kind), by kind and name; those that are `variants`, too."""
        found = [
            plugin
            for plugin in self._plugins.values()
            if kind in (None, plugin.kind) and (variants or not plugin.variant_of)
        ]
        return sorted(found, key=lambda plugin: (KINDS.index(plugin.kind), plugin.name))

    def find(self, kind: str, name: str) -> Plugin:
        """Return a plugin.

        Args:
            kind: One of `KINDS`.
            name: Its name.

        Raises:
            ConfigError: There is none, or there are two; the message lists the existing ones.
        """
        plugin = self._plugins.get((kind, name))
        if plugin is None:
            known = [plugin.name for plugin in self.plugins(kind, variants=True)]
            raise ConfigError(kind, name, self.missing(name, f"{kind} plugin", known))
        if (kind, name) in self._clashes:
            origins = " and by ".join(self._clashes[kind, name])
            raise ConfigError(kind, name, f"announced by {origins}; uninstall one of them")
        return plugin

    def missing(self, name: str, what: str, known: Iterable[str], also: str = "") -> str:
        """Return why there is no plugin `name`, and the remedy, for a `ConfigError`.

        Args:
            name: The requested name.
            what: The kind, as in "no such accel plugin".
            known: The existing names.
            also: Further possibilities, to append to `known`.

        Returns:
            The message.
        """
        asked = [str(broken) for broken in self.broken if name in broken.names]
        if asked:
            return "; ".join(asked)
        remedy = f"no such {what}; {near(name, known)}{also}"
        others = "; ".join(f"{broken.origin}: {broken.error}" for broken in self.broken)
        return f"{remedy} (failed to load: {others})" if others else remedy

    def select(
        self, sync: Choice | None, accel: Sequence[Choice] = (), track: Sequence[Choice] = ()
    ) -> Selection:
        """Build the plugins of one experiment.

        Args:
            sync: Name and options; None for the default.
            accel: Names and options, in order.
            track: Likewise, of experiment trackers.

        Returns:
            The built plugins.

        Raises:
            ConfigError: A name or an option is unknown, a value is out of range, or a name is
                repeated.
            PluginError: A plugin breaks a rule.
        """
        chosen = [self._build("sync", "sync", sync or (DEFAULT_SYNC, {}))]
        trackers = self._listed("track", track)
        for built in trackers:
            check_tracker(built.instance, built.label)
        return Selection([*chosen, *self._listed("accel", accel)], trackers)

    def _listed(self, kind: str, choices: Sequence[Choice]) -> list[Built]:
        names = [name for name, _ in choices]
        same = [self.find(kind, name).variant_of or name for name in names]
        for name in same:
            if same.count(name) > 1:
                raise ConfigError(kind, f"[{','.join(names)}]", f"{name} is listed twice")
        return [self._build(kind, f"{kind}.{choice[0]}", choice) for choice in choices]

    def workload(self, name: str, options: Options) -> Workload:
        """Build a workload.

        Args:
            name: Its name.
            options: Its options.

        Returns:
            The workload.

        Raises:
            ConfigError: The name or an option is unknown, a value is out of range, or data is
                missing.
            PluginError: Its factory failed, or returned something else or an invalid workload.
        """
        built = self._build("workload", "workload", (name, options)).instance
        if not isinstance(built, Workload):
            raise PluginError(
                f"workload {name}: its factory returned {type(built).__name__}, not a Workload"
            )
        check_workload(name, built)
        return built

    def network(self, name: str, options: Options) -> Any:
        """Build a network by a plugin.

        Args:
            name: Name of the network plugin.
            options: Its options.

        Returns:
            The content of a network file, or a graph.

        Raises:
            ConfigError: The name or an option is unknown, a value is out of range, or a file is
                unreadable.
            PluginError: The factory failed or returned something else.
        """
        built = self._build("network", "network", (name, options)).instance
        if not isinstance(built, Mapping | nx.Graph):
            raise PluginError(
                f"network {name}: its factory returned {type(built).__name__}, "
                "not the content of a network file or a networkx graph"
            )
        return built

    def _build(self, kind: str, prefix: str, choice: Choice) -> Built:
        name, options = choice
        plugin = self.find(kind, name)
        config: Any = build_options(plugin.config, options, prefix)
        # No time limit for workloads, whose factories may load data.
        limited = (
            nullcontext()
            if kind == "workload"
            else hook_limited(f"{kind} {name}: could not be built:")
        )
        try:
            with limited:
                instance = self._instance(plugin, config)
        except ConfigError as error:
            raise prefixed(error, plugin.config, prefix) from error
        except GeomxError:
            raise
        except (Exception, SystemExit) as error:
            raise PluginError(f"{kind} {name}: could not be built: {one_line(error)}") from error
        return Built(plugin, dataclasses.asdict(config), instance)

    def _instance(self, plugin: Plugin, config: Any) -> Any:
        others = []
        for name, left_out in plugin.made_of.items():
            other = self.find(plugin.kind, name)
            others.append(self._instance(other, part_of(config, other.config, left_out)))
        return plugin.factory(config, *others)
