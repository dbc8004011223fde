"""The progress bar of both modes: iterations, the run's own clock and the latest loss.

It is drawn on stderr. Where that is no terminal (a pipe, nohup, a batch system's log), long work
says in a line now and then how far it is; what takes less than `FIRST_LINE_S` says nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from geomx.terminal import units

FIRST_LINE_S = 15.0
"""Seconds after which work that is not on a terminal says how far it is."""
MOST_PAUSE_S = 300.0
"""Its lines come ever more rarely, but no more rarely than this."""

PATIENCE_S = 2.0
"""Seconds that a stage of preparing a run may take before a terminal shows it."""

_quiet = ContextVar("quiet", default=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Show no bar while the body of the `with` statement runs: it is a part of something larger."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


class Advance(Protocol):
    """Moves the bar by `n` iterations and shows the latest `fields` beside it.

    `time_s` is the run's own clock, `loss` a training loss; None leaves a field as it was.
    """

    def __call__(self, n: int = 1, **fields: float | None) -> None:
        """Count `n` more iterations."""


@contextmanager
def progress(total: int, description: str, patience_s: float = 0.0) -> Iterator[Advance]:
    """Show a bar while the body of the `with` statement runs.

    Args:
        total: Iterations of all workers together.
        description: What is going on, in one or two words.
        patience_s: What is over within this time shows nothing on a terminal either.

    Yields:
        The function to call after every iteration.
    """
    if _quiet.get():
        yield _silent
        return
    if not sys.stderr.isatty():
        yield _Lines(total, description)
        return
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[status]}", style="dim"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
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


Item = TypeVar("Item")


def stage(items: Collection[Item], description: str) -> Iterator[Item]:
    """The items, one after the other, with a bar if they are many: a part of what prepares a run.

    Args:
        items: What is gone through.
        description: What is done with them, in one to three words.
    """
    with progress(len(items), description, PATIENCE_S) as advance:
        for done, item in enumerate(items, 1):
            yield item
            if done % 100 == 0:
                advance(100)


class _Lines:
    """Prints a line after `FIRST_LINE_S`, and again whenever the time spent has grown by half."""

    def __init__(self, total: int, description: str) -> None:
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
        told = [f"{self._description}: {self._done:,} of {self._total:,}", *_told(self._latest)]
        if 0 < self._done < self._total:
            left_s = spent_s * (self._total - self._done) / self._done
            told.append(f"about {units.duration(left_s)} left")
        print(", ".join(told), file=sys.stderr, flush=True)


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
