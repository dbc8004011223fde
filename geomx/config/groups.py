"""Hydra's choices: plugins with their options, networks of plugins, contents of files.

Hydra has one store per process; the choices of an earlier experiment are replaced.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any, cast

from hydra.core.config_store import ConfigNode, ConfigStore
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from geomx.network.files import FILE_OPTIONS, REST, SUFFIXES, TYPED, is_long_form, load
from geomx.network.hosts import LAN
from geomx.network.short_form import TOP
from geomx.options.named_costs import named_costs
from geomx.plugin.registration import LISTS, Plugin
from geomx.plugin.registry import Registry

MOST_ENTRIES = 32
"""Limit on the entries of a table that is copied into a choice."""

LONGEST = 100
"""Characters of a file's name in that of its choice, which Hydra takes for the name of a file."""

OF_FILES = "file_"
"""How the names of choices begin that are made of files."""


def _itself(store: ConfigStore, memo: dict[int, Any]) -> ConfigStore:
    """Stand in for a copy of the store in Hydra's copies of its repository of sources.

    The store is the only one of its process, changes only here, and gives away copies. Hydra copies
    its repository for every composition, and for every group that ``--help`` lists.
    """
    return store


ConfigStore.__deepcopy__ = _itself  # type: ignore[attr-defined]


def offer(registry: Registry) -> None:
    """Register every plugin's options, and every name of costs, as choices.

    Args:
        registry: The installed plugins.
    """
    store = ConfigStore.instance()
    for kind in ("sync", "accel", "track", "workload"):
        store.repo.pop(kind, None)
    for group in [name for name in store.repo.get("network", {}) if _stored(store, name)]:
        del store.repo["network"][group]
    for plugin in registry.plugins(variants=True):
        if plugin.kind == "network":
            node = OmegaConf.create(_network_node(plugin))
        else:
            node = _node(plugin.config)
        _store(plugin.kind, plugin.name, node)
    for name, node in _named_costs().items():
        _store("costs", name, node)


def _store(group: str, name: str, node: Any) -> None:
    """Register a choice as `ConfigStore.store` does, but without building its node anew."""
    package = f"{group}.{name}" if group in LISTS else group
    choices = ConfigStore.instance().repo.setdefault(group, {})
    choices[f"{name}.yaml"] = ConfigNode(f"{name}.yaml", node, group, package, None)


@cache
def _named_costs() -> dict[str, Any]:
    return {name: OmegaConf.create(values) for name, values in named_costs().items()}


def _stored(store: ConfigStore, name: str) -> bool:
    """Return whether a choice of the group network is a plugin's (others are files')."""
    return "plugin" in store.repo["network"][name].node


def _network_node(plugin: Plugin) -> dict[str, Any]:
    """Return the options of a network plugin, with its name."""
    options = OmegaConf.to_container(OmegaConf.create({"all": _node(plugin.config)}))
    return {"plugin": plugin.name, **cast(dict[str, Any], options)["all"]}


@cache
def _node(config: type) -> Any:
    """Return a plugin's options at their defaults, typed if OmegaConf supports the types.

    Otherwise (a Literal, for example) they are untyped here and checked by `build_options`.
    """
    try:
        node = OmegaConf.structured(config)
    except OmegaConfBaseException:
        defaults = {}
        for field in dataclasses.fields(config):
            made = field.default_factory
            default = field.default if made is dataclasses.MISSING else made()
            defaults[field.name] = "???" if default is dataclasses.MISSING else _untyped(default)
        return OmegaConf.create(defaults)
    _thaw(node)
    return node


def _untyped(default: Any) -> Any:
    """Return a default with tables in place of dataclasses, at any depth of these."""
    if not dataclasses.is_dataclass(default):
        return default
    fields = dataclasses.fields(default)
    return {field.name: _untyped(getattr(default, field.name)) for field in fields}


