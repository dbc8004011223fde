"""The words of a run, its overrides: ``words`` of ``summary.json``."""

from __future__ import annotations

SEARCHED = "hydra.searchpath"
"""Key of the folders in which Hydra looks for files of the user's."""


def key_of(override: str) -> str:
    """Return the key of an override: ``sync`` for ``+sync=x``."""
    return override.partition("=")[0].lstrip("+~")


def of_one_run(override: str) -> bool:
    """Return whether an override says where or how a run is made, rather than what it is.

    These are the keys of Hydra, but for the folders of the user's files.
    """
    key = key_of(override)
    return key.split(".")[0] == "hydra" and key != SEARCHED
