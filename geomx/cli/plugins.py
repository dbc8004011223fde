"""``geomx plugins``: every plugin that is found."""

from __future__ import annotations

import argparse

from geomx.cli.backends import backends
from geomx.plugin.registry import Registry
from geomx.terminal.listing import show_list
from geomx.terminal.output import show


def main(options: argparse.Namespace) -> None:
    """List every plugin: kind, name, summary, what it is in each mode, origin."""
    registry = Registry.discover()
    rows = [
        (plugin.kind, plugin.name, plugin.summary, *backends(plugin, registry), plugin.origin)
        for plugin in registry.plugins(variants=True)
    ]
    show_list(("kind", "name", "what it does", "simulated", "live", "from"), rows, 2)
    for broken in registry.broken:
        show(str(broken))
