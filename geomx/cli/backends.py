"""What a plugin is in each of the two modes, from what it answers: ``geomx plugins``.

The plugin is built with its default options and asked about a small network, so that the table
shows what is there: parts in C++, kernels for GPUs, Python, and figures for the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from geomx import _core
from geomx.cluster import Cluster
from geomx.errors import GeomxError
from geomx.experiment.native_parts import part
from geomx.plugin.parts import BySize, ByTurns, Native
from geomx.plugin.registration import Choice, Plugin
from geomx.plugin.registry import Registry
from geomx.plugin.selection import Selection
from geomx.testing.worlds import cluster, links

SAMPLE = 65536
"""Elements of the shard that a codec is asked about."""

OWN, GENERAL = "own costs", "general costs"
"""What the simulator charges for codecs: what the plugin brings, or figures for all codecs."""


def backends(plugin: Plugin, registry: Registry) -> tuple[str, str]:
    """Describe what the simulator charges for a plugin, and what of it runs live.

    Args:
        plugin: Workloads and networks are Python in both modes, and nothing is said of them.
        registry: Where it and the plugins that it is made of are found.

    Returns:
        Two short texts: empty where there is nothing to say, the error where the plugin fails.
    """
    if plugin.kind not in ("sync", "accel"):
        return "", ""
    choice: Choice = (plugin.name, {})
    try:
        sync, accel = (choice, []) if plugin.kind == "sync" else (None, [choice])
        selection = registry.select(sync, accel)
        world = selection.cluster(cluster())
        found: dict[str, list[str]] = {}
        for kind, language in _parts(plugin, selection, world):
            if language not in found.setdefault(kind, []):
                found[kind].append(language)
    except GeomxError as error:
        return "", str(error)
    charged = "codec" in found or selection.answers("geomx_sim")
    own = OWN if selection.answers("geomx_sim") else GENERAL
    live = "; ".join(f"{kind}: {', '.join(languages)}" for kind, languages in found.items())
    return own if charged else "", live


def _parts(plugin: Plugin, selection: Selection, world: Cluster) -> Iterator[tuple[str, str]]:
    """(kind of part, what it is written in) of everything that a plugin answers with."""
    if plugin.kind == "sync":
        yield from _of_policy(selection, world)
    for link in links():
        for codec in selection.codecs(link):
            yield from (("codec", language) for language in _written_in(codec))
            if _core.CodecChain([part(codec, "codec")], SAMPLE).on_devices:
                yield "codec", "CUDA"
        for slicer in selection.slicers(link):
            yield from (("slicer", language) for language in _written_in(slicer))
    for _ in selection.partitioners(world):
        yield "partitioner", "Python"
    if not isinstance(selection.placement(world, ()), ByTurns):
        yield "placement", "Python"
    for _, overlay in selection.overlays(world):
        yield from (("overlay", language) for language in _written_in(overlay.site.native))
    if selection.optimizer() is not None:
        yield "optimizer", "Python"


def _of_policy(selection: Selection, world: Cluster) -> Iterator[tuple[str, str]]:
    yield "policy", "Python"
    policy = selection.sync_policy(world)
    for party in world.parties:
        side = policy.party_policy(world, party)
        yield from (("party", language) for language in _written_in(side))
    for site in policy.coordinators(world):
        yield from (("coordinator", language) for language in _written_in(site.native))


def _written_in(answer: Any) -> Iterator[str]:
    if isinstance(answer, BySize):
        for codec in (*answer.small, *answer.large):
            yield from _written_in(codec)
    elif answer is not None:
        yield "C++" if isinstance(answer, Native) else "Python"
