"""Registration of plugins: the record of a plugin, and the argument of `geomx_register`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT_SYNC = "fsa"
KINDS = ("sync", "accel", "track", "workload", "network")
LISTS = {"accel": "accelerator", "track": "tracker"}
"""Kinds of which an experiment chooses a list, and the word for a member of it."""

Options = dict[str, Any]
Choice = tuple[str, Options]
"""The name of a plugin, and its options."""


@dataclass(frozen=True)
class Plugin:
    """One registered plugin.

    Attributes:
        kind: One of `KINDS`.
        name: Its name on the command line.
        config: Dataclass of its options.
        factory: Builds the plugin, workload or network from an instance of `config`.
        origin: The module, and the distribution if known.
        made_of: Plugins of the same kind that this one combines, by name, each with those of its
            options that are not options of this plugin.
        variant_of: The plugin that this one is under another name, with other defaults; "": none.
    """

    kind: str
    name: str
    config: type
    factory: Callable[..., Any]
    origin: str
    made_of: Mapping[str, Collection[str]] = field(default_factory=dict)
    variant_of: str = ""

    @property
    def summary(self) -> str:
        """First line of the factory's docstring, or of its module's if it has none."""
        module = inspect.getmodule(self.factory)
        own = getattr(self.factory, "__doc__", None)
        text = own or getattr(module, "__doc__", None) or ""
        return text.strip().split("\n", 1)[0]

    @property
    def lossless(self) -> bool:
        """Whether training with it gives the same values, up to the order of additions.

        True if the factory has ``lossless = True``.
        """
        return bool(getattr(self.factory, "lossless", False))

    @property
    def mxnet(self) -> Mapping[str, str]:
        """Its names in ``set_gradient_compression`` of MXNet's and GeoMX's scripts.

        ``type`` is the plugin's name there; other keys are names of parameters, and their values
        the options of `config`. From the factory's attribute
        ``mxnet = {"type": ..., "word": "option"}``; empty without it.
        """
        return dict(getattr(self.factory, "mxnet", {}))


@dataclass(frozen=True)
class Broken:
    """A module that was found but could not be used.

    Attributes:
        origin: The module, and the distribution if known.
        error: The error, in one line.
        names: Probable names of its plugins: that of its entry point, and the module's.
    """

    origin: str
    error: str
    names: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.origin} could not be loaded: {self.error}"


class Register:
    """The argument of `geomx_register`; call it to register a plugin.

    Args:
        add: Receives each registered plugin.
        load: Receives the name of a module that may register plugins, and its distribution.
        module: The module that registers.
        distribution: Name and version of its distribution, if known.
    """

    def __init__(
        self,
        add: Callable[[Plugin], None],
        load: Callable[[str, str | None], None],
        module: str,
        distribution: str | None,
    ) -> None:
        self._add, self._load = add, load
        self._module = module
        self._distribution = distribution

    def __call__(
        self,
        kind: str,
        name: str,
        config: type,
        factory: Callable[..., Any],
        made_of: Mapping[str, Collection[str]] | None = None,
        variant_of: str = "",
    ) -> None:
        """Register one plugin.

        Args:
            kind: One of `KINDS`.
            name: Its name on the command line.
            config: Dataclass of its options.
            factory: Builds the plugin from an instance of `config`.
            made_of: Other plugins of that kind that this one is made of, by name, each with the
                options that stay at its own defaults. Its other options become options of this
                plugin, after those of `config`, and ``factory(config, *plugins)`` is given the
                other plugins too, built, in this order.
            variant_of: A plugin of that kind that this one is under another name, with other
                defaults: the two are not chosen together, and studies try the other one.

        Raises:
            PluginError: Wrong kind, name or config, the name is taken, or a plugin that this one is
                made of is not installed.
        """
        module = getattr(factory, "__module__", None) or self._module
        origin = f"{module} ({self._distribution})" if self._distribution else module
        self._add(Plugin(kind, name, config, factory, origin, made_of or {}, variant_of))

    def package(self, name: str) -> None:
        """Load every sub-package and module of package `name`, each in isolation.

        Those without a `geomx_register` are ignored.
        """
        package = importlib.import_module(name)
        for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
            if not info.name.startswith("_"):
                self._load(f"{name}.{info.name}", self._distribution)
