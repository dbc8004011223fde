"""The progress bar of both modes: iterations, the run's own clock and the latest loss.

It is drawn on stderr and only if that is a terminal, so that logs and pipes stay clean.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from geomx.report import units

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
def progress(total: int, description: str) -> Iterator[Advance]:
    """Show a bar while the body of the `with` statement runs.

    Args:
        total: Iterations of all workers together.
        description: What is going on, in one or two words.

    Yields:
        The function to call after every iteration.
    """
    if _quiet.get() or not sys.stderr.isatty():
        yield _silent
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
    latest: dict[str, str] = {}

    def advance(n: int = 1, **fields: float | None) -> None:
        for name, value in fields.items():
            if value is not None:
                latest[name] = _text(name, value)
        bar.update(task, advance=n, status=" · ".join(latest.values()))

    with bar:
        yield advance


def _text(name: str, value: float) -> str:
    if name == "time_s":
        return f"at {units.duration(value)}"
    return f"{name} {units.decimals(value)}"


def _silent(n: int = 1, **fields: float | None) -> None:
    del n, fields
