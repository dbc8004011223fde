"""``geomx api``: what plugins may use, in the terminal."""

from __future__ import annotations

import argparse

from geomx.cli.reference import described
from geomx.terminal.output import show


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("name", nargs="?", default="", help="of a hook or an object")


def main(options: argparse.Namespace) -> None:
    """Show what plugins may use, or one hook or object: geomx api Codec."""
    show(described(options.name))
