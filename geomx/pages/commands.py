"""The commands that repeat runs, as pages show them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from geomx.pages.markup import Markup, tag


def command_line(overrides: Sequence[object], script: Mapping[str, str] | None = None) -> Markup:
    """Return the command that repeats a run in a new directory, with a button to copy it.

    Args:
        overrides: The run's.
        script: ``command`` and ``compute`` of a simulated script; None: the run is an experiment.
    """
    words = repeating(overrides)
    command = shlex.join(["python", "-m", "geomx", *words])
    if script is not None:
        words = ["geomx", "simulate", *words, "--compute", script["compute"]]
        command = f"{shlex.join(words)} -- {script['command']}"
    button = tag("button", "copy", type="button")
    return tag("div", tag("code", command), button, class_="command")


def repeating(overrides: Iterable[object]) -> list[str]:
    """Return `overrides` without those that set directories, which another run must not share."""
    places = ("hydra.run.", "hydra.sweep.")
    return [
        override for override in map(str, overrides) if not override.lstrip("+").startswith(places)
    ]
