"""What a training script may tell and ask beside its store: `geomx.report` and `geomx.sleep`."""

from __future__ import annotations

import os
import time

from geomx.errors import ConfigError, GeomxError
from geomx.kv.joining import current, following
from geomx.virtual import wire


def report(*, accuracy: float | None = None, loss: float | None = None) -> None:
    """Record how good the model is on data that it was not trained on.

    The first worker's reports are the lines of ``evaluations.csv``, with the time of the run; those
    of other workers, and of processes that follow the one with the worker's store, are ignored, and
    so are all in a script that runs alone.

    Args:
        accuracy: From 0 to 1; None if it is not known.
        loss: None if it is not known.

    Raises:
        ConfigError: The accuracy is not from 0 to 1.
        GeomxError: Neither is given, or this process has no store yet.
    """
    if accuracy is None and loss is None:
        raise GeomxError("geomx.report needs accuracy=, loss= or both")
    if accuracy is not None and not 0 <= accuracy <= 1:
        raise ConfigError("accuracy", accuracy, "must be from 0 to 1: a share, not per cent")
    store = current()
    if store is None and following():
        return
    if store is None:
        raise GeomxError("geomx.report needs a store: create it, or the optimizer, before")
    if store.global_rank == 0:
        told = [None if value is None else float(value) for value in (accuracy, loss)]
        store.member.evaluated(store.step, *told)


def sleep(seconds: float) -> None:
    """Wait: really in a live run, and in virtual time in a simulation, where it costs nothing.

    Args:
        seconds: 0 or more.

    Raises:
        ConfigError: It is less than 0, or not a number.
    """
    if not 0 <= seconds < float("inf"):
        raise ConfigError("seconds", seconds, "must be 0 or more")
    store = current()
    if store is not None:
        store.member.sleep(float(seconds))
    elif wire.SOCKET not in os.environ:  # a simulation has not begun before the store exists
        time.sleep(seconds)
