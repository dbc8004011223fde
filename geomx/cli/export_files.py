"""``geomx export``: a run in a format of other tools."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomx.explaining.chakra import export
from geomx.terminal.output import show


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("format", choices=("chakra",), help="execution traces of MLCommons Chakra")
    parser.add_argument("run", metavar="RUN", help="directory of a run")
    parser.add_argument("--out", metavar="FOLDER", help="where to write; by default RUN/chakra")


def main(options: argparse.Namespace) -> None:
    """Write the files, and tell where they are."""
    directory = Path(options.run)
    folder = Path(options.out) if options.out else directory / options.format
    names = export(directory, folder)
    show(f"{folder}: geomx.0.et to geomx.{len(names) - 1}.et, and their names in nodes.json")
