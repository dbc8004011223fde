"""``geomx check``: hold an installed plugin to the laws of its kind."""

from __future__ import annotations

import argparse

from geomx.errors import GeomxError
from geomx.terminal.output import show
from geomx.testing.battery import CheckFailed, check_plugin
from geomx.testing.finding import Finding


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("name", help="of the plugin")
    kinds = "accel, sync, track, workload or network"
    parser.add_argument("--kind", help=f"{kinds}, if there are several")
    parser.add_argument("--modes", default="sim,live", help="sim, live or sim,live")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random values")


def main(options: argparse.Namespace) -> None:
    """Check an installed plugin against the laws of its kind: geomx check NAME."""
    told: dict[str, int] = {}

    def tell(finding: Finding) -> None:
        if finding.failure:
            show(f"FAILED  {finding.law}\n        {finding.failure}")
        elif not told.setdefault(finding.law, 0):
            show(f"holds   {finding.law}")
        told[finding.law] = told.get(finding.law, 0) + 1

    try:
        findings = check_plugin(
            options.name,
            kind=options.kind,
            modes=options.modes.split(","),
            seed=options.seed,
            tell=tell,
        )
    except CheckFailed as failed:
        raise GeomxError(str(failed).split("\n", maxsplit=1)[0]) from failed
    show(f"{options.name}: all {len(findings)} checks hold (seed {options.seed})")
