"""``geomx manifest``: a job as Kubernetes objects."""

from __future__ import annotations

import argparse
from pathlib import Path

from geomx.cli import overrides
from geomx.machines import jobfile, kubernetes
from geomx.terminal.output import to_stdout


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("job", metavar="JOB.yaml", help="the job file")
    overrides.add(parser, "overrides, after those of the job file")
    parser.add_argument(
        "--image", required=True, help="image with geomx and the workers' command (after --)"
    )
    parser.add_argument("--claim", help="a PersistentVolumeClaim that all nodes can write to")


def main(options: argparse.Namespace) -> None:
    """Write a job as Kubernetes objects, with one StatefulSet per party."""
    file = Path(options.job)
    job, words, command = jobfile.read(file), overrides.given(options), options.behind
    text = kubernetes.manifest(job, file.stem, options.image, words, command, options.claim)
    with to_stdout():
        print(text, end="")
