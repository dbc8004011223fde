"""A law that was broken: where, what was expected, what came instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


class Broken(Exception):  # noqa: N818 (a law is broken)
    """A law does not hold.

    Args:
        where: Of what it was asked (``wan push, 1000 elements, round 2``); may be empty.
        expected: What the law says.
        got: What came.
    """

    def __init__(self, where: str, expected: object, got: object) -> None:
        self.where = where
        super().__init__(
            f"{where + ': ' if where else ''}expected {expected}, got {' '.join(str(got).split())}"
        )


Law = Callable[[], None]
Laws = Iterator[tuple[str, Law]]
"""(what it says, the check that raises `Broken`)"""


@dataclass(frozen=True)
class Finding:
    """What became of one law.

    Attributes:
        law: What it says.
        failure: Why it does not hold; empty if it does.
    """

    law: str
    failure: str = ""
