"""Checks of values in network files, with error messages of one form.

All readers of network files check their numbers here. Each message names the value's place, the
value, and the values that are allowed.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from geomx.errors import near

MOST_MBPS = 1e9
"""A petabit per second, reached over a single fibre in experiments; the fastest ports on sale have
a thousandth of it."""

MOST_SPEED = 1e6
"""Limit on how much faster or slower than usual a worker may be."""

LEAST_MBPS = 1e-6
"""A bit per second."""

MOST_MS = 3.6e6
"""One hour; light takes a third of that to Mars at its farthest."""

DEGREES = {"latitude": 90, "lat": 90, "longitude": 360, "lon": 360, "lng": 360}
"""Coordinates of nodes and their limits; some sources count longitudes from 0 to 360."""


class NetworkError(ValueError):
    """A network that violates a rule; the message is a full sentence."""


def refuse(sentence: str) -> NoReturn:
    """Reject the network.

    Args:
        sentence: The rule that is violated, and where.

    Raises:
        NetworkError: Always.
    """
    raise NetworkError(sentence)


def number(value: Any, what: str) -> float:
    """Return `value` as a float, which may be infinite.

    Args:
        value: A number, or text that holds one.
        what: Name of the value in error messages.

    Raises:
        NetworkError: It is no number, or NaN.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        refuse(f"{what} is {value!r}; it must be a number")
    try:  # YAML's infinity, on the command line text, has a point
        result = float(value.replace(".inf", "inf") if isinstance(value, str) else value)
    except ValueError:
        refuse(f"{what} is {value!r}; it must be a number")
    except OverflowError:  # an integer beyond floating point
        result = math.inf if int(value) > 0 else -math.inf
    if math.isnan(result):
        refuse(f"{what} is not a number")
    return result


def positive(value: Any, what: str) -> float:
    """Check a positive number.

    Args:
        value: A number, or text that holds one.
        what: Name of the value in error messages.

    Returns:
        The number, above 0; may be infinite.

    Raises:
        NetworkError: It is no such number.
    """
    result = number(value, what)
    if result <= 0:
        refuse(f"{what} is {value}; it must be more than 0")
    return result


def worker_speed(value: Any, what: str) -> float:
    """Check the speed of a worker, a multiple of the usual one.

    Args:
        value: A number, or text that holds one.
        what: Name of the value in error messages.

    Returns:
        The speed.

    Raises:
        NetworkError: It is no number, or out of range.
    """
    result = positive(value, what)
    if not 1 / MOST_SPEED <= result <= MOST_SPEED:
        least = f"{1 / MOST_SPEED:f}"
        refuse(f"{what} is {value}; it must be at least {least} and at most {MOST_SPEED:,.0f}")
    return result


def not_negative(value: Any, what: str) -> float:
    """Check a finite, non-negative number.

    Args:
        value: A number, or text that holds one.
        what: Name of the value in error messages.

    Returns:
        The number.

    Raises:
        NetworkError: It is no such number.
    """
    result = number(value, what)
    if not 0 <= result < math.inf:
        refuse(f"{what} is {value}; it must be 0 or more{', and finite' * (result > 0)}")
    return result


def bandwidth(value: Any, what: str) -> float:
    """Check a bandwidth.

    Args:
        value: Mbit/s, from `LEAST_MBPS` to `MOST_MBPS`, or infinity for unlimited.
        what: Name of the value in error messages.

    Returns:
        Mbit/s.

    Raises:
        NetworkError: It is out of range.
    """
    result = positive(value, what)
    if not LEAST_MBPS <= result <= MOST_MBPS and result != math.inf:
        refuse(
            f"{what} is {value}; it must be at least {LEAST_MBPS:f} and at most {MOST_MBPS:,.0f} "
            "Mbit/s, or .inf for unlimited"
        )
    return result


def milliseconds(value: Any, what: str) -> float:
    """Check a network delay.

    Args:
        value: Milliseconds, from 0 to `MOST_MS`.
        what: Name of the value in error messages.

    Returns:
        Milliseconds.

    Raises:
        NetworkError: It is out of range.
    """
    result = not_negative(value, what)
    if result > MOST_MS:
        refuse(f"{what} is {value}; it must be at most {MOST_MS:,.0f} ms, which is an hour")
    return result


def probability(value: Any, what: str) -> float:
    """Check a probability.

    Args:
        value: A number in [0, 1).
        what: Name of the value in error messages.

    Returns:
        The number.

    Raises:
        NetworkError: It is out of range.
    """
    result = number(value, what)
    if not 0 <= result < 1:
        refuse(f"{what} is {value}; it must be at least 0 and below 1")
    return result


def check_place(what: str, data: dict[str, Any]) -> None:
    """Check the coordinates of a node, and remove those without a value.

    Args:
        what: Name of the node in error messages.
        data: Its attributes; `DEGREES` has the names of coordinates, in any case.

    Raises:
        NetworkError: One is no number, or out of range.
    """
    for name, value in list(data.items()):
        most = DEGREES.get(str(name).lower())
        if most is None:
            continue
        if value is None:
            del data[name]
        elif abs(number(value, f"{name} of {what}")) > most:
            refuse(f"{name} of {what} is {value}; it must be from -{most} to {most} degrees")


def count(value: Any, what: str, least: int) -> int:
    """Check an integer.

    Args:
        value: An integer.
        what: Name of the value in error messages.
        least: Its lower limit.

    Returns:
        `value`.

    Raises:
        NetworkError: It is missing, no integer, or too small.
    """
    if value is None:
        refuse(f"{what} is missing")
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        refuse(f"{what} is {value}; it must be a whole number, {least} or more")
    return value


def passes_twice(way: Sequence[str]) -> bool:
    """Return whether a way passes a node more than once.

    Args:
        way: Its nodes, in order.
    """
    return len(set(way)) < len(way)


def table(value: Any, where: str) -> Mapping[str, Any]:
    """Check a table of keys.

    Args:
        value: A mapping.
        where: Its path in error messages.

    Returns:
        `value`.

    Raises:
        NetworkError: It is not a mapping.
    """
    if not isinstance(value, Mapping):
        refuse(f"{where} must be a table of keys, not {value!r}")
    return value


def known_keys(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    """Refuse unknown keys.

    Args:
        given: A table.
        known: The allowed keys.
        where: Path of the table in error messages, empty at the top.

    Raises:
        NetworkError: A key is unknown; the message suggests a similar one.
    """
    for key in given:
        if key not in known:
            name = f"{where}.{key}" if where else key
            refuse(f"unknown key {name}; {near(str(key), known)}")


def spelt(what: str, data: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse attributes that look like misspelt known ones, or mean them; all others are ignored.

    Args:
        what: Name of the node or edge in error messages.
        data: Its attributes.
        known: The known attributes.

    Raises:
        NetworkError: An attribute resembles a known one, or is a latency without a delay.
    """
    stems = {name.split("_")[0]: name for name in known}
    if "delay_ms" in known and "delay_ms" not in data:
        stems["latency"] = "delay_ms"
    for name in data:
        if name in known:
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        meant = close[0] if close else stems.get(name.split("_")[0].lower())
        if meant is not None:
            refuse(f"{what} has an unknown attribute {name}; did you mean {meant}?")


def required(given: Mapping[str, Any], key: str, where: str) -> Any:
    """Return the value of a required key.

    Args:
        given: A table.
        key: The key.
        where: Path of the table in error messages, empty at the top.

    Raises:
        NetworkError: It is missing or None.
    """
    if given.get(key) is None:
        refuse(f"{where}.{key} is missing" if where else f"{key} is missing")
    return given[key]
