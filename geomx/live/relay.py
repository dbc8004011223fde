"""Lines for the user about what goes on while nothing seems to."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

PREFIX = "geomx: "


def notice(text: str) -> None:
    """Tell the user something, on standard error."""
    print(f"{PREFIX}{text}", file=sys.stderr, flush=True)


class Patience:
    """When a wait of a launcher's, or of a node before it has joined, is worth a line.

    Args:
        after_s: How long it may last; the next line comes after twice as long, and so on.
        say: Takes the lines.
    """

    def __init__(self, after_s: float, say: Callable[[str], None] = notice) -> None:
        self._began_s = time.monotonic()
        self._due_s = after_s
        self._say = say

    def waits(self, who: str, what: Callable[[], str]) -> None:
        """`who` is still waiting for what `what` returns; to be called now and then."""
        waited_s = time.monotonic() - self._began_s
        if waited_s >= self._due_s:
            self._due_s = 2 * max(waited_s, self._due_s)
            self._say(f"{who} has waited {waited_s:.0f} s for {what()}")
