"""Calls one hook of one plugin: checks the plugin, traces the call, and checks the result.

Every plugin has its own pluggy manager, so that geomx decides which plugins are called, and in
which order. This module reports mistakes that pluggy ignores, or reports in terms of its own
implementation: a misspelt hook, a hook without its decorator, an unknown argument, a method without
``self``, ``self`` in a function that is not bound, and a class instead of its instance. With
``GEOMX_TRACE_HOOKS=1`` in the environment, every call is printed to standard error with its
arguments and its result; in live runs, to the nodes' logs.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

import pluggy

import geomx.plugin
from geomx.cluster import Cluster, Link
from geomx.errors import GeomxError, PluginError, near
from geomx.limits.rules import hook_limited
from geomx.plugin import hookspecs
from geomx.plugin.contract_terms import attributes, lacking
from geomx.plugin.contracts import check_part

TRACE = "GEOMX_TRACE_HOOKS"

# The classes of geomx.plugin that each hook may return.
ANSWERS = {
    "geomx_sync_policy": ("SyncPolicy",),
    "geomx_placement": ("Placement",),
    "geomx_partitioner": ("Partitioner",),
    "geomx_codec": ("Codec", "Native", "BySize"),
    "geomx_slicer": ("Slicer", "Native"),
    "geomx_cluster": ("Cluster",),
    "geomx_update": ("str",),
    "geomx_overlay": ("Overlay",),
    "geomx_optimizer": ("Optimizer",),
    "geomx_track": ("Tracker",),
    "geomx_wan_model": ("WanModel",),
}

OF_TRACKERS = ("geomx_track", "geomx_validate")
"""What a plugin of the kind ``track`` answers: hooks that no node of a live run asks."""

PARTS = {"geomx_codec": "codec", "geomx_slicer": "slicer", "geomx_optimizer": "optimizer"}
"""Hooks that return parts of the data path, and the kind of part."""


@cache
def hooks() -> dict[str, tuple[str, ...]]:
    """Return the argument names of every hook, by the hook's name, in the order of `hookspecs`."""
    return {
        name: tuple(inspect.signature(function).parameters)
        for name, function in vars(hookspecs).items()
        if name.startswith("geomx_")
    }


def one_line(error: BaseException) -> str:
    """Return an exception as one line of text, with its type if the message alone is too short."""
    text = " ".join(str(error).split())
    if isinstance(error, GeomxError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Manager(pluggy.PluginManager):
    """A manager that caches hook specifications per process, as there is a manager per plugin.

    Args:
        implemented: Names of the hooks that its plugin implements.
    """

    def __init__(self, implemented: Collection[str]) -> None:
        super().__init__(hookspecs.PROJECT)
        self._implemented = implemented

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        """Return the options of the plugin's hook `name`; None if that is no hook."""
        return super().parse_hookimpl_opts(plugin, name) if name in self._implemented else None

    def parse_hookspec_opts(self, module_or_class: Any, name: str) -> Any:
        """Return the options of the hook `name`; None if that is no hook."""
        return _specification(name)


@cache
def _specification(name: str) -> Any:
    return pluggy.PluginManager(hookspecs.PROJECT).parse_hookspec_opts(hookspecs, name)


def admit(plugin: Any, label: str) -> pluggy.PluginManager:
    """Return a plugin manager that contains `plugin` alone.

    Args:
        plugin: The plugin's object.
        label: The plugin, as named in errors.

    Raises:
        PluginError: It misspells a hook or an argument, which pluggy may ignore silently.
    """
    if isinstance(plugin, ModuleType):
        return _admit_module(plugin, label, tuple(map(vars(plugin).get, hooks())))
    return _admit(plugin, label)


@lru_cache(maxsize=1024)
def _admit_module(
    module: ModuleType, label: str, _implementations: tuple[Any, ...]
) -> pluggy.PluginManager:
    """See `admit`; every registry asks the same modules, until they are reloaded."""
    return _admit(module, label)


def _admit(plugin: Any, label: str) -> pluggy.PluginManager:
    known = hooks()
    found = dict(_candidates(plugin))
    for name, implemented in found.items():
        if name not in known:
            raise PluginError(f"{label}: unknown hook {name}; {near(name, known)}")
        if not implemented:
            raise PluginError(f"{label}: {name} lacks the decorator @geomx.hookimpl")
        _check_arguments(plugin, label, name, known[name])
    manager = _Manager(found)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin, label)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        raise PluginError(f"{label}: {one_line(error)}") from error
    return manager


def check_instance(plugin: Any, label: str) -> None:
    """Check that a factory returned an object.

    Args:
        plugin: What the factory returned.
        label: The plugin, as named in errors.

    Raises:
        PluginError: It is None or a class.
    """
    if plugin is None:
        raise PluginError(f"{label}: its factory returned None; it must return the plugin's object")
    if isinstance(plugin, type):
        name = plugin.__name__
        remedy = f"it must return an instance, such as {name}(config)"
        raise PluginError(f"{label}: its factory returned the class {name}; {remedy}")


def check_tracker(plugin: Any, label: str) -> None:
    """Check that a tracker answers no hook that the nodes of a live run, which lack it, ask too.

    Args:
        plugin: The tracker's object.
        label: The tracker, as named in errors.

    Raises:
        PluginError: It answers one.
    """
    for name, _ in _candidates(plugin):
        if name in hooks() and name not in OF_TRACKERS:
            remedy = f"register a plugin that answers {name} as accel"
            raise PluginError(f"{label}: trackers answer {' and '.join(OF_TRACKERS)}; {remedy}")


