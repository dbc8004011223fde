"""The plugin interface: hooks, what answers them, and how plugins are found and called."""

from geomx.plugin.parts import (
    BySize,
    Codec,
    Coordinator,
    Group,
    Native,
    Optimizer,
    Overlay,
    Partitioner,
    PartySync,
    Placement,
    Shard,
    Site,
    Slicer,
    SyncPolicy,
    WorkerSync,
    cut_evenly,
)

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
]
