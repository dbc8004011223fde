"""Plugins that combine other plugins, whose options become their own, declared once."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from geomx.errors import PluginError


def extended(config: type, others: Mapping[type, Collection[str]], where: str) -> type:
    """Return a dataclass with the options of `config`, followed by those of other plugins.

    Args:
        config: The plugin's own dataclass.
        others: The dataclasses of the combined plugins, each with the options to leave out.
        where: The plugin, as named in errors.

    Returns:
        The dataclass; for equal arguments the same, as for other plugins.

    Raises:
        PluginError: Two options have the same name, or an option to leave out does not exist.
    """
    left = tuple((other, frozenset(left_out)) for other, left_out in others.items())
    return _extended(config, left, where)


@lru_cache
def _extended(config: type, others: tuple[tuple[type, frozenset[str]], ...], where: str) -> type:
    known = {field.name for field in dataclasses.fields(config)}
    added: list[Any] = []
    for other, left_out in others:
        hints = typing.get_type_hints(other, include_extras=True)
        fields = {field.name: field for field in dataclasses.fields(other)}
        for name in sorted(left_out - set(fields)):
            raise PluginError(f"{where}: {other.__name__} has no option {name} to leave out")
        for name, field in fields.items():
            if name in left_out:
                continue
            if name in known:
                raise PluginError(f"{where}: the option {name} is declared twice")
            known.add(name)
            default: Any = {"default": field.default}
            if field.default is dataclasses.MISSING:
                default = {"default_factory": field.default_factory}
            added.append((name, hints[name], dataclasses.field(metadata=field.metadata, **default)))
    frozen: bool = config.__dataclass_params__.frozen  # type: ignore[attr-defined]
    made = dataclasses.make_dataclass(config.__name__, added, bases=(config,), frozen=frozen)
    made.__module__, made.__doc__ = config.__module__, config.__doc__
    return made


def part_of(config: Any, other: type, left_out: Collection[str]) -> Any:
    """Return the options of a combined plugin.

    Args:
        config: An instance of the dataclass that `extended` returned.
        other: The dataclass of the combined plugin.
        left_out: Its options that keep their defaults.

    Returns:
        An instance of `other`.
    """
    names = [field.name for field in dataclasses.fields(other) if field.name not in left_out]
    return other(**{name: getattr(config, name) for name in names})
