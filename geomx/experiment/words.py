"""Refuses overrides whose values Hydra silently turns into others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from geomx.errors import ConfigError

_NAMED = ("network", "sync", "workload")
_WHOLE = re.compile(r"[+-]?\d+(_\d+)*")


def check_words(overrides: Sequence[str], content: Mapping[str, Any]) -> None:
    """Refuse numbers other than 0 and 1 for truth values, and tables of no keys for names.

    Hydra makes ``true`` of every number but 0, and sets no option by ``network={}``, so that the
    default network is used.

    Args:
        overrides: The user's overrides.
        content: The values that Hydra has made of them, by key.

    Raises:
        ConfigError: There is such an override.
    """
    for override in overrides:
        key, _, value = override.lstrip("+").partition("=")
        if key in _NAMED and "".join(value.split()) == "{}":
            raise ConfigError(key, value, "sets no option; must be a name")
        if _WHOLE.fullmatch(value) and _is_no_truth(int(value), at(content, key)):
            raise ConfigError(key, value, "must be true or false")


def check_truths(given: Any, content: Any, file: Path, key: str = "") -> None:
    """Refuse numbers other than 0 and 1 for truth values in a file, as `check_words` does.

    Args:
        given: What the file says, in tables.
        content: The values that Hydra has made of it, at the same keys.
        file: The file.
        key: Of `given`.

    Raises:
        ConfigError: There is such a number.
    """
    if isinstance(given, Mapping) and isinstance(content, Mapping):
        for name, value in given.items():
            below = f"{key}.{name}" if key else str(name)
            check_truths(value, content.get(name), file, below)
    elif _is_no_truth(given, content):
        raise ConfigError(key, given, f"must be true or false; {file} has it")


def _is_no_truth(number: Any, made: Any) -> bool:
    """Whether Hydra has made a truth value of another number than 0 and 1."""
    numeric = isinstance(number, int | float) and not isinstance(number, bool)
    return numeric and number not in (0, 1) and isinstance(made, bool)


def at(content: Any, key: str) -> Any:
    """Return the value of a dotted key in tables; None if there is none.

    Args:
        content: The tables.
        key: Names with dots between them; empty: all of `content`.
    """
    for name in key.split(".") if key else ():
        content = content.get(name) if isinstance(content, Mapping) else None
    return content
