"""Figures of network files, and the one sentence that refuses a wrong one.

Whatever reads a part of a network file checks its numbers here, so that every refusal reads alike:
what it is about, what it says, what it must be.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from geomx.options.parsing import near

MOST_MBPS = 1e9
"""A petabit per second, what experiments have put through one fibre; the fastest ports that are
sold have a thousandth of it."""

LEAST_MBPS = 1e-6
"""A bit per second."""

MOST_MS = 3.6e6
"""An hour; light takes a third of one to Mars."""


class NetworkError(ValueError):
    """A network that breaks a rule, with the sentence that says which."""


def refuse(sentence: str) -> NoReturn:
    """Stop reading the network."""
    raise NetworkError(sentence)


def number(value: Any, what: str) -> float:
    """`value` as a finite or infinite float; refused by the name `what` where it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        refuse(f"{what} is {value!r}; it must be a number")
    try:
        result = float(value)
    except ValueError:
        refuse(f"{what} is {value!r}; it must be a number")
    if math.isnan(result):
        refuse(f"{what} is not a number")
    return result


def positive(value: Any, what: str) -> float:
    """A number above 0."""
    result = number(value, what)
    if result <= 0:
        refuse(f"{what} is {value}; it must be more than 0")
    return result


def not_negative(value: Any, what: str) -> float:
    """A finite number, 0 or more."""
    result = number(value, what)
    if not 0 <= result < math.inf:
        refuse(f"{what} is {value}; it must be 0 or more")
    return result


def bandwidth(value: Any, what: str) -> float:
    """Mbit/s, from `LEAST_MBPS` to `MOST_MBPS`, or infinity: unlimited."""
    result = positive(value, what)
    if not LEAST_MBPS <= result <= MOST_MBPS and result != math.inf:
        refuse(
            f"{what} is {value}; it must be at least {LEAST_MBPS:f} and at most {MOST_MBPS:,.0f} "
            "Mbit/s, or .inf for unlimited"
        )
    return result


def milliseconds(value: Any, what: str) -> float:
    """A time on the way, from 0 to `MOST_MS`."""
    result = not_negative(value, what)
    if result > MOST_MS:
        refuse(f"{what} is {value}; it must be at most {MOST_MS:,.0f} ms, which is an hour")
    return result


def probability(value: Any, what: str) -> float:
    """A number from 0 to just below 1."""
    result = number(value, what)
    if not 0 <= result < 1:
        refuse(f"{what} is {value}; it must be at least 0 and below 1")
    return result


def count(value: Any, what: str, least: int) -> int:
    """A whole number, `least` or more."""
    if value is None:
        refuse(f"{what} is missing")
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        refuse(f"{what} is {value}; it must be a whole number, {least} or more")
    return value


def table(value: Any, where: str) -> Mapping[str, Any]:
    """A table of keys."""
    if not isinstance(value, Mapping):
        refuse(f"{where} must be a table of keys, not {value!r}")
    return value


def known_keys(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    """Refuse the first key of `given` that is not among the known ones."""
    for key in given:
        if key not in known:
            name = f"{where}.{key}" if where else key
            refuse(f"unknown key {name}; {near(str(key), known)}")


def spelt(what: str, data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse an attribute that looks like a misspelt one; others are the file's own business."""
    stems = {name.split("_")[0]: name for name in known}
    for name in data:
        if name in known:
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        meant = close[0] if close else stems.get(name.split("_")[0].lower())
        if meant is not None:
            refuse(f"{what} has an unknown attribute {name}; did you mean {meant}?")


def required(given: Mapping[str, Any], key: str, where: str) -> Any:
    """The value of a key that must be there."""
    if given.get(key) is None:
        refuse(f"{where}.{key} is missing" if where else f"{key} is missing")
    return given[key]
