"""``geomx new-plugin``: a small, complete plugin project to begin with."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomx.plugin.scaffold import KINDS, new_plugin
from geomx.terminal.output import show


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("name", help="name on the command line")
    parser.add_argument("--kind", required=True, help=", ".join(KINDS))
    parser.add_argument("--into", default=".", metavar="FOLDER", help="where to put it")


def main(options: argparse.Namespace) -> None:
    """Write a small, complete plugin project: geomx new-plugin NAME --kind codec."""
    files = new_plugin(options.name, options.kind, Path(options.into))
    for file in files:
        show(file)
    folder = files[0].parent
    show(f"now: pip install -e {folder} (offline: --no-build-isolation, with scikit-build-core)")
    show(f"then: geomx check {options.name}")
