"""The parser of command lines, whose errors are one line."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from geomx.errors import ConfigError


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
