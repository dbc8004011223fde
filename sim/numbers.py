"""Numbers and names that programs and plugins give to a running simulation.

Programs compute them, with numpy or anything else: scalars of all kinds count as numbers. Truth
values and texts do not, as these are mistakes: ``mbps=True`` is no bandwidth of 1 Mbit/s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from geomx.errors import near


def as_number(value: Any) -> float:
    """Return a scalar as a float, which may be infinite; NaN if it is no number."""
    if getattr(value, "ndim", None) == 0 and callable(getattr(value, "item", None)):
        value = value.item()  # of numpy, PyTorch, JAX and others
    of_scalars: Any = Real | Decimal
    if isinstance(value, bool) or not isinstance(value, of_scalars):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number beyond floating point
        return math.inf if value > 0 else -math.inf


def number(name: str, value: Any, allows: Callable[[float], bool], bound: str) -> float:
    """Return a value as a number.

    Args:
        name: What it is, for the error.
        value: The value.
        allows: Whether a number is allowed; NaN, which no comparison allows, is no number.
        bound: What is allowed, in words: ``must be BOUND``.

    Raises:
        ValueError: It is no number, or not allowed; names both, and what is allowed.
    """
    result = as_number(value)
    if not allows(result):
        raise ValueError(f"{name}={value!r}: must be {bound}")
    return result


def truth(name: str, value: Any) -> bool:
    """Return a value as a truth value.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name}={value!r}: must be True or False")
    return bool(value)


def function(name: str, value: Any, what: str) -> None:
    """Refuse a value that cannot be called.

    Raises:
        ValueError: It cannot; the message says that it must be a function `what`.
    """
    if not callable(value):
        raise ValueError(f"{name}={value!r}: must be a function {what}")


def known(noun: str, name: Any, names: Collection[str]) -> str:
    """Return a name that exists.

    Raises:
        ValueError: It does not; the message names similar ones.
    """
    if not isinstance(name, str) or name not in names:
        raise ValueError(f"there is no {noun} {name}; {near(str(name), names)}")
    return name
