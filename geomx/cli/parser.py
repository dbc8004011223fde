"""The parser of command lines, whose errors are one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from geomx.errors import ConfigError

COMPUTE = "--compute"
SHADOWS = "--shadows"
MEASURED = "measured"


class Parser(argparse.ArgumentParser):
    """Reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage.

        Raises:
            ConfigError: Always.
        """
        program = self.prog.split()[0]  # without the command, which is among the arguments
        raise ConfigError(program, " ".join(sys.argv[1:]), f"{message}; see --help")


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split `arguments` at ``--`` into those before it and the command after it."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


class Simulating(NamedTuple):
    """What the words before the command of a simulated script say.

    Attributes:
        overrides: Of the experiment.
        compute: What computing takes; `geomx.sim.computing.Computing.read` understands it.
        shadows: Whether one worker runs the script, and the others are its shadows.
    """

    overrides: list[str]
    compute: str
    shadows: bool


def simulating(words: Sequence[str]) -> Simulating:
    """Return what `words` say about the simulation of a script.

    Args:
        words: What comes before the command of a script.

    Raises:
        ConfigError: ``--compute`` has no value.
    """
    overrides, compute, shadows, rest = [], MEASURED, False, iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == SHADOWS:
            shadows = True
        elif name != COMPUTE:
            overrides.append(word)
        else:
            compute = value if equals else next(rest, "")
            if not compute:
                raise ConfigError(COMPUTE, "", "needs a value, such as constant:0.05")
    return Simulating(overrides, compute, shadows)
