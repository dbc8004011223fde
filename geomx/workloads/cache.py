"""Arrays that are always the same and take a while to make, kept in the user's cache folder."""

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
    """Where they lie: ``$XDG_CACHE_HOME/geomx``, by default ``~/.cache/geomx``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "geomx"


def kept(name: str, make: Callable[[], Mapping[str, NDArray[Any]]]) -> Mapping[str, NDArray[Any]]:
    """What `make` returns, from the last time if there was one.

    Args:
        name: Of the file, without suffix; another whenever `make` would return something else.
        make: Makes the arrays.
    """
    path = folder() / f"{name}.npz"
    # Nothing there, or something broken: then as if nothing were kept.
    broken = (OSError, ValueError, EOFError, zipfile.BadZipFile)
    with contextlib.suppress(*broken), np.load(path, allow_pickle=False) as file:
        return dict(file)
    arrays = make()
    # Other processes make and look for the file meanwhile: it appears at once and whole.
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            np.savez(file, **arrays)
        os.replace(draft, path)
    except OSError:  # a folder that cannot be written, a disk that is full
        with contextlib.suppress(OSError):
            draft.unlink()
    return arrays
