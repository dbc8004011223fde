"""The parser of command lines, whose errors are one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from geomx.errors import ConfigError

COMPUTE = "--compute"
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


def computing(words: Sequence[str]) -> tuple[list[str], str]:
    """Return the overrides among `words`, and what they say about the computing of a script.

    Args:
        words: What comes before the command of a script.

    Returns:
        All but ``--compute HOW``, and HOW; ``measured`` if it is not there.

    Raises:
        ConfigError: ``--compute`` has no value.
    """
    overrides, compute, rest = [], MEASURED, iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name != COMPUTE:
            overrides.append(word)
            continue
        compute = value if equals else next(rest, "")
        if not compute:
            raise ConfigError(COMPUTE, "", "needs a value, such as constant:0.05")
    return overrides, compute
