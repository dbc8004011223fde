"""Findings of a check: broken laws with place, expected and actual result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


class Broken(Exception):  # noqa: N818 (a law is broken)
    """A law does not hold.

    Args:
        where: Where it fails (``wan push, 1000 elements, round 2``); may be empty.
        expected: The result by the law.
        got: The actual result.
    """

    def __init__(self, where: str, expected: object, got: object) -> None:
        self.where = where
        super().__init__(
            f"{where + ': ' if where else ''}expected {expected}, got {' '.join(str(got).split())}"
        )


Law = Callable[[], None]
Laws = Iterator[tuple[str, Law]]
"""(text of the law, check that raises `Broken`)"""


@dataclass(frozen=True)
class Finding:
    """Result of one law.

    Attributes:
        law: Text of the law.
        failure: Why it does not hold; empty if it does.
    """

    law: str
    failure: str = ""
