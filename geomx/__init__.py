"""geomx: train one model in several data centres; simulate the WAN first, then run it live.

`run` takes the overrides of the command line and returns `Results`; plugins import `hookimpl` and
the types that hooks return from here. Everything is loaded on first use: importing geomx needs
neither MXNet nor Hydra.
"""

from __future__ import annotations

import importlib
import random
from typing import TYPE_CHECKING, Any

from geomx.errors import unbuilt
from geomx.version import __version__

_EXPORTS = {
    "BySize": "geomx.plugin",
    "Codec": "geomx.plugin",
    "CodecCosts": "geomx.options.costs",
    "ConfigError": "geomx.errors",
    "Contribution": "geomx.plugin.rounds",
    "Coordinator": "geomx.plugin.coordination",
    "GeomxError": "geomx.errors",
    "Group": "geomx.plugin.coordination",
    "Native": "geomx.plugin",
    "NodeLost": "geomx.errors",
    "Optimizer": "geomx.plugin",
    "Overlay": "geomx.plugin.coordination",
    "OverlayReport": "geomx.plugin.overlay",
    "Partitioner": "geomx.plugin",
    "PartyModel": "geomx.plugin.party",
    "PartySync": "geomx.plugin.party",
    "Placement": "geomx.plugin",
    "PluginError": "geomx.errors",
    "Refused": "geomx.errors",
    "Results": "geomx.results.results",
    "RoundPolicy": "geomx.plugin.rounds",
    "Shard": "geomx.plugin",
    "Site": "geomx.plugin.coordination",
    "Slicer": "geomx.plugin",
    "SyncPolicy": "geomx.plugin.sync",
    "TrackedRun": "geomx.plugin.tracking",
    "Tracker": "geomx.plugin.tracking",
    "WanModel": "geomx.plugin.wan",
    "WorkerSync": "geomx.plugin.sync",
    "api_version": "geomx.plugin.api",
    "common_options": "geomx.plugin",
    "cut_evenly": "geomx.plugin",
    "hookimpl": "geomx.plugin.hookspecs",
    "include_dir": "geomx.plugin.api",
    "native_options": "geomx.plugin",
    "overlay_order": "geomx.plugin.overlay",
    "pack_bits": "geomx.plugin",
    "report": "geomx.kv.script",
    "run": "geomx.runner",
    "sleep": "geomx.kv.script",
    "unpack_bits": "geomx.plugin",
}

_MODULES = (
    "cluster",
    "errors",
    "events",
    "kv",
    "network",
    "options",
    "planning",
    "plugin",
    "sim",
    "study",
    "testing",
    "workload",
)
_FRAMEWORKS = ("mxnet", "torch")  # not in dir(geomx), since what they need may not be installed

if TYPE_CHECKING:
    from geomx.errors import ConfigError, GeomxError, NodeLost, PluginError, Refused
    from geomx.kv.script import report, sleep
    from geomx.options.costs import CodecCosts
    from geomx.plugin.api import api_version, include_dir
    from geomx.plugin.bits import pack_bits, unpack_bits
    from geomx.plugin.coordination import Coordinator, Group, Overlay, Site
    from geomx.plugin.hookspecs import hookimpl
    from geomx.plugin.overlay import OverlayReport, overlay_order
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
    from geomx.plugin.wan import WanModel
    from geomx.results.results import Results
    from geomx.runner import run

__all__ = [
    "BySize",
    "Codec",
    "CodecCosts",
    "ConfigError",
    "Contribution",
    "Coordinator",
    "GeomxError",
    "Group",
    "Native",
    "NodeLost",
    "Optimizer",
    "Overlay",
    "OverlayReport",
    "Partitioner",
    "PartyModel",
    "PartySync",
    "Placement",
    "PluginError",
    "Refused",
    "Results",
    "RoundPolicy",
    "Shard",
    "Site",
    "Slicer",
    "SyncPolicy",
    "TrackedRun",
    "Tracker",
    "WanModel",
    "WorkerSync",
    "__version__",
    "api_version",
    "common_options",
    "cut_evenly",
    "hookimpl",
    "include_dir",
    "native_options",
    "overlay_order",
    "pack_bits",
    "report",
    "run",
    "sleep",
    "unpack_bits",
]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS or name in _MODULES or name in _FRAMEWORKS:
        state = random.getstate()  # some dependencies draw from it when they are imported
        module = importlib.import_module(_EXPORTS.get(name, f"geomx.{name}"))
        random.setstate(state)
        return getattr(module, name) if name in _EXPORTS else module
    if name == "_core":
        return _compiled()
    raise AttributeError(f"module 'geomx' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


def _compiled() -> Any:
    """Return the compiled core: ``from geomx import _core`` tries this before the file."""
    try:
        return importlib.import_module("geomx._core")
    except ModuleNotFoundError as error:
        raise ImportError(unbuilt(), name="geomx._core") from error