def _candidates(plugin: Any) -> Iterator[tuple[str, bool]]:
    """Yield (name, whether it is decorated) of all hooks, and of functions named like hooks."""
    for name in dir(plugin):
        found = inspect.getattr_static(plugin, name, None)
        routine = inspect.isroutine(found)
        if not routine and (isinstance(plugin, type) or not callable(found)):
            continue
        decorated = getattr(getattr(plugin, name), f"{hookspecs.PROJECT}_impl", None) is not None
        if decorated or (routine and name.startswith("geomx_")):
            yield name, decorated


def _check_arguments(plugin: Any, label: str, name: str, allowed: tuple[str, ...]) -> None:
    method = getattr(plugin, name)
    whole = f"it is {name}({', '.join(allowed)})"
    bound = inspect.ismethod(method)
    try:
        given = inspect.signature(method.__func__ if bound else method).parameters
    except (TypeError, ValueError):
        return
    arguments = list(given.values())
    if bound:
        if not arguments or arguments[0].name in allowed:
            before = f" before {arguments[0].name}" if arguments else ""
            raise PluginError(f"{label}: {name} lacks self{before}; {whole}")
        arguments = arguments[1:]
    for position, argument in enumerate(arguments):
        free = argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
        if argument.name in allowed or argument.default is not argument.empty or free:
            continue
        if argument.name == "self" and position == 0:
            raise PluginError(f"{label}: {name} takes self, but {_unbound(plugin, name)}; {whole}")
        hint = near(argument.name, allowed)
        raise PluginError(f"{label}: {name} has no argument {argument.name}; {hint} ({whole})")


def _unbound(plugin: Any, name: str) -> str:
    """Return why a hook is called without ``self``."""
    if isinstance(plugin, ModuleType):
        return "it is a module's function, not a method"
    if isinstance(inspect.getattr_static(plugin, name), staticmethod):
        return "a static method receives no self"
    return "it is a function of the object, not a method of its class"


def has_hook(manager: pluggy.PluginManager, hook: str) -> bool:
    """Return whether the plugin in `manager` implements a hook."""
    return bool(getattr(manager.hook, hook).get_hookimpls())


def call(manager: pluggy.PluginManager, label: str, hook: str, **arguments: Any) -> Iterable[Any]:
    """Call a hook of one plugin.

    Args:
        manager: The plugin, as `admit` returned it.
        label: The plugin, as named in errors.
        hook: Name of the hook.
        arguments: Arguments of the hook.

    Returns:
        The results that are not None.

    Raises:
        PluginError: The hook raised an exception other than `GeomxError`, or took too long.
    """
    caller = getattr(manager.hook, hook)
    try:
        with hook_limited(f"{label}: {hook} failed:"):
            answers: Sequence[Any] = caller(**arguments)
    except GeomxError as error:
        _trace(caller, label, hook, arguments, f"raised {one_line(error)}")
        raise
    except (Exception, SystemExit) as error:
        _trace(caller, label, hook, arguments, f"raised {one_line(error)}")
        raise PluginError(f"{label}: {hook} failed: {one_line(error)}") from error
    _trace(caller, label, hook, arguments, f"-> {_brief(answers[0]) if answers else None}")
    return answers


def _trace(caller: Any, label: str, hook: str, arguments: dict[str, Any], end: str) -> None:
    if os.environ.get(TRACE, "0") not in ("", "0") and caller.get_hookimpls():
        given = ", ".join(f"{name}={_brief(value)}" for name, value in arguments.items())
        print(f"{label}: {hook}({given}) {end}", file=sys.stderr, flush=True)


def _brief(value: Any) -> str:
    """Return a short description that distinguishes a value from others of its type."""
    if isinstance(value, Link):
        return f"{value.kind} {value.direction} {value.source.name} -> {value.target.name}"
    name = getattr(value, "name", None) or getattr(getattr(value, "root", None), "name", None)
    text = f"{type(value).__name__} {name}" if name else " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:97]}..."


def check_answer(label: str, hook: str, answer: Any) -> None:
    """Check the type of a hook's result, and the attributes of the parts in it.

    Args:
        label: The plugin, as named in errors.
        hook: Name of the hook.
        answer: The result.

    Raises:
        PluginError: The hook may not return that; the message says what is allowed.
    """
    names = ANSWERS.get(hook)
    if names is None:
        raise PluginError(f"{label}: {hook} must return None, not {type(answer).__name__}")
    if not isinstance(answer, tuple(_type(name) for name in names)):
        remedy = _missing(names, answer)
        raise PluginError(
            f"{label}: {hook} must return {' or '.join(names)} (or None), "
            f"not {type(answer).__name__}{remedy}"
        )
    if hook in PARTS:
        check_part(f"{label}: {hook}", PARTS[hook], answer)


def _missing(names: tuple[str, ...], answer: Any) -> str:
    """Return which attributes an object lacks to be one of the protocols `names`, as text."""
    for name in names:
        noun = _type(name)
        wanted = attributes(noun) if getattr(noun, "_is_protocol", False) else set()
        if any(hasattr(answer, attribute) for attribute in wanted):
            return lacking(noun, answer)
    return ""


def _type(name: str) -> type:
    """Return the class with a name that errors use."""
    found: type = {"str": str, "Cluster": Cluster}.get(name) or getattr(geomx.plugin, name)
    return found
