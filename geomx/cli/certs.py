"""``geomx certs``: a private authority, and certificates for the nodes of a job."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomx.errors import ConfigError
from geomx.machines import certs, jobfile
from geomx.machines.launch import composed_experiment
from geomx.terminal.output import show

MOST_DAYS = 36500
"""A century; the authority is valid ten times as long as nodes."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("job", metavar="JOB.yaml", help="the job file; its tls names the folder")
    parser.add_argument("--days", type=int, default=365, help="validity of the certificates")


def main(options: argparse.Namespace) -> None:
    """Create the missing files of an authority and its certificates for nodes.

    Raises:
        ConfigError: The job file is invalid, or names no folder, or the validity is out of range.
    """
    if not 1 <= options.days <= MOST_DAYS:
        raise ConfigError("--days", options.days, f"must be between 1 and {MOST_DAYS}")
    file = Path(options.job)
    job = jobfile.read(file)
    if job.tls is None:
        raise ConfigError("tls", "", f"{file} must name the folder for them, as in tls: certs")
    for folder in certs.make(Path(job.tls), composed_experiment(job).cluster, options.days):
        show(folder)
