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
        raise ConfigError(self.prog, " ".join(sys.argv[1:]), f"{message}; see --help")


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Split `words` at ``--`` into those before it and the command after it."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]
