"""How plugins are announced: the record of one, and what `geomx_register` is given."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT_SYNC = "fsa"
KINDS = ("sync", "accel", "workload", "network")

Options = dict[str, Any]
Choice = tuple[str, Options]
"""The name of a plugin, and its options."""


@dataclass(frozen=True)
class Plugin:
    """One registered plugin.

    Attributes:
        kind: One of `KINDS`.
        name: As typed by users.
        config: Dataclass of its options.
        factory: Builds the plugin, workload or network from an instance of `config`.
        origin: The module, and the distribution where known.
        made_of: Plugins of the same kind that this one is made of, by name, each with those of its
            options that are not options of this plugin.
    """

    kind: str
    name: str
    config: type
    factory: Callable[..., Any]
    origin: str
    made_of: Mapping[str, Collection[str]] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """First line of the factory's own documentation, else of its module's."""
        module = inspect.getmodule(self.factory)
        own = getattr(self.factory, "__doc__", None)
        text = own or getattr(module, "__doc__", None) or ""
        return text.strip().split("\n", 1)[0]

    @property
    def lossless(self) -> bool:
        """Whether training with it gives the same numbers, up to the order of additions.

        A factory that promises this says so by ``lossless = True``.
        """
        return bool(getattr(self.factory, "lossless", False))

    @property
    def mxnet(self) -> Mapping[str, str]:
        """How scripts of MXNet and GeoMX ask for it in ``set_gradient_compression``.

        ``type`` is its name there; other words mean options of `config`. Empty: they have no name
        for it. A factory that has one says so by ``mxnet = {"type": ..., "word": "option"}``.
        """
        return dict(getattr(self.factory, "mxnet", {}))


@dataclass(frozen=True)
class Broken:
    """A module that was found but could not be used.

    Attributes:
        origin: The module, and the distribution where known.
        error: What went wrong, in one line.
        names: Under which its plugins are probably asked for: of its entry point, and its own.
    """

    origin: str
    error: str
    names: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.origin} could not be loaded: {self.error}"


class Register:
    """What `geomx_register` is given: call it to announce a plugin.

    Args:
        add: Takes a plugin that is announced.
        load: Takes the name of a module that may announce others, and the distribution.
        module: That announces.
        distribution: Name and version of what installed it, where known.
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
    ) -> None:
        """Announce one plugin.

        Args:
            kind: One of `KINDS`.
            name: As typed by users.
            config: Dataclass of its options.
            factory: Builds the plugin from an instance of `config`.
            made_of: Other plugins of that kind that this one is made of, by name, each with the
                options that stay at its own defaults. Its other options become options of this
                plugin, after those of `config`, and ``factory(config, *plugins)`` is given the
                other plugins too, built, in this order.

        Raises:
            PluginError: Wrong kind, name or config, the name is taken, or a plugin that this one is
                made of is not installed.
        """
        module = getattr(factory, "__module__", None) or self._module
        origin = f"{module} ({self._distribution})" if self._distribution else module
        self._add(Plugin(kind, name, config, factory, origin, made_of or {}))

    def package(self, name: str) -> None:
        """Load every sub-package and module of package `name`, each in isolation.

        Those without a `geomx_register` are taken for helpers and left alone.
        """
        package = importlib.import_module(name)
        for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
            if not info.name.startswith("_"):
                self._load(f"{name}.{info.name}", self._distribution)
