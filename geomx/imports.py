"""Imports without searches for reference cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()  # to the oldest generation, wherever they were
        gc.enable()
