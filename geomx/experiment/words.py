"""Refuses overrides whose values Hydra silently turns into others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
        other = _WHOLE.fullmatch(value) and int(value) not in (0, 1)
        if other and isinstance(_at(content, key), bool):
            raise ConfigError(key, value, "must be true or false")


def _at(content: Any, key: str) -> Any:
    """Return the value of a dotted key; None if there is none."""
    for name in key.split("."):
        content = content.get(name) if isinstance(content, Mapping) else None
    return content
