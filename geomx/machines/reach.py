"""How a command is run on another machine: a template, with SSH's as the default.

``{command}`` stands for the words of the command, ``{host}`` for the machine's name in the job
file, ``{address}`` for its address. Nothing of it goes through a shell here. What is run consists
of words without blanks or quotes wherever the machine's ``python`` does, so that it means the same
to ``ssh``, which hands one line to a shell over there, and to those that pass words on.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from geomx.errors import ConfigError

SSH = (
    "ssh -T -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=2 {address} {command}"
)
"""Never asks for a password; gives up after ten seconds of silence."""

COMMAND = "{command}"

_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh", "fish", "su", "runuser")
_TAKES_ONE_WORD = re.compile(r"-[a-z]*c|--command")


def check(template: str, key: str) -> None:
    """Refuse a template that cannot run anything.

    Raises:
        ConfigError: It lacks ``{command}``, or holds a name that means nothing here.
    """
    try:
        words = shlex.split(template)
        template.format(host="", address="", command="")
    except (KeyError, IndexError, ValueError) as error:
        remedy = f"is no template: {{host}}, {{address}} and {{command}} mean something ({error})"
        raise ConfigError(key, template, remedy) from error
    if COMMAND not in words:
        raise ConfigError(key, template, "needs {command} as a word of its own, as in " + SSH)
    before = words[: words.index(COMMAND)]
    shell = next((word for word in before if word.rsplit("/", 1)[-1] in _SHELLS), None)
    if shell is not None and _TAKES_ONE_WORD.fullmatch(before[-1]):
        remedy = (
            f"{{command}} is several words, of which {before[-1]} takes the first only: leave "
            f"`{shell} {before[-1]}` out, or write {shell} {before[-1]} "
            "'exec \"$@\"' sh {command}"
        )
        raise ConfigError(key, template, remedy)


def argv(template: str, host: str, address: str, command: Sequence[str]) -> list[str]:
    """The words that run `command` on a machine."""
    made: list[str] = []
    for word in shlex.split(template):
        made += command if word == COMMAND else [word.format(host=host, address=address)]
    return made
