"""The parser of command lines, whose errors are one line."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, NoReturn

from geomx.errors import ConfigError, UsageError
from geomx.terminal.output import show

COMPUTE = "--compute"
SHADOWS = "--shadows"
MEASURED = "measured"


class Parser(argparse.ArgumentParser):
    """Reports errors in one line, also those of writing its help."""

    def parse(self, words: Sequence[str], behind: Sequence[str]) -> argparse.Namespace:
        """Parse a command and its words, whose ``overrides`` may also stand behind its options.

        Args:
            words: The command, and what follows it.
            behind: What follows ``--``.

        Raises:
            UsageError: They are refused.
        """
        options, left = self.parse_known_args(words, argparse.Namespace(behind=behind))
        if any(word.startswith("-") for word in left) or (left and "overrides" not in options):
            self.error(f"unrecognized arguments: {' '.join(left)}")
        if left:
            options.overrides = [*options.overrides, *left]
        return options

    def print_help(self, file: Any = None) -> None:
        """Show the help on standard output, whose errors argparse would ignore.

        Raises:
            OSError: Standard output cannot be written.
        """
        show(self.format_help().rstrip("\n"))

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing usage.

        Raises:
            UsageError: Always; `line` completes it.
        """
        raise UsageError((), f"{message}; see --help")


@contextlib.contextmanager
def line(words: Sequence[str]) -> Iterator[None]:
    """Let what a `Parser` refuses within show all words after ``geomx``.

    Raises:
        UsageError: It has refused them.
    """
    try:
        yield
    except UsageError as error:
        raise UsageError(words, error.remedy) from None


def split(name: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of `name` at ``--`` into those before it and the command after it.

    Args:
        name: The command of geomx: ``launch``.
        arguments: What follows it.

    Raises:
        UsageError: Nothing follows ``--``.
    """
    own = list(takewhile("--".__ne__, arguments))
    command = list(arguments[len(own) + 1 :])
    if not command and len(own) < len(arguments):
        raise UsageError([name, *arguments], "there is no command after --")
    return own, command


def needs_command(name: str, arguments: Sequence[str]) -> UsageError:
    """Return the refusal of a line that runs a script, but names none."""
    return UsageError([name, *arguments], f"needs a command: geomx {name} ... -- COMMAND")


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
