"""Selects the lines of nodes' logs that a launcher shows to the user during a run.

Notices for the user, such as long waits or invalid gradients, are lines as in `geomx.terminal.log`,
between others that a script or a library has written. Waits form chains: a worker waits for its
server, which waits for the global server, which waits for another party's server, which waits for
one of its workers. Only the end of a chain, which is the cause, is shown.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from geomx.terminal.log import say, text_of

_WAIT = re.compile(r"(\S+) has waited \d+ s for (.*?) to ")
_BY_ADDRESS = "the scheduler at "  # as nodes call it that have not joined
_LOOK_S = 0.5


def warned(text: str) -> None:
    """Write a warning about the whole job."""
    say(text, "warning")


class Patience:
    """Reports long waits of a launcher, or of a node before it has joined.

    Args:
        after_s: Duration in seconds after which a wait is reported; doubled after each report.
        say: Receives the lines.
    """

    def __init__(self, after_s: float, say: Callable[[str], None] = warned) -> None:
        self._began_s = time.monotonic()
        self._due_s = after_s
        self._say = say

    def waits(self, who: str, what: Callable[[], str]) -> None:
        """Report, if it is time, that `who` waits for what `what` returns; call it periodically."""
        waited_s = time.monotonic() - self._began_s
        if waited_s >= self._due_s:
            self._due_s = 2 * max(waited_s, self._due_s)
            self._say(f"{who} has waited {waited_s:.0f} s for {what()}")


def is_shown(line: str) -> bool:
    """Return whether a line of a node's log is for the user, so that a `Relay` shows it."""
    return text_of(line) is not None


class Relay:
    """Follows logs and shows new lines for the user.

    Args:
        logs: The logs that no terminal shows.
        patience_s: Duration in seconds after which nodes report waits; the lines of a chain are
            written within a fraction of it.
        show: Receives the lines.
        scheduler: Name of the scheduler.
    """

    def __init__(
        self,
        logs: Callable[[], Sequence[Path]],
        patience_s: float,
        show: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
        scheduler: str = "",
    ) -> None:
        self._logs = logs
        self._hold_s = patience_s / 2
        self._show = show
        self._scheduler = scheduler
        self._read: dict[Path, int] = {}
        self._looked_s = 0.0
        self._held: dict[str, tuple[float, list[str], str]] = {}  # by waiting node

    def skip(self, logs: Sequence[Path]) -> None:
        """Show nothing of what logs hold by now."""
        for log in logs:
            self._new(log)

    def look(self, last: bool = False) -> None:
        """Show new lines, at most twice a second; at once if this is the `last` call."""
        now = time.monotonic()
        if not last and now - self._looked_s < _LOOK_S:
            return
        self._looked_s = now
        for log in self._logs():
            for line in self._new(log):
                wait = _WAIT.match(text_of(line) or "")
                if wait is None:
                    self._show(line)
                else:
                    by_address = wait[2].startswith(_BY_ADDRESS)
                    whom = [self._scheduler] if by_address else re.split(", | and ", wait[2])
                    self._held[wait[1]] = (now, whom, line)
        if self._held and (
            last or now - min(held[0] for held in self._held.values()) > self._hold_s
        ):
            self._show_ends()

    def _show_ends(self) -> None:
        """Show waits for nodes that do not wait themselves; all waits, if they form a cycle."""
        held, self._held = self._held, {}
        ends = [line for _, whom, line in held.values() if not any(name in held for name in whom)]
        for line in ends or [line for _, _, line in held.values()]:
            self._show(line)

    def _new(self, log: Path) -> list[str]:
        try:
            with log.open("rb") as file:
                file.seek(self._read.get(log, 0))
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        self._read[log] = self._read.get(log, 0) + len(complete)
        lines = complete.decode(errors="replace").splitlines()
        return [line for line in lines if is_shown(line)]
