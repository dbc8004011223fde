"""The commands for runs on many machines: ``geomx node``, ``geomx certs``, ``geomx collect``.

A node without a connection to a launcher is started by hand or by a launcher that only starts
processes: its log goes to the terminal, its notes and parameters stay in a folder, below ``nodes``
as in every run. If all nodes share the folder, ``geomx collect`` converts it to the files of a run.
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
    """Add the arguments of a command.

    Args:
        command: Name of the command.
        parser: Its parser.
    """
    add = parser.add_argument
    if command == "certs":
        add("job", metavar="JOB.yaml", help="the job file; its tls names the folder")
        add("--days", type=int, default=365, help="validity of the certificates")
    elif command == "manifest":
        add("job", metavar="JOB.yaml", help="the job file")
        add("words", nargs="*", help="overrides, after those of the job file")
        add("--image", required=True, help="image with geomx and the workers' command (after --)")
        add("--claim", help="a PersistentVolumeClaim that all nodes can write to")
    elif command == "collect":
        add("job", metavar="JOB.yaml", help="the job file of the run")
        add("directory", metavar="DIRECTORY", help="the directory that its nodes shared")
        add("words", nargs="*", help="overrides, as given to the scheduler")
    elif command == "node":
        add("--role", choices=ROLES, required=True, help="its role in the run")
        add("--attached", action="store_true", help="a launcher sends the rest on standard input")
        add("--job", metavar="JOB.yaml", help="for the scheduler: the job file")
        add("--experiment", metavar="FILE", help="the same, as written by geomx manifest")
        add("--scheduler", metavar="HOST:PORT", help="for all others: the scheduler's address")
        add("--party", help="its site, as in the network")
        add("--index", type=int, default=0, help="its number among this role at the site, from 0")
        add("--name", help="its name in the network, instead of party and index")
        add("--host", default="127.0.0.1", help="the address to listen on; 127.0.0.1")
        add("--port", type=int, default=0, help="of the scheduler; 0: any free one")
        add("--tls", metavar="FOLDER", help="its certificates, from geomx certs")
        add("--insecure", action="store_true", help="do without TLS between machines")
        add("--patience", type=float, default=300.0, help="seconds to try to join; 300")
        add("--directory", default="geomx-run", help="for notes and parameters; may be shared")
        add("words", nargs="*", help="for the scheduler: overrides, after those of the job")


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Split `words` at ``--`` into those before it and the command after it."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def node(options: argparse.Namespace, command: list[str]) -> int:
    """Run a node.

    Args:
        options: Parsed arguments.
        command: Command that a worker runs instead of the workload.

    Returns:
        Its exit status.

    Raises:
        GeomxError: It could not start.
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
        remedy = "must be set to a secret shared by all nodes of the run, as there is no TLS"
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
    """Return the node's name, as in networks in the short form."""
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
    """Return a job as Kubernetes objects; see `geomx.machines.kubernetes.manifest`.

    Args:
        options: Parsed arguments.
        command: Command that workers run instead of the workload.
    """
    from geomx.machines import jobfile, kubernetes

    file = Path(options.job)
    job = jobfile.read(file)
    return kubernetes.manifest(job, file.stem, options.image, options.words, command, options.claim)


def collect(options: argparse.Namespace) -> Results:
    """Convert the files that the nodes of a run left in one folder to those of a run.

    Args:
        options: Parsed arguments.

    Returns:
        The results.

    Raises:
        ConfigError: The job file is invalid.
        GeomxError: The run did not finish.
    """
    from geomx.live.launcher import collect
    from geomx.machines import jobfile
    from geomx.machines.launch import composed_experiment

    experiment = composed_experiment(jobfile.read(Path(options.job)), options.words)
    return collect(experiment, Path(options.directory))


def certs(options: argparse.Namespace) -> list[Path]:
    """Create the missing files of an authority and its certificates for nodes.

    Args:
        options: Parsed arguments.

    Returns:
        The folders of the nodes with new certificates.

    Raises:
        ConfigError: The job file is invalid, or names no folder.
    """
    from geomx.machines import certs, jobfile
    from geomx.machines.launch import composed_experiment

    file = Path(options.job)
    job = jobfile.read(file)
    if job.tls is None:
        raise ConfigError("tls", "", f"{file} must name the folder for them, as in tls: certs")
    return certs.make(Path(job.tls), composed_experiment(job).cluster.nodes, options.days)
