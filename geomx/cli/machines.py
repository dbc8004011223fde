"""The commands for runs on many machines: ``geomx node``, ``geomx certs``, ``geomx collect``.

A node that nobody holds a line to is started by hand or by a launcher that only starts processes:
its log goes to the terminal, its notes and parameters stay in a folder, below ``nodes`` as in every
run. Where all nodes share the folder, ``geomx collect`` makes of it what a launcher would have
left.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from geomx.errors import ConfigError

if TYPE_CHECKING:
    from geomx.results.results import Results

ROLES = ("scheduler", "global_server", "server", "worker")


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """What the commands take."""
    add = parser.add_argument
    if command == "certs":
        add("job", metavar="JOB.yaml", help="the job file; its tls names the folder")
        add("--days", type=int, default=365, help="for which the certificates count")
    elif command == "manifest":
        add("job", metavar="JOB.yaml", help="the job file")
        add("words", nargs="*", help="of the command line, after those of the job file")
        add("--image", required=True, help="holds geomx and, after --, the workers' command")
        add("--claim", help="a PersistentVolumeClaim that all nodes can write to")
    elif command == "collect":
        add("job", metavar="JOB.yaml", help="the job file of the run")
        add("directory", metavar="DIRECTORY", help="what its nodes shared")
        add("words", nargs="*", help="as the scheduler was given them")
    elif command == "node":
        add("--role", choices=ROLES, required=True, help="its part in the run")
        add("--attached", action="store_true", help="a launcher says the rest on standard input")
        add("--job", metavar="JOB.yaml", help="the scheduler's: what is to be run")
        add("--experiment", metavar="FILE", help="the same, as geomx manifest wrote it")
        add("--scheduler", metavar="HOST:PORT", help="the others': whom to join")
        add("--party", help="its site, as in the network")
        add("--index", type=int, default=0, help="which of this role at the site, from 0")
        add("--name", help="its name in the network, instead of party and index")
        add("--host", default="127.0.0.1", help="the address to listen on; 127.0.0.1")
        add("--port", type=int, default=0, help="of the scheduler; 0: any free one")
        add("--tls", metavar="FOLDER", help="its certificates, as geomx certs made them")
        add("--insecure", action="store_true", help="do without TLS beyond this machine")
        add("--patience", type=float, default=300.0, help="seconds to try to join; 300")
        add("--directory", default="geomx-run", help="for notes and parameters; may be shared")
        add("words", nargs="*", help="the scheduler's: of the command line, after those of the job")


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """What comes before ``--``, and the command behind it."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def node(options: argparse.Namespace, command: list[str]) -> int:
    """Be a node. Returns its exit status.

    Args:
        options: As parsed.
        command: What a worker runs instead of the workload.

    Raises:
        GeomxError: It could not begin; says why.
    """
    from geomx.live import access
    from geomx.live.journal import stem
    from geomx.machines import agent

    if options.attached:
        return agent.attached()
    access.check("--host", options.host, options.tls, options.insecure)
    env = {access.TOKEN: os.environ.get(access.TOKEN, "")}
    if options.tls:
        access.read_files(Path(options.tls))
        env[access.TLS] = options.tls
    if not env[access.TOKEN] and not options.tls:
        remedy = "must be the same secret for all nodes of the run: there is nothing else here"
        raise ConfigError(access.TOKEN, "", remedy)
    given = [each for each in (options.job, options.experiment, options.scheduler) if each]
    if len(given) != 1 or bool(options.scheduler) == (options.role == "scheduler"):
        remedy = "the scheduler needs --job or --experiment, all others need --scheduler"
        raise ConfigError("--role", options.role, remedy)
    name = options.name or _conventional_name(options)
    directory = Path(options.directory)
    (directory / "nodes").mkdir(parents=True, exist_ok=True)
    experiment = None
    if options.role == "scheduler":
        experiment = directory / "nodes" / "experiment.json"
        experiment.write_text(_experiment(options), encoding="utf-8")
    if command:
        env |= agent.script_env(name, None, options.host, options.scheduler)
        return agent.by_hand(agent.tethered(command), env)
    words = agent.node_words(
        name, None, options.host, stem(directory, name), experiment=experiment,
        scheduler=options.scheduler, patience_s=options.patience,
    )  # fmt: skip
    return agent.by_hand(words, env)


def _conventional_name(options: argparse.Namespace) -> str:
    """As networks in the short form name their nodes."""
    if not options.party:
        raise ConfigError("--party", "", "must be given, or --name")
    numbered = options.role in ("worker", "global_server")
    return f"{options.party}/{options.role}{options.index if numbered else ''}"


def _experiment(options: argparse.Namespace) -> str:
    from geomx.live.spec import Spec
    from geomx.machines import jobfile
    from geomx.machines.launch import composed_experiment

    if options.experiment:
        spec = Spec.from_json(Path(options.experiment).read_text(encoding="utf-8"))
        runtime = dataclasses.replace(spec.runtime, port=options.port or spec.runtime.port)
        return dataclasses.replace(spec, runtime=runtime).to_json()
    job = jobfile.read(Path(options.job))
    job.port = options.port or job.port
    return Spec.of(composed_experiment(job, options.words)).to_json()


def manifest(options: argparse.Namespace, command: list[str]) -> str:
    """A job as Kubernetes objects; see `geomx.machines.kubernetes.manifest`."""
    from geomx.machines import jobfile, kubernetes

    file = Path(options.job)
    job = jobfile.read(file)
    return kubernetes.manifest(job, file.stem, options.image, options.words, command, options.claim)


def collect(options: argparse.Namespace) -> Results:
    """Make a run's files of what its nodes left in one folder.

    Raises:
        ConfigError: The job file is wrong.
        GeomxError: The run did not come to its end.
    """
    from geomx.live.launcher import collect
    from geomx.machines import jobfile
    from geomx.machines.launch import composed_experiment

    experiment = composed_experiment(jobfile.read(Path(options.job)), options.words)
    return collect(experiment, Path(options.directory))


def certs(options: argparse.Namespace) -> list[Path]:
    """Make what is missing of an authority and the nodes' certificates.

    Returns:
        The folders of the nodes that were given a certificate.

    Raises:
        ConfigError: The job file is wrong, or names no folder.
    """
    from geomx.machines import certs, jobfile
    from geomx.machines.launch import composed_experiment

    file = Path(options.job)
    job = jobfile.read(file)
    if job.tls is None:
        raise ConfigError("tls", "", f"{file} must name the folder for them, as in tls: certs")
    return certs.make(Path(job.tls), composed_experiment(job).cluster.nodes, options.days)
