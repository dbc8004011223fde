"""Templates of commands that run a command on another machine; the default is SSH's.

``{command}`` stands for the arguments of the command, ``{host}`` for the machine's name in the job
file, ``{address}`` for its address. No local shell is involved. The arguments contain no blanks or
quotes, provided the machine's ``python`` does not, so that they mean the same to ``ssh``, which
passes one line to a remote shell, and to tools that pass arguments on.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from geomx.errors import ConfigError

SSH = (
    "ssh -T -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=2 {address} {command}"
)
"""Never asks for a password; fails after ten seconds of silence."""

COMMAND = "{command}"

_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh", "fish", "su", "runuser")
_TAKES_ONE_WORD = re.compile(r"-[a-z]*c|--command")


def check(template: str, key: str) -> None:
    """Check a template.

    Args:
        template: The template.
        key: Name of the option in error messages.

    Raises:
        ConfigError: It lacks ``{command}``, or contains an unknown placeholder.
    """
    needs = "needs {command} as a separate argument, as in " + SSH
    try:
        words = shlex.split(template)
        if any(COMMAND in word and word != COMMAND for word in words):
            raise ConfigError(key, template, needs)
        argv(template, "host", "address", [])
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        remedy = f"is not a valid template: use {{host}}, {{address}} and {{command}} ({error})"
        raise ConfigError(key, template, remedy) from error
    if COMMAND not in words:
        raise ConfigError(key, template, needs)
    before = words[: words.index(COMMAND)]
    shell = next((word for word in before if word.rsplit("/", 1)[-1] in _SHELLS), None)
    if shell is not None and _TAKES_ONE_WORD.fullmatch(before[-1]):
        remedy = (
            f"{{command}} becomes several arguments; {before[-1]} takes the first only: leave "
            f"`{shell} {before[-1]}` out, or write {shell} {before[-1]} "
            "'exec \"$@\"' sh {command}"
        )
        raise ConfigError(key, template, remedy)


def argv(template: str, host: str, address: str, command: Sequence[str]) -> list[str]:
    """Return the arguments that run a command on a machine.

    Args:
        template: The template.
        host: Name of the machine.
        address: Its address.
        command: The command.
    """
    made: list[str] = []
    for word in shlex.split(template):
        made += command if word == COMMAND else [word.format(host=host, address=address)]
    return made
