"""``geomx node``: one node of a run on this machine, without a connection to a launcher.

It is started by hand or by a launcher that only starts processes: its log goes to the terminal, its
notes and parameters stay in a folder, below ``nodes`` as in every run. If all nodes share the
folder, ``geomx collect`` converts it to the files of a run. With ``--join`` it is a worker, or all
nodes of a party, and the run trains already (`geomx.machines.joining`).

If workers run a training script, its command follows ``--`` in their commands and in that of the
scheduler, which then has no workload. Servers learn what they must know from the scheduler, and
ignore it.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
from pathlib import Path

from geomx.cli import overrides
from geomx.errors import ConfigError
from geomx.live import access
from geomx.live.files import experiment_file, path, script_file, stem
from geomx.live.spec import Spec
from geomx.machines import agent, jobfile
from geomx.machines.joining import PATIENCE_S, Join
from geomx.machines.launch import composed_experiment


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("--role", choices=jobfile.ROLES, help="its role in the run")
    add("--join", metavar="HOST:PORT", help="the scheduler of a run that trains already: join it")
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
    add("--patience", type=float, help="seconds to try to join; 300, with --join 10")
    add("--directory", default="geomx-run", help="for notes and parameters; may be shared")
    overrides.add(parser, "for the scheduler: overrides, after those of the job")


def main(options: argparse.Namespace) -> None:
    """Run one node of a job on this machine; used by every launcher."""
    raise SystemExit(_be(options, options.behind))


def _be(options: argparse.Namespace, command: list[str]) -> int:
    """Run a node.

    Args:
        options: Parsed arguments.
        command: Command that workers run instead of the workload.

    Returns:
        Its exit status.

    Raises:
        ConfigError: Arguments do not fit together.
        GeomxError: It could not start.
    """
    if (words := overrides.given(options)) and not options.job:
        remedy = (
            "only a scheduler with --job takes overrides: other nodes learn them from it, and an "
            "--experiment file has its own"
        )
        raise ConfigError("overrides", " ".join(words), remedy)
    access.check("--host", options.host, options.tls, options.insecure)
    env = {access.TOKEN: os.environ.get(access.TOKEN, "")}
    if options.tls:
        access.read_files(Path(options.tls))
        env[access.TLS] = options.tls
    elif options.insecure:
        env[access.INSECURE] = "1"
    if not env[access.TOKEN]:
        remedy = "must be set to a secret shared by all nodes of the run"
        raise ConfigError(access.TOKEN, "", remedy)
    if options.join:
        return _join(options, env, command)
    if not options.role:
        raise ConfigError("--role", "", f"must be given, one of {', '.join(jobfile.ROLES)}")
    given = [each for each in (options.job, options.experiment, options.scheduler) if each]
    if len(given) != 1 or bool(options.scheduler) == (options.role == "scheduler"):
        remedy = "the scheduler needs --job or --experiment, all others need --scheduler"
        raise ConfigError("--role", options.role, remedy)
    name = options.name or _conventional_name(options)
    directory = Path(options.directory)
    (directory / "nodes").mkdir(parents=True, exist_ok=True)
    experiment = None
    if options.role == "scheduler":
        experiment = experiment_file(directory)
        experiment.write_text(_experiment(options, script=bool(command)), encoding="utf-8")
    if command and options.role == "worker":
        notes = stem(directory, name)
        for suffix in (".jsonl", ".npz"):  # of an earlier run
            path(notes, suffix).unlink(missing_ok=True)
        script_file(directory).write_text(shlex.join(command), encoding="utf-8")
        env |= agent.script_env(
            name, None, options.host, options.scheduler, notes, options.patience
        )
        return agent.by_hand(agent.tethered(command), env, leaves=True)
    argv = agent.node_argv(
        name, None, options.host, stem(directory, name), experiment=experiment,
        scheduler=options.scheduler, patience_s=options.patience,
        stands_by=options.role == "standby",
    )  # fmt: skip
    return agent.by_hand(argv, env, leaves=options.role == "worker")


def _join(options: argparse.Namespace, env: dict[str, str], command: list[str]) -> int:
    """Join a run with a worker, or with all nodes of a party; return the exit status."""
    for each in ("job", "experiment", "scheduler"):
        if getattr(options, each):
            raise ConfigError("--join", options.join, f"has no place beside --{each}")
    party = not options.role and not options.name
    if party and options.tls:
        remedy = "is of one node: join each node of the party by a command of its own, with --role"
        raise ConfigError("--tls", options.tls, remedy)
    directory = Path(options.directory)
    (directory / "nodes").mkdir(parents=True, exist_ok=True)
    return Join(
        scheduler=options.join,
        name=f"{_party(options)}/server" if party else options.name or _conventional_name(options),
        party=party,
        host=options.host,
        directory=directory,
        env=env,
        command=command,
        patience_s=PATIENCE_S if options.patience is None else options.patience,
    ).run()


def _conventional_name(options: argparse.Namespace) -> str:
    """Return the node's name, as in networks in the short form."""
    numbered = options.role in ("worker", "global_server", "standby")
    return f"{_party(options)}/{options.role}{options.index if numbered else ''}"


def _party(options: argparse.Namespace) -> str:
    if not options.party:
        raise ConfigError("--party", "", "must be given, or --name")
    return str(options.party)


def _experiment(options: argparse.Namespace, script: bool) -> str:
    if options.experiment:
        spec = Spec.from_json(Path(options.experiment).read_text(encoding="utf-8"))
        if script and spec.workload is not None:
            remedy = "trains a workload, and runs no command; geomx manifest ... -- COMMAND does"
            raise ConfigError("--experiment", options.experiment, remedy)
        runtime = dataclasses.replace(spec.runtime, port=options.port or spec.runtime.port)
        return dataclasses.replace(spec, runtime=runtime).to_json()
    job = jobfile.read(Path(options.job))
    job.port = options.port or job.port
    return Spec.of(composed_experiment(job, overrides.given(options)), script).to_json()
