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

from geomx.api import PUBLIC

SCRIPTS = {
    "geomx.kv": ("KVStore", "create"),
    "geomx.mxnet": ("KVStore", "create"),
    "geomx.sim": ("transfer_times",),
    "geomx.torch": ("Optimizer", "PartyHook", "TensorExchange"),
}
"""What training scripts import, beside what plugins do."""
OPTIONAL = {"geomx.torch": "torch", "geomx.mxnet": "mxnet"}
THERE = {
    module: names
    for module, names in {**PUBLIC, **SCRIPTS}.items()
    if find_spec(OPTIONAL.get(module, "geomx"))
}
WITH_EXAMPLE = ("geomx.sim.transfer_times",)

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


HOMES = sorted({found.__module__ for _, found in public() if ">>>" in (found.__doc__ or "")})


@pytest.mark.parametrize("module", HOMES)
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
