"""Lines of text from file descriptors: a launcher's words, and the output of a node."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

CHUNK = 64 * 1024
LONGEST = 64 * 1024
"""Bytes of a line of output beyond which a part is passed on as it is."""

REDRAWN_S = 10.0
"""Interval at which the state of a progress bar is passed on, which is one line until it ends."""


class Lines:
    """Splits the data from a file descriptor into lines.

    Args:
        number: The descriptor.

    Attributes:
        number: The descriptor.
        closed: Whether it has ended.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.closed = False
        self._left = b""

    def take(self) -> Iterator[str]:
        """Yield the complete lines; does not block if the descriptor is readable."""
        data = os.read(self.number, CHUNK)
        self.closed = not data
        *lines, self._left = (self._left + data).split(b"\n")
        if self.closed and self._left:
            lines.append(self._left)
            self._left = b""
        for line in lines:
            yield line.decode(errors="replace")


class Output(Lines):
    """Splits the output of a node into lines of bounded length.

    What a terminal would overwrite after a carriage return is left out: of a progress bar, the last
    state counts, and every `REDRAWN_S` the present one.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self._drawn_s = -REDRAWN_S

    def take(self) -> Iterator[str]:
        """See `Lines.take`."""
        for line in super().take():
            yield line.rstrip("\r").rpartition("\r")[2]
        states, drawn, rest = self._left.rpartition(b"\r")
        state = states.rpartition(b"\r")[2]
        self._left = state + drawn + rest
        if state and time.monotonic() - self._drawn_s >= REDRAWN_S:
            self._drawn_s = time.monotonic()
            yield state.decode(errors="replace")
        if len(self._left) > LONGEST:
            yield self._left.decode(errors="replace")
            self._left = b""
