"""``geomx new-plugin``: generates a small, complete project to install, run and change.

``templates/`` contains a template per kind: a Python module that works in both modes; for
``native``, a package with a codec in C++ and its build files. The project also contains a
pyproject.toml with the entry point, a test that runs `geomx check`, and a README with the commands.
geomx's tests generate and check a project of every kind.
"""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path
from string import Template

from geomx.errors import ConfigError, near
from geomx.plugin.api import api_version
from geomx.plugin.registry import Registry

KINDS = {
    "codec": "accel", "packed": "accel", "native": "accel", "slicer": "accel", "sync": "sync",
    "rounds": "sync", "placement": "accel", "overlay": "accel", "optimizer": "accel",
    "workload": "workload", "network": "network",
}  # fmt: skip
"""The values of ``--kind``, and the kind of plugin that each registers."""

_NATIVE = "native"  # the codec of the kind codec, in C++

_WORDS = {
    "accel": "workload=tiny '+accel=[{name}]'",
    "sync": "workload=tiny sync={name}",
    "workload": "workload={name}",
    "network": "workload=tiny network={name}",
}
_SWEEPS = {
    "accel": "workload=tiny study.each=[accel]",
    "sync": "workload=tiny study.each=[sync]",
    "workload": "-m workload={name},tiny",
    "network": "-m workload=tiny network={name},two_parties",
}


def new_plugin(name: str, kind: str, folder: Path) -> list[Path]:
    """Write a project ``geomx-NAME`` into ``folder/geomx-NAME``.

    Args:
        name: Name of the plugin on the command line; a Python identifier.
        kind: One of `KINDS`.
        folder: Parent of the project's folder.

    Returns:
        The files that were written.

    Raises:
        ConfigError: The name or the kind is invalid, or the project's folder exists.
    """
    if kind not in KINDS:
        raise ConfigError("kind", kind, near(kind, KINDS))
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError("name", name, "must be small letters, digits and _, a letter first")
    if keyword.iskeyword(name):
        raise ConfigError("name", name, "is a word of Python's own; choose another name")
    for plugin in Registry.discover().plugins(KINDS[kind], variants=True):
        if plugin.name == name:
            raise ConfigError("name", name, f"{plugin.kind} {name} exists: {plugin.origin}")
    project = folder / f"geomx-{name.replace('_', '-')}"
    if project.exists():
        raise ConfigError("folder", project, "already exists; move it, or choose another name")
    registered = KINDS[kind]
    words = {
        "name": name,
        "project": project.name,
        "module": f"geomx_{name}",
        "type": "".join(part.capitalize() for part in name.split("_")),
        "kind": {_NATIVE: "codec in C++", "packed": "packed codec"}.get(kind, kind),
        "source": f"{name}.cc" if kind == _NATIVE else f"geomx_{name}.py",
        "registered": registered,
        "words": _WORDS[registered].format(name=name),
        "sweep": _SWEEPS[registered].format(name=name),
        "api": api_version,
    }
    templates = files("geomx.plugin.scaffold") / "templates"
    project.mkdir(parents=True)
    written = []
    for file, template in _contents(name, kind).items():
        text = Template((templates / template).read_text(encoding="utf-8")).substitute(words)
        (project / file).parent.mkdir(exist_ok=True)
        (project / file).write_text(text, encoding="utf-8")
        written.append(project / file)
    return written


def _contents(name: str, kind: str) -> dict[str, str]:
    """Return the templates of a project's files, by file name."""
    own = {"pyproject.toml": "pyproject.txt", f"geomx_{name}.py": f"{kind}.txt"}
    if kind == _NATIVE:
        own = {
            "pyproject.toml": "native_pyproject.txt",
            f"geomx_{name}/__init__.py": "native.txt",
            f"{name}.cc": "native_source.txt",
            "CMakeLists.txt": "native_cmake.txt",
        }
    return {**own, f"test_{name}.py": "test.txt", "README.md": "readme.txt"}
