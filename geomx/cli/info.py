"""``geomx info``: what there is on this machine."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import platform
from typing import Any

from geomx.errors import NO_TLS
from geomx.terminal.output import show
from geomx.version import __version__


def main(options: argparse.Namespace) -> None:
    """Show the version of geomx, and what it uses on this machine."""
    show(f"geomx {__version__}, Python {platform.python_version()}, {platform.platform()}")
    try:
        core = importlib.import_module("geomx._core")
    except ImportError as error:
        show(f"compiled core: absent ({error})")
    else:
        built: dict[str, Any] = getattr(core, "build_info", dict)()
        details = ", ".join(f"{name} {value}" for name, value in built.items())
        show(f"compiled core: {core.__file__}" + (f" ({details})" if details else ""))
        for device, description in core.devices():
            show(f"device {device}: {description}")
        if built.get("tls") == "no_openssl":
            show(f"TLS: {NO_TLS}; until then, runs stay on this machine")
    for name in ("mxnet", "torch", "numpy", "networkx", "simpy", "hydra-core"):
        try:
            show(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            show(f"{name}: absent")
