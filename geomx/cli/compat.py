"""``geomx compat``: a launch script of GeoMX or MXNet, as it is."""

from __future__ import annotations

from collections.abc import Sequence

from geomx.compat import command


def main(arguments: Sequence[str]) -> None:
    """Run an unmodified launch script of GeoMX or MXNet."""
    command.run(arguments)


def epilog() -> str:
    """The rest of the help."""
    return """\
COMMAND    a launch script that starts schedulers, servers and workers with the environment
           variables of GeoMX or ps-lite (DMLC_ROLE, DMLC_PS_ROOT_URI ...); see docs/moving.md.
           The last line printed is the folder with the logs of all its processes.

geomx compat -- bash run_vanilla_hips.sh"""
