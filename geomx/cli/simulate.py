"""``geomx simulate``: a training script as every worker, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from geomx.cli.parser import needs_command, simulating, split
from geomx.config.compose import compose
from geomx.config.own_files import with_folder_searched
from geomx.pages.commands import OF_ONE_SCRIPT
from geomx.runner import simulate_command
from geomx.terminal import units
from geomx.terminal.log import say
from geomx.terminal.output import show, telling_where

NOTICEABLE, NOTICEABLE_S = 0.05, 0.2
"""Share of the computing, and seconds, beyond which real waiting of a script is mentioned."""


def main(arguments: Sequence[str]) -> None:
    """Simulate a script, show the results, and print the directory of its files last.

    Args:
        arguments: Of the command line; behind ``--`` the command of every worker.

    Raises:
        ConfigError: There is no command, or an override is invalid.
        NodeLost: A process of the script failed.
    """
    own, command = split("simulate", arguments)
    if not command:
        raise needs_command("simulate", arguments)
    how = simulating(with_folder_searched(own))
    experiment, directory = compose(how.overrides)
    with telling_where(directory):
        results = simulate_command(experiment, directory, command, how.compute, how.shadows)
    if how.shadows:
        say(
            f"one worker ran the script, and {results.summary['script']['shadows']} were its "
            f"shadows: {OF_ONE_SCRIPT}",
            "info",
        )
    _tell_of_waiting(results.summary["script"], results.summary["iterations"])
    show(results.table())
    show(directory)


def _tell_of_waiting(script: Mapping[str, Any], steps: int) -> None:
    """Mention real waiting of a script, which takes no time in its simulation."""
    waited_s = script.get("waited_s", 0.0)
    computed_s = script["first_step_s"] + (script["step_s"] or 0.0) * (steps - 1)
    if waited_s > max(NOTICEABLE * computed_s, NOTICEABLE_S):
        say(
            f"a worker computed for {units.duration(computed_s)} and waited for "
            f"{units.duration(waited_s)} outside its store (files, network, time.sleep, other "
            "programs), which takes no time in a simulation; geomx.sleep does",
            "warning",
        )


def epilog() -> str:
    """The rest of the help."""
    return """\
OVERRIDES  the experiment, as for python -m geomx: network=FILE, +sync=NAME, '+accel=[NAME,...]',
           options of plugins, hydra.run.dir=FOLDER (python -m geomx --help), and --config-dir
           FOLDER for presets of your own
--compute  what computing takes in virtual time: measured (the default), or constant:SECONDS per
           local step, with which equal runs have equal files
--shadows  only the first worker runs the script; the others send and wait for the same, in the
           same computing times by their own speed
COMMAND    the command of every worker, as for geomx launch: a script that uses geomx.kv,
           geomx.mxnet or geomx.torch. The output of the first worker is shown; the logs of the
           others are in the run's folder, in nodes/.

geomx simulate network=my_wan.yaml +sync=NAME '+accel=[NAME]' -- python train.py"""
