"""``geomx api``: the plugin interface from its docstrings, also without a docs folder.

`pydoc` shows the same with every special method that a dataclass or a protocol has, which are three
lines of four.
"""

from __future__ import annotations

import importlib
import inspect
import pydoc
import textwrap
from collections.abc import Iterator
from typing import Any

import geomx
from geomx.errors import ConfigError, near
from geomx.plugin import hookspecs
from geomx.plugin.api import PLUGINS, SCRIPTS
from geomx.plugin.calling import hooks


def described(name: str = "") -> str:
    """One hook or object, or a module for scripts, by name; all names, with their first lines.

    Raises:
        ConfigError: Plugins may not use such a thing, or there is none.
    """
    asked = {hook: getattr(hookspecs, hook) for hook in hooks()}
    things = {**asked, **dict(_objects())}
    if name in SCRIPTS:
        return "\n".join(_module(name))
    if name and name.rpartition(".")[0] in SCRIPTS:
        return "\n".join(_whole(name, _of_script(name)))
    if name:
        if name not in things:
            whole = [f"{module}.{name}" for module in SCRIPTS if name in SCRIPTS[module]]
            if whole:
                raise ConfigError("api", name, f"is for scripts: geomx api {' or '.join(whole)}")
            raise ConfigError("api", name, near(name, things))
        return "\n".join(_whole(name, things[name]))
    lines = [f"Hooks and objects of plugins, version {geomx.api_version}; geomx api NAME for one:"]
    for known, thing in things.items():
        text = (pydoc.getdoc(thing) or repr(thing)).split("\n", 1)[0]
        lines.append(f"{known:<22} {text}")
    lines += [f"{module:<22} for scripts: {', '.join(SCRIPTS[module])}" for module in SCRIPTS]
    return "\n".join(lines)


def _objects() -> Iterator[tuple[str, Any]]:
    for module, names in PLUGINS.items():
        loaded = importlib.import_module(module)
        for name in names:
            thing = getattr(loaded, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                yield name, thing


def _of_script(name: str) -> Any:
    """A name of a module that training scripts import, by its full name.

    Raises:
        ConfigError: It has no such name, or needs a framework that is not installed.
    """
    module, _, bare = name.rpartition(".")
    if bare not in SCRIPTS[module]:
        raise ConfigError("api", name, near(bare, SCRIPTS[module]))
    return getattr(_imported(module), bare)


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError("api", module, f"cannot be imported: {error}") from error


def _module(name: str) -> Iterator[str]:
    """Docstring of a module that training scripts import, and the first lines of its names."""
    module = _imported(name)
    yield name
    yield textwrap.indent(inspect.getdoc(module) or "", "    ")
    yield ""
    for known in SCRIPTS[name]:
        first = (pydoc.getdoc(getattr(module, known)) or "").split("\n", 1)[0]
        yield f"{name}.{known:<22} {first}"


def _whole(name: str, thing: Any) -> Iterator[str]:
    """Signature and docstring of a hook or object, and of its public methods and properties."""
    yield f"{name}{_signature(thing)}"
    yield textwrap.indent(inspect.getdoc(thing) or "", "    ")
    if not inspect.isclass(thing):
        return
    own = [each for each in inspect.getmro(thing) if each.__module__.startswith("geomx.")]
    members = {name: each for base in reversed(own) for name, each in vars(base).items()}
    for method, function in members.items():
        inner = inspect.unwrap(getattr(function, "__func__", function))
        shown = inspect.isfunction(inner) or isinstance(inner, property)
        if shown and not method.startswith("_"):
            yield ""
            yield f"    {method}{_signature(inner)}"
            yield textwrap.indent(inspect.getdoc(inner) or "", "        ")


def _signature(thing: Any) -> str:
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    free = all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found.parameters.values())
    return "" if inspect.isclass(thing) and free else str(found).replace("'", "")
