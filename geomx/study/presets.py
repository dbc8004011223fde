"""What presets, files of the group ``experiment``, set: overrides alone do not tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from geomx.config.compose import configuration
from geomx.errors import ConfigError
from geomx.results.words import key_of

PRESET = "experiment"


def mode_of(overrides: Sequence[str], mode: str) -> str:
    """Return the mode of a run.

    Args:
        overrides: Its overrides.
        mode: Where neither they nor a preset say one, or they are refused.
    """
    said = {key_of(override): override.partition("=")[2] for override in overrides}
    if "mode" in said or PRESET not in said:
        return said.get("mode", mode)
    try:
        return str(configuration(overrides)["mode"])
    except ConfigError:
        return mode


def network_alone(overrides: Sequence[str], file: Path) -> tuple[str, ...]:
    """Return overrides that choose the graph in a file as it is.

    A preset may set values of its own network, which would be refused or added to the file's.

    Args:
        overrides: Those of the run; what they say of its network does not count.
        file: A graph, as in ``network.json``.
    """
    chosen = f"network={file}"
    keys = [key_of(override) for override in overrides]
    if PRESET not in keys:
        return (chosen,)
    others = [w for w, key in zip(overrides, keys, strict=True) if key.split(".")[0] != "network"]
    try:
        values, own = (configuration(words)["network"] for words in ([*others, chosen], [chosen]))
    except ConfigError:
        return (chosen,)
    set_by_preset = (
        key
        for key, value in values.items()
        if value is not None and (key not in own or value != own[key])
    )
    return (chosen, *(f"~network.{key}" for key in set_by_preset))
