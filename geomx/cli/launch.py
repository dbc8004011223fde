"""``geomx launch``: a training script as every worker, on this machine or on many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from geomx.cli.parser import needs_command, split
from geomx.config.own_files import with_folder_searched
from geomx.live.launcher import run_script
from geomx.machines.launch import launch
from geomx.machines.scripts import composed_for_script
from geomx.terminal.output import show, telling_where


def main(arguments: Sequence[str]) -> None:
    """Run a training script as every worker of a cluster, here or on a job file's machines.

    Args:
        arguments: Of the command line; perhaps a job file first, and behind ``--`` the command.

    Raises:
        ConfigError: There is no command, or an override is invalid.
        NodeLost: A process failed; says which, and its last words.
    """
    own, command = split("launch", arguments)
    own = with_folder_searched(own)
    job = own[0] if own and "=" not in own[0] else ""  # not network=wan.yaml
    if job.endswith((".yaml", ".yml")):
        directory, results = launch(Path(job), own[1:], command)
        show(results.table())
        show(directory)
        return
    if not command:
        raise needs_command("launch", arguments)
    experiment, directory = composed_for_script(own)
    with telling_where(directory):
        results = run_script(experiment, directory, command)
    show(results.table())
    show(directory)


def epilog() -> str:
    """The rest of the help."""
    return """\
JOB.yaml   the machine of each node (docs/machines.md); without it, all run on this machine
OVERRIDES  the experiment, as for python -m geomx: network=FILE, +sync=NAME, '+accel=[NAME,...]',
           options of plugins, runtime.OPTION=VALUE, hydra.run.dir=FOLDER (python -m geomx --help),
           and --config-dir FOLDER for presets of your own
COMMAND    the command of every worker: a script that uses geomx.kv, geomx.mxnet or geomx.torch.
           The output of the first worker is shown; the logs of all nodes are in the run's folder,
           in nodes/. Without a command, a job file's machines run the experiment's workload.

geomx launch network=my_wan.yaml +sync=NAME '+accel=[NAME]' -- python train.py
geomx launch resume=FOLDER -- python train.py          with the options and the state of that run
geomx launch job.yaml -- python train.py"""
