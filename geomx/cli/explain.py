"""``geomx explain``: what an iteration of a run waits for."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomx.explaining import explain
from geomx.terminal.output import WIDE, show


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="RUN", help="directory of a run, as printed by it")


def main(options: argparse.Namespace) -> None:
    """Show what an iteration of a run waits for, and what would make it faster."""
    show(explain(Path(options.run)).shown(), WIDE)
