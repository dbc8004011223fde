"""Docstrings of public names: their examples run, and they say what goes in and what comes out."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from geomx.plugin.api import PUBLIC

OPTIONAL = {"geomx.torch": "torch", "geomx.mxnet": "mxnet"}
THERE = {
    module: names for module, names in PUBLIC.items() if find_spec(OPTIONAL.get(module, "geomx"))
}
WITH_EXAMPLE = (
    "geomx.Codec", "geomx.ConfigError", "geomx.Optimizer", "geomx.Partitioner",
    "geomx.Placement", "geomx.Slicer", "geomx.SyncPolicy", "geomx.cut_evenly", "geomx.run",
    "geomx.kv.create", "geomx.mxnet.create", "geomx.sim.transfer_times",
)  # fmt: skip

RUN = """
import doctest, importlib, sys
found = doctest.testmod(importlib.import_module(sys.argv[1]))
sys.exit(found.failed or not found.attempted)
"""


def public() -> Iterator[tuple[str, Any]]:
    """Classes and functions by the name under which they are imported."""
    for module, names in THERE.items():
        loaded = importlib.import_module(module)
        for name in names:
            found = getattr(loaded, name)
            if inspect.isclass(found) or inspect.isfunction(found):
                yield f"{module}.{name}", found


def homes() -> set[str]:
    """Modules with examples in docstrings of public names, or in their own if users import it."""
    found = {item.__module__ for _, item in public() if ">>>" in (item.__doc__ or "")}
    return found | {m for m in THERE if ">>>" in (importlib.import_module(m).__doc__ or "")}


@pytest.mark.slow
@pytest.mark.parametrize("module", sorted(homes()))
def test_examples_in_docstrings_run(module: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, module],
        check=False, cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_what_users_meet_first_has_an_example() -> None:
    documented = {name: found.__doc__ or "" for name, found in public()}
    wanted = [name for name in WITH_EXAMPLE if name.rpartition(".")[0] in THERE]
    assert [name for name in wanted if "Example:\n" not in documented[name]] == []


def functions() -> Iterator[tuple[str, Any]]:
    """Public functions, and methods that do not override what a framework documents."""
    for name, found in public():
        if not inspect.isclass(found):
            yield name, found
            continue
        strangers = [base for base in found.__mro__ if not base.__module__.startswith("geomx")]
        for method, value in vars(found).items():
            function = getattr(value, "__func__", value)
            inherited = any(hasattr(base, method) for base in strangers)
            if method[0] != "_" and inspect.isfunction(function) and not inherited:
                yield f"{name}.{method}", function


FUNCTIONS = dict(functions())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_docstring_says_what_goes_in_and_what_comes_out(name: str) -> None:
    function = FUNCTIONS[name]
    text = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    given = [one for one in signature.parameters if one not in ("self", "cls")]
    described = text.partition("Args:\n")[2]
    assert [one for one in given if f"    {one}: " not in described] == []
    answers = signature.return_annotation not in (None, "None", inspect.Signature.empty)
    assert not answers or "Returns:\n" in text
