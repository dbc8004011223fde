"""Lists of defaults in files of the user's: what is wrong with them, in one sentence.

Hydra raises errors of several kinds for them, of which some name no file, and recurses without end
where files choose each other.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra._internal import defaults_list

from geomx.errors import ConfigError
from geomx.plugin.registration import KINDS, LISTS

FORM = "'- override /sync: NAME', '- override /accel: [NAME]'"
"""What plugins are chosen by."""

_HEADER = "# @package _global_"


def check_defaults(content: Any, group: str, file: Path) -> None:
    """Check the form of the list of defaults of a file.

    Args:
        content: Of the file.
        group: Of the file.
        file: Its path.

    Raises:
        ConfigError: Hydra would fail at it.
    """
    listed = content.get("defaults", []) if isinstance(content, Mapping) else []
    if not isinstance(listed, list):
        raise _wrong(group, file, f"defaults must be a list: {FORM}")
    for item in listed:
        pair = next(iter(item.items())) if isinstance(item, dict) and len(item) == 1 else None
        key, chosen = pair or ("", item)
        names = chosen if isinstance(chosen, list) and pair else [chosen]
        if not all(isinstance(name, str) or (pair and name is None) for name in names):
            raise _wrong(group, file, f"{item} in its list of defaults must be one of {FORM}")
        kind = str(key).removeprefix("override ").strip("/ ")
        if pair and not isinstance(chosen, str) and kind in KINDS and kind not in LISTS:
            raise _wrong(group, file, f"{item} in its list of defaults must choose one name")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise _wrong(group, file, f"{item} in its list of defaults lists {twice} twice")


def _wrong(group: str, file: Path, why: str) -> ConfigError:
    return ConfigError(group or "configuration", file.stem, f"in {file}, {why}")


def without_header(group: str, key: str) -> str | None:
    """Return what to say of a file whose values have become those of its group.

    Args:
        group: Of the file.
        key: That Hydra does not know.

    Returns:
        The remedy; None if that is not the reason.
    """
    if key != group.partition("/")[0]:
        return None
    return f"the first line must be '{_HEADER}', without which its values are those of a key {key}"


def misfit(message: str) -> ConfigError | None:
    """Return the error for Hydra's message about an item of a list of defaults; None for others."""
    if twice := re.match(r"Multiple values for ([^.]+)\.", message):
        wanted = f"in a list of defaults, choose it by '- override /{twice[1]}: NAME'"
        return ConfigError(twice[1], "", f"is chosen once more than it can be; {wanted}")
    found = re.match(r"In '(?:(.+)/)?([^/']+)': Could not override '([^']*)'", message)
    if found is None or found[1] is None:
        return None
    wanted = f"a group that is overridden begins with a slash, as in {FORM}"
    why = f"its list of defaults overrides {found[3]}, which there is not; {wanted}"
    return ConfigError(found[1], found[2], why)


def circle(error: RecursionError) -> ConfigError | None:
    """Return the error for files whose lists of defaults choose each other; None for others."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    ours = [frame for frame in frames if frame.f_globals is vars(defaults_list)]
    roots = [frame.f_locals["root"] for frame in ours if "root" in frame.f_locals]
    if not roots:
        return None
    group, _, name = str(roots[-1].node.get_config_path()).rpartition("/")
    return ConfigError(group, name, "its file is chosen again by its own list of defaults")
