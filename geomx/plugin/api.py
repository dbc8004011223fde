"""The version of the plugin interface, and its public names.

``geomx.api_version`` covers the hooks, the objects that they return, and the C header of codecs.
The minor version increases when something is added, the major version when something that plugins
use changes or is removed. A plugin's module may declare the version that it was written for,
``geomx_api = "2.0"``; modules without a declaration are not checked. `PUBLIC` lists the public
names; all others may change at any time.
"""

from __future__ import annotations

from pathlib import Path

from geomx.errors import PluginError

api_version = "2.9"

PLUGINS: dict[str, tuple[str, ...]] = {
    "geomx": (
        "BySize", "Codec", "CodecCosts", "ConfigError", "Contribution", "Coordinator", "GeomxError",
        "Group", "Native", "NodeLost", "Optimizer", "Overlay", "OverlayReport", "Partitioner",
        "PartyModel", "PartySync", "Placement", "PluginError", "Refused", "Results", "RoundPolicy",
        "Shard", "Site", "Slicer", "SyncPolicy", "TrackedRun", "Tracker", "WanModel", "WorkerSync",
        "__version__", "api_version",
        "common_options", "cut_evenly", "hookimpl", "include_dir", "native_options",
        "overlay_order", "pack_bits", "report", "run", "sleep", "unpack_bits",
    ),
    "geomx.cluster": ("Cluster", "Link", "NodeSpec", "Party", "Path"),
    "geomx.events": ("Event", "Events"),
    "geomx.network.schedules": ("usual_mbps",),
    "geomx.network.topology": ("may_be_narrow", "with_global_servers", "with_global_servers_at"),
    "geomx.options.bounds": ("OneOf",),
    "geomx.testing": ("CheckFailed", "check_plugin"),
    "geomx.workload": ("Layer", "Model", "TensorSpec", "Workload"),
}  # fmt: skip
"""Modules, and the names in them that plugins may use; also the arguments of hooks (docs/hooks.md)
and the header ``geomx/codec.h``."""

SCRIPTS: dict[str, tuple[str, ...]] = {
    "geomx.kv": ("KVStore", "create"),
    "geomx.mxnet": ("KVStore", "create"),
    "geomx.sim": (
        "EdgeChanged",
        "NodeActed",
        "StepEnded",
        "Transfer",
        "TransferEnded",
        "ValueArrived",
        "Wan",
        "World",
        "transfer_times",
    ),
    "geomx.torch": ("Optimizer", "PartyHook", "TensorExchange"),
}
"""Modules, and the names in them that scripts use beside `run` and `Results`."""

PUBLIC = {**PLUGINS, **SCRIPTS}
"""All names that do not change without a new number."""


def include_dir() -> str:
    """Find the folder of the C header ``geomx/codec.h``, for codecs in shared libraries.

    Returns:
        The folder to give to a compiler's ``-I``.
    """
    return str(Path(__file__).parents[1] / "include")


def check_version(plugin: str, wanted: object) -> None:
    """Refuse a plugin that was written for another version of the plugin interface.

    Args:
        plugin: The plugin's module, as named in errors.
        wanted: The version that it declares; None for no declaration.

    Raises:
        PluginError: Another major version, a later minor version, or not a version.
    """
    if wanted is None:
        return
    major, _, minor = str(wanted).partition(".")
    ours = [int(number) for number in api_version.split(".")]
    if not (major.isdigit() and (minor or "0").isdigit()):
        raise PluginError(f"{plugin}: geomx_api={wanted!r} is no version such as {api_version!r}")
    if int(major) != ours[0] or int(minor or "0") > ours[1]:
        older = (int(major), int(minor or "0")) > tuple(ours)
        remedy = "update geomx" if older else "update the plugin"
        raise PluginError(
            f"{plugin}: written for version {wanted} of geomx's plugin interface, "
            f"this geomx has {api_version}; {remedy}"
        )