def _thaw(node: Any) -> None:
    """Let the command line set the options of a frozen dataclass."""
    OmegaConf.set_readonly(node, None)
    for key in node:
        child = node._get_node(key)
        if OmegaConf.is_dict(child) and not child._is_none() and not child._is_missing():
            _thaw(child)


def network_choice(value: str, registry: Registry, overrides: Sequence[str] = ()) -> str:
    """Return the choice, or the choices of a sweep, for ``network=VALUE``.

    A file becomes a choice of its own: with its content if it is in the short form, so that
    ``network.delay_ms=50`` and sweeps over such keys work with files too, otherwise with its path.
    Large tables that no override modifies are also referred to by path: Hydra copies its content
    many times, which would take longer than simulating a thousand parties.

    Args:
        value: Value of the override ``network=``.
        registry: The installed plugins, some of which may read files.
        overrides: All overrides.
    """
    if _is_file(value, registry):
        return _store_network(Path(value), registry, overrides)
    if "(" in value:
        return value
    return ",".join(
        _store_network(Path(v), registry, overrides) if _is_file(v, registry) else v
        for v in value.split(",")
    )


def _is_file(value: str, registry: Registry) -> bool:
    if "," in value or "(" in value:
        return os.path.isfile(value)
    known = Path(value).suffix in (*SUFFIXES, *_readers(registry))
    return known or "/" in value or os.path.isfile(value)  # False for what cannot be a name


def _readers(registry: Registry) -> dict[str, Plugin]:
    """Return the plugins that read network files, by suffix."""
    return {
        suffix: plugin
        for plugin in registry.plugins("network")
        for suffix in getattr(plugin.factory, "suffixes", ())
    }


def _store_network(path: Path, registry: Registry, overrides: Sequence[str]) -> str:
    node: dict[Any, Any] = {"file": str(path), **FILE_OPTIONS}
    reader = _readers(registry).get(path.suffix)
    if reader is not None:
        node = {**_network_node(reader), "file": str(path)}
    elif path.suffix in (".yaml", ".yml", ".json"):
        content = load(path)
        if isinstance(content, dict) and not is_long_form(content):
            absent = {**dict.fromkeys(TOP), "lan": dict.fromkeys(LAN)}
            node = {**absent, "name": path.stem, TYPED: str(path), **content}
            large = [key for key in TOP if _is_large(content.get(key))]
            left = [
                key
                for key in large
                if not any(f"network.{key}" in override for override in overrides)
            ]
            if left:
                rest = {"file": str(path.absolute()), "keys": left}
                node |= {REST: rest, **dict.fromkeys(left)}
    return store_file("network", path, node)


def _is_large(value: Any) -> bool:
    return isinstance(value, Mapping) and len(value) > MOST_ENTRIES


def store_file(group: str, path: Path, node: Mapping[Any, Any]) -> str:
    """Register the content of a file as a choice, unless the same file's same content is one.

    Args:
        group: Group of the choice.
        path: The file, from which the name is derived. `as_typed` finds it by the name.
        node: Its content.

    Returns:
        Name of the choice.
    """
    taken = ConfigStore.instance().repo.get(group, {})
    plain = re.sub(r"\W", "_", path.stem, flags=re.ASCII)  # no others without quotes
    stem = OF_FILES + plain[:LONGEST]
    for name in chain([stem], (f"{stem}_{number}" for number in count(2))):
        there = taken.get(f"{name}.yaml")
        if there is None:
            ConfigStore.instance().store(name, node, group, package=group, provider=str(path))
        if there is None or (there.provider, there.node) == (str(path), node):
            return name
    raise AssertionError("unreachable")


def as_typed(override: str) -> str:
    """Return an override of one job of a sweep with the path of a file in place of its choice.

    Args:
        override: What Hydra made of an override of the command line.
    """
    group, _, name = override.partition("=")
    if not name.startswith(OF_FILES):
        return override
    choice = ConfigStore.instance().repo.get(group.lstrip("+"), {}).get(f"{name}.yaml")
    return override if choice is None else f"{group}={choice.provider}"
