"""The imports of geomx do not search for garbage, then or later, and change nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
