"""The WAN model in Python over SimPy, to be read and to be compared with the native one.

The laws are those of ``runtime_cpp/net`` (docs/model.md has their formulas and sources), written as
plainly as possible: every event solves everything. Random networks, connections and changes agree
with the native model to 1e-6 (tests/test_reference.py).
"""

from geomx.sim.reference.connection import Connection
from geomx.sim.reference.sharing import Stream, share
from geomx.sim.reference.tcp import Tcp
from geomx.sim.reference.wan import ReferenceWan

__all__ = ["Connection", "ReferenceWan", "Stream", "Tcp", "share"]
