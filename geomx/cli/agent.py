"""``geomx node --attached``: what launchers start on every machine, so that it begins quickly."""

from __future__ import annotations

import argparse

from geomx.machines import agent


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--role", required=True, help="its role in the run")
    parser.add_argument("--attached", action="store_true", help="a launcher sends the rest")


def main(options: argparse.Namespace) -> None:
    """Run a node as a launcher tells it on standard input."""
    raise SystemExit(agent.attached())
