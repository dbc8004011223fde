"""Bounds and units of options, declared in their annotations.

Bounds and units are the markers of `annotated-types`, which other libraries read as well::

    k: Annotated[float, Interval(ge=0, le=1), Unit("share of blocks")] = 0.8

`OneOf` and `Matching` are additional markers. `build_options` checks all of them. Rules about
several options belong in the dataclass's ``__post_init__``.
"""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge, GroupedMetadata, Gt, Interval, Le, Lt, MinLen, MultipleOf, Unit

from geomx.errors import near

Count = Annotated[int, Ge(1)]
"""A whole number, 1 or more."""
Amount = Annotated[int, Ge(0)]
"""A whole number, 0 or more."""
Seed = Annotated[int, Interval(ge=0, le=2**64 - 1)]
"""A whole number of 64 bits without a sign."""
Share = Annotated[float, Interval(gt=0, le=1)]
"""A fraction, above 0 and up to 1."""


@dataclass(frozen=True)
class OneOf:
    """The value is one of the strings in `words`."""

    words: tuple[str, ...]

    def refusal(self, value: Any) -> str | None:
        """Return why a value is refused.

        Args:
            value: Of the option.

        Returns:
            The remedy of a `ConfigError`; None if the value is allowed.
        """
        return None if value in self.words else near(str(value), self.words)


@dataclass(frozen=True)
class Matching:
    """The value matches a regular expression completely.

    Attributes:
        pattern: The expression.
        meaning: Its meaning, for the error message ``must be MEANING``.
    """

    pattern: str
    meaning: str

    def refusal(self, value: Any) -> str | None:
        """Return why a value is refused.

        Args:
            value: Of the option.

        Returns:
            The remedy of a `ConfigError`; None if the value is allowed.
        """
        return None if re.fullmatch(self.pattern, str(value)) else f"must be {self.meaning}"


Device = Annotated[str, Matching(r"cpu|cuda(:\d+)?", "cpu, cuda or cuda:N")]
"""The name of a device, as in PyTorch; ``cuda`` is the first GPU."""


def markers(hint: Any) -> list[Any]:
    """Return the markers of an annotation, with intervals split into bounds.

    Args:
        hint: Annotation from `typing.get_type_hints` with ``include_extras=True``.

    Returns:
        The markers.
    """
    return list(_flat(getattr(hint, "__metadata__", ())))


def unit_of(hint: Any) -> str:
    """Return the unit that an annotation declares; empty if none."""
    return next((each.unit for each in markers(hint) if isinstance(each, Unit)), "")


def refusal(value: Any, hint: Any) -> str | None:
    """Return why the markers of an annotation refuse a value.

    Args:
        value: A value of the right type; None is always allowed.
        hint: The annotation.

    Returns:
        The remedy of a `ConfigError`; None if the value is allowed. Unknown markers are ignored.
    """
    said = markers(hint)
    if value is None or not said:
        return None
    for each in said:
        if isinstance(each, OneOf | Matching) and (remedy := each.refusal(value)):
            return remedy
        if isinstance(each, MinLen) and len(value) < each.min_length:
            return f"must list {each.min_length} or more"
        if isinstance(each, MultipleOf) and value % each.multiple_of:
            return f"must be a multiple of {each.multiple_of}"
    bounds = [each for each in said if isinstance(each, Ge | Gt | Le | Lt)]
    if not bounds:
        return None
    try:
        finite = math.isfinite(value)
    except OverflowError:  # a whole number of more than 308 digits
        return "must be a number below 1e308"
    if finite and all(_holds(value, each) for each in bounds):
        return None
    unit = f" ({unit_of(hint)})" if unit_of(hint) else ""
    null = ", or null" if type(None) in typing.get_args(hint.__origin__) else ""
    return f"must be {_allowed(bounds)}{unit}{null}"


def _flat(said: Iterable[Any]) -> Iterator[Any]:
    for each in said:
        yield from _flat(each) if isinstance(each, GroupedMetadata) else [each]


def _holds(value: Any, bound: Any) -> bool:
    if isinstance(bound, Ge):
        return bool(value >= bound.ge)
    if isinstance(bound, Gt):
        return bool(value > bound.gt)
    return bool(value <= bound.le if isinstance(bound, Le) else value < bound.lt)


def _allowed(bounds: list[Any]) -> str:
    kinds = {type(bound): bound for bound in bounds}
    if kinds.keys() == {Ge, Le}:
        return f"between {kinds[Ge].ge} and {kinds[Le].le}"
    return " and ".join(_limit(bound) for bound in bounds)


def _limit(bound: Any) -> str:
    if isinstance(bound, Ge):
        return f"{bound.ge} or more"
    if isinstance(bound, Gt):
        return f"more than {bound.gt}"
    return f"at most {bound.le}" if isinstance(bound, Le) else f"less than {bound.lt}"
