"""The commands for runs on many machines: ``geomx node`` and ``geomx certs``.

A node that nobody holds a line to is started by hand or by a launcher that only starts processes:
its log goes to the terminal, its notes and parameters stay in a folder, below ``nodes`` as in every
run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from geomx.errors import ConfigError

ROLES = ("scheduler", "global_server", "server", "worker")


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """What the commands take."""
    add = parser.add_argument
    if command == "certs":
        add("job", metavar="JOB.yaml", help="the job file; its tls names the folder")
        add("--days", type=int, default=365, help="for which the certificates count")
    elif command == "node":
        add("--role", choices=ROLES, required=True, help="its part in the run")
        add("--attached", action="store_true", help="a launcher says the rest on standard input")


def node(options: argparse.Namespace) -> int:
    """Be a node. Returns its exit status.

    Raises:
        GeomxError: It could not begin; says why.
    """
    from geomx.machines import agent

    return agent.attached()


def certs(options: argparse.Namespace) -> list[Path]:
    """Make what is missing of an authority and the nodes' certificates.

    Returns:
        The folders of the nodes that were given a certificate.

    Raises:
        ConfigError: The job file is wrong, or names no folder.
    """
    from geomx.machines import certs, jobfile
    from geomx.machines.launch import cluster_of

    file = Path(options.job)
    job = jobfile.read(file)
    if job.tls is None:
        raise ConfigError("tls", "", f"{file} must name the folder for them, as in tls: certs")
    return certs.make(Path(job.tls), cluster_of(job).nodes, options.days)
