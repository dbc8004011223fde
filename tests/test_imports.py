"""What geomx imports is hardly searched for garbage, and the collector works as before."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from geomx.imports import keep, without_collections

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
with without_collections():
    made = [[]]
assert gc.isenabled() and gc.get_freeze_count() > 0
assert any(each is made for each in gc.get_objects())  # which has none that are frozen

try:
    with without_collections():
        raise ImportError
except ImportError:
    assert gc.isenabled()

keep()
with without_collections():
    made = [[]]
assert not any(each is made for each in gc.get_objects())
"""


def test_the_collector_has_less_to_search() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
