"""Names of the variants of a study, or of the jobs of a sweep: in tables, and of folders."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from geomx.results.words import key_of

LONGEST = 200
"""Bytes of the name of a variant's folder, of 255 that file systems take."""


def folder_name(text: str) -> str:
    """Return the name of the folder of a variant with these overrides, always the same one.

    Args:
        text: The overrides.
    """
    name = re.sub(r"\W+", "_", text).strip("_") or "plain"
    if len(name.encode()) <= LONGEST:
        return name
    begin = name.encode()[: LONGEST // 2].decode(errors="ignore")
    return f"{begin}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def shown_name(own: Sequence[str], about: Mapping[str, Any], ran: bool) -> str:
    """Return ``sync + accel, accel`` and the other overrides of a variant.

    Args:
        own: Its own overrides.
        about: What ``summary.json`` says: its own, or if it has none that of its study.
        ran: Whether it is its own.
    """
    said = {key_of(override): override.partition("=")[2] for override in own}
    of_itself = ran or "experiment" not in said  # whose file may choose plugins
    sync, listed = said.pop("sync", None), said.pop("accel", None)
    if ran or sync is None:
        sync = about["sync"]["name"] if of_itself else None
    if ran or listed is None:
        names = [item["name"] for item in about["accel"]] if of_itself else []
    else:
        names = listed.strip("[]").replace(" ", "").split(",") if listed.strip("[]") else []
    shown = [each for each in (sync, ", ".join(names)) if each]
    others = (f"{key}={value}" for key, value in said.items())
    return " ".join([" + ".join(shown), *others]).strip()
