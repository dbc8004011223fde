"""Docstrings of public names: examples run, and arguments, results and errors are documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from geomx.plugin import hookspecs
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


def public(module: str) -> Iterator[tuple[str, Any]]:
    """Yield the classes and functions of a module by the names under which they are imported."""
    loaded = importlib.import_module(module)
    for name in THERE[module]:
        found = getattr(loaded, name)
        if inspect.isclass(found) or inspect.isfunction(found):
            yield f"{module}.{name}", found


def homes(module: str) -> set[str]:
    """Return the modules whose docstrings contain the examples of a public module."""
    found = {item.__module__ for _, item in public(module) if ">>>" in (item.__doc__ or "")}
    return found | {module} if ">>>" in (importlib.import_module(module).__doc__ or "") else found


@pytest.fixture(scope="module")
def run_already() -> set[str]:
    """Return the modules whose examples have run, as a name may be imported from several."""
    return set()


@pytest.mark.slow
@pytest.mark.parametrize("module", THERE)
def test_examples_in_docstrings_run(module: str, tmp_path: Path, run_already: set[str]) -> None:
    for home in sorted(homes(module) - run_already):
        run_already.add(home)
        done = subprocess.run(
            [sys.executable, "-c", RUN, home],
            check=False, cwd=tmp_path, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, f"{home}: {done.stdout[-3000:]}{done.stderr[-1000:]}"


@pytest.mark.slow  # imports PyTorch and MXNet
def test_the_most_used_names_have_examples() -> None:
    everything = (pair for module in THERE for pair in public(module))
    documented = {name: found.__doc__ or "" for name, found in everything}
    wanted = [name for name in WITH_EXAMPLE if name.rpartition(".")[0] in THERE]
    assert [name for name in wanted if "Example:\n" not in documented[name]] == []


def functions(module: str) -> Iterator[tuple[str, Any]]:
    """Yield public functions, and methods that do not override documented ones of a framework."""
    for name, found in public(module):
        if not inspect.isclass(found):
            yield name, found
            continue
        strangers = [base for base in found.__mro__ if not base.__module__.startswith("geomx")]
        for method, value in vars(found).items():
            function = getattr(value, "__func__", value)
            inherited = any(hasattr(base, method) for base in strangers)
            if method[0] != "_" and inspect.isfunction(function) and not inherited:
                yield f"{name}.{method}", function


def hooks() -> list[tuple[str, Any]]:
    """Return all hooks with their names."""
    return [(name, hook) for name, hook in vars(hookspecs).items() if name.startswith("geomx_")]


def raises(function: Any) -> bool:
    """Return whether the function raises an error itself, other than by re-raising."""
    body = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = [ast.unparse(n.exc) for n in ast.walk(body) if isinstance(n, ast.Raise) and n.exc]
    return any(not one.startswith("NotImplementedError") for one in raised)


def unsaid(name: str, function: Any) -> list[str]:
    """Return which arguments, results and errors a docstring does not document."""
    text = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    given = [one for one in signature.parameters if one not in ("self", "cls")]
    described = text.partition("Args:\n")[2]
    absent = [f"{name}: {one}" for one in given if f"    {one}: " not in described]
    answers = signature.return_annotation not in (None, "None", inspect.Signature.empty)
    absent += [f"{name}: Returns"] if answers and "Returns:\n" not in text else []
    return absent + ([f"{name}: Raises"] if raises(function) and "Raises:\n" not in text else [])


@pytest.mark.parametrize("module", ["hooks", *THERE])
def test_docstrings_document_arguments_results_and_errors(module: str) -> None:
    found = hooks() if module == "hooks" else list(functions(module))
    absent = [line for name, function in found for line in unsaid(name, function)]
    assert not absent, "\n".join(absent)


def test_an_incomplete_docstring_is_found() -> None:
    def careless(one: int, other: int) -> int:
        """Add, but not below 0.

        Args:
            one: A term.
        """
        if one + other < 0:
            raise ValueError
        return one + other

    assert unsaid("f", careless) == ["f: other", "f: Returns", "f: Raises"]
