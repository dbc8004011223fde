"""A cache of constant arrays that take a while to compute, in the user's cache folder."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def folder() -> Path:
    """Return the folder of the cache: ``$XDG_CACHE_HOME/geomx``, by default ``~/.cache/geomx``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "geomx"


def kept(name: str, make: Callable[[], Mapping[str, NDArray[Any]]]) -> Mapping[str, NDArray[Any]]:
    """Return the arrays of `make`, from the cache if they are there.

    Args:
        name: Name of the file without suffix; it must change whenever `make` changes its result.
        make: Computes the arrays.

    Returns:
        Arrays by name.
    """
    path = folder() / f"{name}.npz"
    # A missing or damaged file is treated as a cache miss.
    broken = (OSError, ValueError, EOFError, zipfile.BadZipFile)
    with contextlib.suppress(*broken), np.load(path, allow_pickle=False) as file:
        return dict(file)
    arrays = make()
    # Other processes may do the same at the same time: the file must appear at once and complete.
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            np.savez(file, **arrays)
        os.replace(draft, path)
    except OSError:  # the folder is read-only, or the disk is full
        with contextlib.suppress(OSError):
            draft.unlink()
    return arrays
