"""``geomx launch``: a training script as every worker, on this machine or on many."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from geomx.cli.parser import split
from geomx.config.compose import compose
from geomx.errors import ConfigError
from geomx.experiment.experiment import Experiment
from geomx.live.launcher import run_script
from geomx.live.resume import words_of
from geomx.machines.launch import launch
from geomx.terminal.log import say
from geomx.terminal.output import show, telling_where

_DEFAULTS = {"faults.on_loss": ("continue", "stop"), "faults.durable": ("log", "none")}
"""Options that differ between runs of scripts and of experiments, which the second value is of."""


def main(arguments: Sequence[str]) -> None:
    """Run a training script as every worker of a cluster, here or on a job file's machines.

    Args:
        arguments: Of the command line; perhaps a job file first, and behind ``--`` the command.

    Raises:
        ConfigError: There is no command, or an override is invalid.
        NodeLost: A process failed; says which, and its last words.
    """
    own, command = split(list(arguments))
    if "--" in arguments and not command:
        raise ConfigError("launch", shlex.join(arguments), "there is no command after --")
    job = own[0] if own and "=" not in own[0] else ""  # not network=wan.yaml
    if job.endswith((".yaml", ".yml")):
        directory, results = launch(Path(job), own[1:], command)
        show(results.table())
        show(directory)
        return
    if not command:
        raise ConfigError(
            "launch", " ".join(arguments), "needs a command: geomx launch ... -- COMMAND"
        )
    experiment, directory = composed(own)
    with telling_where(directory):
        results = run_script(experiment, directory, command)
    show(results.table())
    show(directory)


def composed(overrides: Sequence[str]) -> tuple[Experiment, Path]:
    """Compose the experiment of a script.

    Unlike an experiment's, its run continues without lost nodes, and its global servers keep a log.
    What the plugins or other options do not allow is left out, and reported.

    Args:
        overrides: As for ``python -m geomx``; those of ``faults.on_loss`` and ``faults.durable``
            take precedence. With ``resume=DIR`` and without ``network``, others are those of that
            run.

    Returns:
        As of `compose`.

    Raises:
        ConfigError: The overrides do not describe an experiment.
    """
    overrides = words_of(overrides)
    given = {word.lstrip("+").partition("=")[0] for word in overrides}
    words = {key: f"{key}={value}" for key, (value, _) in _DEFAULTS.items() if key not in given}
    while True:
        try:
            return compose([*overrides, *words.values()])
        except ConfigError as error:
            if words.pop(error.key, None) is None:
                raise
            _, instead = _DEFAULTS[error.key]
            reason = f"{error.value} is not possible: {error.remedy}"
            say(f"{error.key}={instead}, since {reason}", "warning")


def epilog() -> str:
    """The rest of the help."""
    return """\
JOB.yaml   the machine of each node (docs/machines.md); without it, all run on this machine
OVERRIDES  the experiment, as for python -m geomx: network=FILE, +sync=NAME, '+accel=[NAME,...]',
           options of plugins, runtime.OPTION=VALUE, hydra.run.dir=FOLDER (python -m geomx --help)
COMMAND    the command of every worker: a script that uses geomx.kv, geomx.mxnet or geomx.torch.
           The output of the first worker is shown; the logs of all nodes are in the run's folder,
           in nodes/. Without a command, a job file's machines run the experiment's workload.

geomx launch network=my_wan.yaml +sync=NAME '+accel=[NAME]' -- python train.py
geomx launch resume=FOLDER -- python train.py          as in an earlier run, whose state it begins with
geomx launch job.yaml -- python train.py"""
