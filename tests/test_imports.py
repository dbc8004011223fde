"""The imports of geomx do not search for garbage, then or later, and change nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PROGRAM = """
import gc
from geomx.imports import without_collections

with without_collections():
    assert not gc.isenabled()
    made = [[]]
assert gc.isenabled() and gc.get_freeze_count() == 0
assert not any(each is made for each in gc.get_objects(generation=0))
assert any(each is made for each in gc.get_objects(generation=2))

gc.disable()
with without_collections():
    pass
assert not gc.isenabled()  # as the program wants it

gc.enable()
gc.freeze()
frozen = gc.get_freeze_count()
with without_collections():
    pass
assert gc.isenabled() and gc.get_freeze_count() == frozen

try:
    with without_collections():
        raise ImportError
except ImportError:
    assert gc.isenabled()
"""


def test_the_collector_is_as_it_was_and_has_less_to_search() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


AGENT = """
import sys
import geomx.cli.agent

heavy = {"hydra", "networkx", "numpy", "prometheus_client", "simpy", "yaml"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""


def test_the_process_beside_a_node_imports_little() -> None:
    """With these packages it takes five times as long to start, and twice the memory."""
    subprocess.run([sys.executable, "-P", "-c", AGENT], check=True)


NAMES = """
import pkgutil
import sys
import geomx

names = sys.argv[1:]
modules = {name.split(".")[1] for name in names}
assert modules <= {*dir(geomx), "mxnet", "torch"}, modules - {*dir(geomx)}
for module in modules:
    getattr(geomx, module)
for name in names:
    pkgutil.resolve_name(name)
"""


@pytest.mark.slow
def test_every_name_in_the_documentation_is_there_after_import_geomx() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md")]
    dotted = re.compile(r"(?<!-m )\bgeomx(?:\.\w\w+){2,}")  # not a command, nor geomx.N.et
    named = {name for page in pages for name in dotted.findall(page)}
    assert {"geomx.planning.make", "geomx.sim.transfer_times", "geomx.study.run"} <= named
    missing = {f"geomx.{each}" for each in ("mxnet", "torch") if find_spec(each) is None}
    here = sorted(name for name in named if not name.startswith((*missing,)))
    subprocess.run([sys.executable, "-P", "-c", NAMES, *here], check=True)


@pytest.mark.slow
def test_a_command_ends_without_a_word_about_what_was_not_freed(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "geomx", "workload=tiny", "iterations=1"),
            f"hydra.run.dir={tmp_path / 'run'}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "nanobind" not in done.stderr
