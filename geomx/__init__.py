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
    "BySize": "geomx.plugin",
    "Codec": "geomx.plugin",
    "ConfigError": "geomx.errors",
    "Coordinator": "geomx.plugin",
    "GeomxError": "geomx.errors",
    "Group": "geomx.plugin",
    "Native": "geomx.plugin",
    "NodeLost": "geomx.errors",
    "Optimizer": "geomx.plugin",
    "Overlay": "geomx.plugin",
    "OverlayReport": "geomx.orders",
    "Partitioner": "geomx.plugin",
    "PartySync": "geomx.plugin",
    "Placement": "geomx.plugin",
    "PluginError": "geomx.errors",
    "Refused": "geomx.errors",
    "Results": "geomx.results",
    "Shard": "geomx.plugin",
    "Site": "geomx.plugin",
    "Slicer": "geomx.plugin",
    "SyncPolicy": "geomx.plugin",
    "WorkerSync": "geomx.plugin",
    "api_version": "geomx.api",
    "cut_evenly": "geomx.plugin",
    "hookimpl": "geomx.hookspecs",
    "include_dir": "geomx.api",
    "overlay_order": "geomx.orders",
    "run": "geomx.experiment",
}

if TYPE_CHECKING:
    from geomx.api import api_version, include_dir
    from geomx.errors import ConfigError, GeomxError, NodeLost, PluginError, Refused
    from geomx.experiment import run
    from geomx.hookspecs import hookimpl
    from geomx.orders import OverlayReport, overlay_order
    from geomx.plugin import (
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
    from geomx.results import Results

__all__ = [
    "BySize",
    "Codec",
    "ConfigError",
    "Coordinator",
    "GeomxError",
    "Group",
    "Native",
    "NodeLost",
    "Optimizer",
    "Overlay",
    "OverlayReport",
    "Partitioner",
    "PartySync",
    "Placement",
    "PluginError",
    "Refused",
    "Results",
    "Shard",
    "Site",
    "Slicer",
    "SyncPolicy",
    "WorkerSync",
    "__version__",
    "api_version",
    "cut_evenly",
    "hookimpl",
    "include_dir",
    "overlay_order",
    "run",
]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    if name == "_core":
        return _compiled()
    raise AttributeError(f"module 'geomx' has no attribute {name!r}")


def _compiled() -> Any:
    """The compiled core; ``from geomx import _core`` asks for it before it looks for the file."""
    try:
        return importlib.import_module("geomx._core")
    except ModuleNotFoundError as error:
        from geomx.errors import unbuilt

        raise ImportError(unbuilt(), name="geomx._core") from error
