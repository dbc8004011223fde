"""``geomx plugins``: every plugin that is found."""

from __future__ import annotations

import argparse

from geomx.plugin.registry import Registry
from geomx.terminal.listing import show_list
from geomx.terminal.output import show


def main(options: argparse.Namespace) -> None:
    """List every plugin: kind, name, summary, backends, origin."""
    registry = Registry.discover()
    rows = [
        (plugin.kind, plugin.name, plugin.summary, ", ".join(plugin.backends), plugin.origin)
        for plugin in registry.plugins()
    ]
    show_list(("kind", "name", "what it does", "backends", "from"), rows, 2)
    for broken in registry.broken:
        show(str(broken))
