"""The plugin interface: hooks, the objects that they return, and how plugins are called."""

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
    cut_evenly,
    native_options,
)
from geomx.plugin.sync import PartySync, SyncPolicy, WorkerSync

__all__ = [
    "BySize",
    "Codec",
    "Coordinator",
    "Group",
    "Native",
    "Optimizer",
    "Overlay",
    "Partitioner",
    "PartySync",
    "Placement",
    "Shard",
    "Site",
    "Slicer",
    "SyncPolicy",
    "WorkerSync",
    "cut_evenly",
    "native_options",
]
