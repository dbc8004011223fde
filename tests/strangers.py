"""Installs third-party plugins for tests: a module and a distribution with an entry point, found
in this process and in those of live runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HEAD = """
from dataclasses import dataclass
import time
import numpy as np
import geomx

@dataclass(frozen=True)
class Config:
    pass

class Half:
    whole = frozenset()
    survives_holes = True
    def layout(self, spec):
        return {"values": (spec["values"][0], "f2")}
    def encode(self, parts):
        return {"values": parts["values"].astype("f2")}
    def decode(self, parts, length):
        return {"values": parts["values"].astype("f4")}

class Base:
    \"\"\"A plugin of these tests.\"\"\"
    def __init__(self, config):
        pass

@geomx.hookimpl
def geomx_register(register):
    register("accel", NAME, Config, Plugin)
"""


def install(folder: Path, module: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a module and its distribution to `folder`, and add `folder` to Python's path."""
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(source, encoding="utf-8")
    name_it(folder, module, {module: module})
    on_path(folder, monkeypatch)


def name_it(folder: Path, distribution: str, entry_points: dict[str, str]) -> None:
    """Write the metadata that pip installs beside a module of that distribution."""
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    points = "".join(f"{name} = {value}\n" for name, value in entry_points.items())
    (info / "entry_points.txt").write_text(f"[geomx]\n{points}")


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add `folder` to the import path of this process and its children."""
    if str(folder) not in sys.path:
        monkeypatch.syspath_prepend(str(folder))
        before = os.environ.get("PYTHONPATH", "")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), before])))
    for path in folder.glob("*.py"):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)


def accel(name: str, body: str) -> str:
    """Return the source of a module with the accelerator `name`, whose class has that body."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    head, tail = HEAD.split("@geomx.hookimpl", 1)
    return f"NAME = {name!r}\n{head}class Plugin(Base):\n{lines}\n\n@geomx.hookimpl{tail}"
