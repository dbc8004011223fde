"""``geomx plan``: which plugins suit a network and a workload."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from geomx import planning
from geomx.cli.parser import simulating, split
from geomx.config.own_files import with_folder_searched
from geomx.options.parsing import described
from geomx.options.schema import PlanOptions
from geomx.pages.commands import repeating, setting
from geomx.planning import scripts
from geomx.terminal.output import WIDE, show


def main(arguments: Sequence[str]) -> None:
    """Rank combinations of plugins in simulation, and print the live command of the first.

    Args:
        arguments: Of the command line; behind ``--`` the command of a script, if there is one.

    Raises:
        ConfigError: Nothing follows ``--``, or an override is invalid.
    """
    own, command = split("plan", arguments)
    overrides = with_folder_searched(own)
    if command:
        return _plan_script(overrides, command)
    places: list[Path] = []
    try:
        made = planning.make(overrides, places.append)
    except KeyboardInterrupt:
        if places:
            words = [*repeating(overrides), setting("hydra.run.dir", places[0])]
            again = shlex.join(["geomx", "plan", *words])
            show(f"finished runs are kept; to continue: {again}")
        raise
    show(made.table(), WIDE)
    for sentence in made.verdict():
        show(sentence)
    if made.content["command"]:
        show(made.content["command"])
    show(made.directory)


def _plan_script(own: Sequence[str], command: Sequence[str]) -> None:
    overrides, compute, shadows = simulating(own)
    made = scripts.make(overrides, command, compute, shadows)
    show(made.table(), WIDE)
    for sentence in made.verdict():
        show(sentence)
    show(made.directory)


def epilog() -> str:
    """The rest of the help."""
    told = described(PlanOptions, "plan")
    width = max(len(key) for key, _ in told)
    options = "\n".join(f"  {key:{width}}  {text}" for key, text in told)
    return f"""\
OVERRIDES describe the experiment, as for python -m geomx: network=FILE, workload=NAME ...,
and --config-dir FOLDER names a folder with presets of your own.
Options of the plan, with their defaults:
{options}

With -- COMMAND, the combinations are ranked for a script, as geomx simulate runs it, and the best
are simulated with it; --compute and --shadows are those of geomx simulate.

geomx plan network=my_wan.yaml workload=digits_cnn
geomx plan network=my_wan.yaml -- python train.py
geomx plan network=my_wan.yaml workload=resnet50 'plan.sync=[NAME,NAME]' plan.together=1"""
