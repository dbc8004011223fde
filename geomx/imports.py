"""Imports without searches for reference cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

_process = SimpleNamespace(keeps=False)


def keep() -> None:
    """Freeze what later blocks import (`gc.freeze`), in a process of geomx's own.

    The search for garbage at the end of the process then omits it too, which would take as long as
    half of the imports. Programs that only use geomx must be able to free what they have made.
    """
    _process.keeps = True


@contextmanager
def without_collections() -> Iterator[None]:
    """Disable Python's garbage collector during the block, which imports modules.

    Imports create many objects that stay, and hardly any garbage. Searching for it takes a tenth of
    a process's start, and a search that is only put off takes as long afterwards. Therefore the
    objects also join the oldest generation, which the collector seldom searches. Where the program
    has frozen objects (`gc.freeze`), they stay frozen, and the new objects stay young.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if _process.keeps:
            gc.freeze()
        elif not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()  # to the oldest generation, wherever they were
        gc.enable()
