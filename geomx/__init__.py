"""geomx: train one model in several data centres; simulate the WAN first, then run it live.

`run` takes the words of the command line and returns `Results`; plugins import `hookimpl` and the
nouns they answer with from here. Everything is loaded on first use: importing geomx needs neither
MXNet nor Hydra.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "Codec": "geomx.plugin",
    "ConfigError": "geomx.errors",
    "GeomxError": "geomx.errors",
    "Native": "geomx.plugin",
    "NodeLost": "geomx.errors",
    "Partitioner": "geomx.plugin",
    "Placement": "geomx.plugin",
    "PluginError": "geomx.errors",
    "Results": "geomx.results",
    "Shard": "geomx.plugin",
    "Slicer": "geomx.plugin",
    "SyncPolicy": "geomx.plugin",
    "hookimpl": "geomx.hookspecs",
    "run": "geomx.experiment",
}

if TYPE_CHECKING:
    from geomx.errors import ConfigError, GeomxError, NodeLost, PluginError
    from geomx.experiment import run
    from geomx.hookspecs import hookimpl
    from geomx.plugin import Codec, Native, Partitioner, Placement, Shard, Slicer, SyncPolicy
    from geomx.results import Results

__all__ = [
    "Codec",
    "ConfigError",
    "GeomxError",
    "Native",
    "NodeLost",
    "Partitioner",
    "Placement",
    "PluginError",
    "Results",
    "Shard",
    "Slicer",
    "SyncPolicy",
    "__version__",
    "hookimpl",
    "run",
]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'geomx' has no attribute {name!r}")
