"""Comparison of the compression that a script requests with that of the job.

Compression is configured per job. A script may name an accelerator and its options, or use the
names of MXNet and GeoMX, which plugins declare (`Plugin.mxnet`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geomx.errors import ConfigError, near
from geomx.experiment.hops import hop
from geomx.live.member import Member
from geomx.plugin.registry import Registry

_KEY = "gradient_compression"
_NONE = "none"


def check_compression(member: Member, params: Mapping[str, Any]) -> None:
    """Check that the job of `member` has the requested compression.

    Args:
        member: A member of the job.
        params: ``type`` and its options: an accelerator's, or MXNet's and GeoMX's.

    Raises:
        ConfigError: It does not, or there is no such option; the message has the overrides.
    """
    wanted = dict(params)
    kind = str(wanted.pop("type", None))
    if kind == _NONE:
        _check_none(member)
        return
    name, wanted = _named(member.registry, kind, wanted)
    chosen = dict(member.selection.accel)
    if name not in chosen:
        overrides = [f"'+accel=[{name}]'"]
        overrides += [f"accel.{name}.{option}={value}" for option, value in wanted.items()]
        remedy = f"compression is a setting of the job: launch it with {' '.join(overrides)}"
        raise ConfigError(_KEY, kind, remedy)
    for option, value in wanted.items():
        if option not in chosen[name]:
            known = near(option, chosen[name])
            raise ConfigError(f"accel.{name}.{option}", value, f"no such option; {known}")
        if chosen[name][option] != value:
            remedy = f"the job runs with {chosen[name][option]}; launch it with this override"
            raise ConfigError(f"accel.{name}.{option}", value, remedy)


def _named(registry: Registry, kind: str, wanted: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the accelerator called `kind`, and `wanted` as options of it."""
    accelerators = registry.plugins("accel")
    if any(plugin.name == kind for plugin in accelerators):
        return kind, wanted
    known = {str(plugin.mxnet["type"]): plugin for plugin in accelerators if plugin.mxnet}
    if kind not in known:
        names = [_NONE, *known, *(plugin.name for plugin in accelerators)]
        raise ConfigError(_KEY, kind, f"no such type; {near(kind, names)}")
    plugin = known[kind]
    return plugin.name, {plugin.mxnet.get(each, each): value for each, value in wanted.items()}


def _check_none(member: Member) -> None:
    cluster, selection = member.spec.cluster, member.selection
    server, root = cluster.parties[0].server, cluster.global_servers[0]
    encoders = [
        label.partition(":")[0]
        for pair in ((server, root, "push"), (root, server, "pull"))
        for label, _ in selection.labelled("geomx_codec", link=hop(cluster, selection, *pair))
    ]
    if encoders:
        at_work = " and ".join(dict.fromkeys(encoders))
        remedy = (
            f"compression is a setting of the job, which runs with {at_work}: launch it without"
        )
        raise ConfigError(_KEY, _NONE, remedy)
