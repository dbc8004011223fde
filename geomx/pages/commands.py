"""The commands that repeat runs, as pages show them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from geomx.pages.markup import Markup, tag

OF_ONE_SCRIPT = "losses and accuracy are those of training on its data alone"
"""What has to be said of results of one worker's script, whose shadows the others are."""

_PLAIN = re.compile(r"(?=[^/]*/)[\w./-]+", re.ASCII)
"""A path without any character that means something in an override, such as = or a blank."""


def command_line(overrides: Sequence[object], script: Mapping[str, object] | None = None) -> Markup:
    """Return the command that repeats a run in a new directory, with a button to copy it.

    Args:
        overrides: The run's.
        script: ``command`` of a script and, if it was simulated, ``compute`` and, with shadows,
            ``shadows``; None: the run is an experiment.
    """
    words = repeating(overrides)
    command = shlex.join(["python", "-m", "geomx", *words])
    if script is not None:
        if "compute" in script:
            words = ["geomx", "simulate", *words, "--compute", str(script["compute"])]
            words += ["--shadows"] if "shadows" in script else []
        else:
            words = ["geomx", "launch", *words]
        command = f"{shlex.join(words)} -- {script['command']}"
    button = tag("button", "copy", type="button")
    return tag("div", tag("code", command), button, class_="command")


def shadows(script: Mapping[str, object] | None) -> Markup:
    """Return a remark on a simulated script whose workers are shadows of the first; else empty."""
    count = (script or {}).get("shadows")
    if count is None:
        return Markup("")
    told = f"{count} of these workers are shadows of the first, which alone ran the script: "
    return tag("p", told + "losses, accuracy and parameters are those of training on its data.")


def setting(key: str, value: object) -> str:
    """Return an override that sets an option to a text, which may contain any characters.

    Args:
        key: The option.
        value: The text, such as a path.

    Returns:
        ``KEY=VALUE``, with the value in quotes unless it is a path of the plainest characters.
    """
    text = str(value)
    if _PLAIN.fullmatch(text):
        return f"{key}={text}"
    text = text.replace("${", r"\${")  # an interpolation otherwise
    text = re.sub(r'(\\*)("|$)', lambda found: 2 * found[1] + found[2].replace('"', r"\""), text)
    return f'{key}="{text}"'


def repeating(overrides: Iterable[object]) -> list[str]:
    """Return `overrides` without those that set directories, which another run must not share."""
    places = ("hydra.run.", "hydra.sweep.")
    return [
        override for override in map(str, overrides) if not override.lstrip("+").startswith(places)
    ]
