"""Laws of a plugin's options, and of the slicers, partitioners and placements of its hooks."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from geomx.cluster import Cluster
from geomx.errors import ConfigError, GeomxError
from geomx.experiment.wiring import shards
from geomx.options.parsing import build_options
from geomx.plugin.parts import BySize, Native, Shard
from geomx.plugin.registration import Plugin
from geomx.plugin.selection import Selection
from geomx.plugin.sync import SyncPolicy
from geomx.testing.codecs import laws
from geomx.testing.finding import Broken, Laws
from geomx.testing.worlds import links, place
from geomx.workload import TensorSpec

CHANNELS = 63
"""The highest channel (docs/protocol.md)."""
TENSORS = tuple(TensorSpec(f"t{i}", (size,), i) for i, size in enumerate((1, 7, 4097, 120_000)))


def of_options(plugin: Plugin) -> Laws:
    """Yield laws on options: types, defaults, and error messages that name them as typed."""
    prefix = f"accel.{plugin.name}" if plugin.kind == "accel" else plugin.kind

    def defaults() -> None:
        made: Any = build_options(plugin.config, {}, prefix)
        fields = [field for field in dataclasses.fields(plugin.config) if field.init]
        build_options(plugin.config, {f.name: getattr(made, f.name) for f in fields}, prefix)

    def unknown() -> None:
        _refused(
            plugin, {"no_such_option": 1}, prefix, f"{prefix}.no_such_option=1: unknown option"
        )

    yield "all options have valid defaults", defaults
    yield "an unknown option is refused by name", unknown
    for field in dataclasses.fields(plugin.config):
        wrong = object() if field.init else None
        if wrong is not None and str(field.type) not in ("Any", "typing.Any"):
            text = f"a value of the wrong type for {field.name} is refused by name"
            starts = f"{prefix}.{field.name}="
            yield text, partial(_refused, plugin, {field.name: wrong}, prefix, starts)


def _refused(plugin: Plugin, options: dict[str, Any], prefix: str, starts: str) -> None:
    try:
        build_options(plugin.config, options, prefix)
    except ConfigError as error:
        if not str(error).startswith(starts):
            raise Broken("", f"a sentence that begins with {starts}", error) from error
        return
    raise Broken("", f"a sentence that begins with {starts}", "no refusal")


def of_answers(selection: Selection, kind: str, cluster: Cluster, seed: int) -> Laws:
    """Yield the laws of what the hooks of a plugin return.

    Args:
        selection: The plugin, with the default sync policy if it is no sync policy itself.
        kind: Kind of the plugin.
        cluster: Nodes and network for the hooks.
        seed: Seed of all values.
    """
    if kind == "sync":
        yield "every worker synchronises at its last step", partial(_last_step, selection, cluster)
        return
    seen: list[Any] = []
    for link in links():
        chain = list(selection.codecs(link))
        if chain and not any(_alike(chain, other) for other in seen):
            seen.append(chain)
            contributions = link.carries == "contributions" and link.exchange == "gradients"
            yield from laws(place(link), chain, seed, contributions)
        for slicer in selection.slicers(link):
            if not isinstance(slicer, Native):
                text = f"{place(link)}: slices cover the same rows, and are deterministic"
                yield text, partial(_cover, slicer, seed)
    yield (
        "shards cover every tensor, on existing servers",
        partial(_placed, selection, cluster),
    )


def _alike(one: list[Any], other: list[Any]) -> bool:
    def traits(chain: Sequence[Any]) -> list[Any]:
        return [
            c
            if isinstance(c, Native)
            else (c.bound, traits(c.small), traits(c.large))
            if isinstance(c, BySize)
            else (type(c), repr(vars(c)))
            for c in chain
        ]

    return one == other or traits(one) == traits(other)


def _cover(slicer: Any, seed: int) -> None:
    draw = np.random.default_rng(seed)
    for rows in (1, 8, 999, 1000, 50_001):
        one, other = copy.deepcopy(slicer), copy.deepcopy(slicer)
        for number in range(1, 4):
            half = 8 * int(draw.integers(0, rows // 16 + 1))
            given = [(0, half, 1, 0), (half, rows - half, 0, 0)] if half else [(0, rows, 0, 0)]
            cut = [tuple(item) for item in one.cut(given, 4.0, number)]
            where = f"{rows} rows in {len(given)}, round {number}"
            end = 0
            for first, count, _, channel in sorted(cut):
                if first != end or first % 8:
                    raise Broken(where, f"a slice that begins at {end}, a multiple of 8", first)
                if not 0 <= channel <= CHANNELS:
                    raise Broken(where, f"a channel from 0 to {CHANNELS}", channel)
                end = first + count
            if end != rows:
                raise Broken(where, f"{rows} rows", end)
            if [tuple(item) for item in other.cut(given, 4.0, number)] != cut:
                raise Broken(where, "the same slices from a copy", "different ones")


def _placed(selection: Selection, cluster: Cluster) -> None:
    servers = len(cluster.global_servers)
    placed = shards(cluster, selection, TENSORS)
    for tensor, pieces in zip(TENSORS, placed, strict=True):
        for _, _, server, _ in pieces:
            if not 0 <= server < servers:
                raise Broken(f"tensor {tensor.name}", f"a server from 0 to {servers - 1}", server)
    if shards(cluster, selection, TENSORS) != placed:
        raise Broken("two calls", "the same servers", "different ones; nodes would not agree")
    for partitioner in selection.partitioners(cluster):
        cut = partitioner.cut(TENSORS[-1], 0, [Shard(0, 60_000), Shard(60_000, 60_000, 3)])
        if sum(piece.elements for piece in cut) != 120_000:
            raise Broken("a tensor that was cut before", 120_000, cut)


def _last_step(selection: Selection, cluster: Cluster) -> None:
    policy: SyncPolicy = selection.sync_policy(cluster)
    if policy.coordinators(cluster):
        return  # the end depends on the run
    for steps in (1, 2, 7):
        for worker in cluster.workers:
            side = policy.worker(cluster, worker, steps)
            said = [(side.finished(step), side.after_step(step)) for step in range(steps)]
            ends = [step for step, (finished, _) in enumerate(said) if finished]
            if ends[:1] != [steps - 1]:
                raise Broken(f"{steps} steps, {worker.name}", f"the end at {steps - 1}", ends)
    for value in (policy.push_scale(cluster, cluster.workers[0]),):
        if not np.isfinite(value):
            raise GeomxError(f"push_scale is {value}")
