"""``geomx plan``: which plugins suit a network and a workload."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from geomx import planning
from geomx.options.parsing import described
from geomx.options.schema import PlanOptions
from geomx.pages.commands import repeating
from geomx.terminal.output import WIDE, show


def main(overrides: Sequence[str]) -> None:
    """Rank combinations of plugins in simulation, and print the live command of the first."""
    places: list[Path] = []
    try:
        made = planning.make(overrides, places.append)
    except KeyboardInterrupt:
        if places:
            again = shlex.join(
                ["geomx", "plan", *repeating(overrides), f"hydra.run.dir={places[0]}"]
            )
            show(f"finished runs are kept; to continue: {again}")
        raise
    show(made.table(), WIDE)
    for sentence in made.verdict():
        show(sentence)
    if made.content["command"]:
        show(made.content["command"])
    show(made.directory)


def epilog() -> str:
    """The rest of the help."""
    told = described(PlanOptions, "plan")
    width = max(len(key) for key, _ in told)
    options = "\n".join(f"  {key:{width}}  {text}" for key, text in told)
    return f"""\
OVERRIDES describe the experiment, as for python -m geomx: network=FILE, workload=NAME ...
Options of the plan, with their defaults:
{options}

geomx plan network=my_wan.yaml workload=digits_cnn
geomx plan network=my_wan.yaml workload=resnet50 'plan.sync=[NAME,NAME]' plan.together=1"""
