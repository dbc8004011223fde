"""The commands about plugins: ``geomx plugins``, ``new-plugin``, ``check`` and ``api``."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomx.errors import ConfigError, GeomxError
from geomx.terminal.output import show, show_list


def plugins(options: argparse.Namespace) -> None:
    """List every plugin: kind, name, summary, backends, origin."""
    from geomx.plugin.registry import Registry

    registry = Registry.discover()
    rows = [
        (plugin.kind, plugin.name, plugin.summary, ", ".join(plugin.backends), plugin.origin)
        for plugin in registry.plugins()
    ]
    show_list(("kind", "name", "what it does", "backends", "from"), rows, 2)
    for broken in registry.broken:
        show(str(broken))


def new_plugin(options: argparse.Namespace) -> None:
    """Write a small, complete plugin project: geomx new-plugin NAME --kind codec."""
    from geomx.plugin.scaffold import new_plugin

    files = new_plugin(options.name, options.kind, Path(options.into))
    for file in files:
        print(file)
    folder = files[0].parent
    print(f"now: pip install -e {folder} (offline: --no-build-isolation)")
    print(f"then: geomx check {options.name}")


def api(options: argparse.Namespace) -> None:
    """Show what plugins may use, or one hook or object: geomx api Codec."""
    from geomx.plugin.reference import described

    print(described(options.name))


def check(options: argparse.Namespace) -> None:
    """Check an installed plugin against the laws of its kind: geomx check NAME."""
    from geomx.testing.battery import CheckFailed, check_plugin
    from geomx.testing.finding import Finding

    told: dict[str, int] = {}

    def tell(finding: Finding) -> None:
        if finding.failure:
            print(f"FAILED  {finding.law}\n        {finding.failure}", flush=True)
        elif not told.setdefault(finding.law, 0):
            print(f"holds   {finding.law}", flush=True)
        told[finding.law] = told.get(finding.law, 0) + 1

    for mode in options.modes.split(","):
        if mode not in ("sim", "live"):
            raise ConfigError("--modes", options.modes, "must be sim, live or sim,live")
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
    print(f"{options.name}: all {len(findings)} checks hold (seed {options.seed})")


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a command.

    Args:
        command: Name of the command.
        parser: Its parser.
    """
    if command == "new-plugin":
        from geomx.plugin.scaffold import KINDS

        parser.add_argument("name", help="name on the command line")
        parser.add_argument("--kind", required=True, help=", ".join(KINDS))
        parser.add_argument("--into", default=".", metavar="FOLDER", help="where to put it")
    elif command == "api":
        parser.add_argument("name", nargs="?", default="", help="of a hook or an object")
    elif command == "check":
        parser.add_argument("name", help="of the plugin")
        parser.add_argument("--kind", help="accel, sync, workload or network, if there are several")
        parser.add_argument("--modes", default="sim,live", help="sim, live or sim,live")
        parser.add_argument("--seed", type=int, default=0, help="seed of all random values")
