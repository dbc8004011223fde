"""The plugin interface: hooks, the objects that they return, and how plugins are called.

``geomx api`` lists hooks and objects, a line each; ``geomx api Codec`` shows the contract of one
without Python's own methods, which make up much of ``pydoc geomx.plugin``.
"""

from geomx.plugin.bits import pack_bits, unpack_bits
from geomx.plugin.coordination import Coordinator, Group, Overlay, Site
from geomx.plugin.parts import (
    BySize,
    Codec,
    Native,
    Optimizer,
    Partitioner,
    Placement,
    Shard,
    Slicer,
    common_options,
    cut_evenly,
    native_options,
)
from geomx.plugin.party import PartyModel, PartySync
from geomx.plugin.rounds import Contribution, RoundPolicy
from geomx.plugin.sync import SyncPolicy, WorkerSync
from geomx.plugin.tracking import TrackedRun, Tracker
from geomx.plugin.wan import WanConnection, WanEdge, WanModel

__all__ = [
    "BySize",
    "Codec",
    "Contribution",
    "Coordinator",
    "Group",
    "Native",
    "Optimizer",
    "Overlay",
    "Partitioner",
    "PartyModel",
    "PartySync",
    "Placement",
    "RoundPolicy",
    "Shard",
    "Site",
    "Slicer",
    "SyncPolicy",
    "TrackedRun",
    "Tracker",
    "WanConnection",
    "WanEdge",
    "WanModel",
    "WorkerSync",
    "common_options",
    "cut_evenly",
    "native_options",
    "pack_bits",
    "unpack_bits",
]
