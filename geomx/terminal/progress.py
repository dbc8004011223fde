"""The progress bar of both modes: iterations, the run's own clock and the latest loss.

It is drawn on stderr. If that is not a terminal (a pipe, nohup, the log of a batch system), long
work prints a line from time to time; work that takes less than `FIRST_LINE_S` prints nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol, TypeVar

from geomx.terminal import units
from geomx.terminal.log import is_json, tell

if TYPE_CHECKING:
    from rich.progress import Progress

FIRST_LINE_S = 15.0
"""Seconds after which work without a terminal prints its first line of progress."""
MOST_PAUSE_S = 300.0
"""Upper limit of the growing intervals between such lines, in seconds."""

PATIENCE_S = 2.0
"""Seconds after which a stage of the preparation of a run is shown on a terminal."""

_quiet = ContextVar("quiet", default=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress progress bars in the block, because it is part of larger work."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


class Advance(Protocol):
    """Advances the bar by `n` iterations and shows the latest `fields` beside it.

    `time_s` is the run's own clock, `loss` a training loss; None leaves a field unchanged.
    """

    def __call__(self, n: int = 1, **fields: float | None) -> None:
        """Count `n` more iterations."""


@contextmanager
def progress(total: int | None, description: str, patience_s: float = 0.0) -> Iterator[Advance]:
    """Show a bar during the block.

    Args:
        total: Iterations of all workers together; None: unknown.
        description: The activity, in one or two words.
        patience_s: Seconds before the bar appears.

    Yields:
        The function to call after every iteration.
    """
    if _quiet.get():
        yield _silent
        return
    if is_json() or not sys.stderr.isatty():
        yield _Lines(total, description)
        return
    bar = _bar(known=total is not None)
    task = bar.add_task(description, total=total, status="")
    latest: dict[str, float] = {}

    due_s = time.monotonic() + patience_s
    with ExitStack() as shown:
        started = False

        def advance(n: int = 1, **fields: float | None) -> None:
            nonlocal started
            _keep(latest, fields)
            bar.update(task, advance=n, status=" · ".join(_told(latest)))
            if not started and time.monotonic() >= due_s:
                started = True
                shown.enter_context(bar)

        advance(0)
        yield advance


def _bar(known: bool) -> Progress:
    """Return the bar, with the time left if the end is known, else the time that has passed.

    What draws it is imported here: the nodes of live runs draw nothing.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}", style="dim"),
        TimeRemainingColumn() if known else TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


Item = TypeVar("Item")


def stage(items: Collection[Item], description: str) -> Iterator[Item]:
    """Iterate over `items`, with a bar if that takes long: a stage of the preparation of a run.

    Args:
        items: The items.
        description: The activity, in one to three words.

    Yields:
        The items.
    """
    with progress(len(items), description, PATIENCE_S) as advance:
        for done, item in enumerate(items, 1):
            yield item
            if done % 100 == 0:
                advance(100)


class _Lines:
    """Prints a line after `FIRST_LINE_S`, and again whenever the elapsed time has grown by half."""

    def __init__(self, total: int | None, description: str) -> None:
        self._total, self._description = total, description
        self._done = 0
        self._latest: dict[str, float] = {}
        self._began_s = time.monotonic()
        self._next_s = self._began_s + FIRST_LINE_S

    def __call__(self, n: int = 1, **fields: float | None) -> None:
        """See `Advance`."""
        self._done += n
        _keep(self._latest, fields)
        now_s = time.monotonic()
        if now_s >= self._next_s:
            spent_s = now_s - self._began_s
            self._next_s = now_s + min(max(spent_s / 2, FIRST_LINE_S), MOST_PAUSE_S)
            self._print(spent_s)

    def _print(self, spent_s: float) -> None:
        of = "" if self._total is None else f" of {self._total:,}"
        told = [f"{self._description}: {self._done:,}{of}", *_told(self._latest)]
        if self._total is not None and 0 < self._done < self._total:
            left_s = spent_s * (self._total - self._done) / self._done
            told.append(f"about {units.duration(left_s)} left")
        facts = {"done": self._done, "total": self._total, **self._latest}
        tell(", ".join(told), facts=facts)


def _keep(latest: dict[str, float], fields: Mapping[str, float | None]) -> None:
    for name, value in fields.items():
        if value is not None:
            latest[name] = value


def _told(latest: Mapping[str, float]) -> list[str]:
    return [
        f"at {units.duration(value)}" if name == "time_s" else f"{name} {units.decimals(value)}"
        for name, value in latest.items()
    ]


def _silent(n: int = 1, **fields: float | None) -> None:
    del n, fields
