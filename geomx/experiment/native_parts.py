"""Converts codecs, slicers and optimizers that plugins return to handles of the core.

A `Native` is looked up by name or loaded from a shared library. Any other object is a Python object
that the core calls; its handle contains the plugin's label for errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

from geomx import _core
from geomx.cluster import Cluster
from geomx.errors import ConfigError, PluginError
from geomx.plugin.calling import one_line
from geomx.plugin.parts import BySize, Native, common_options
from geomx.plugin.selection import Selection


@lru_cache(maxsize=256)
def _native(kind: str, name: str, options: tuple[tuple[str, float], ...]) -> Any:
    make = {"codec": _core.native_codec, "slicer": _core.native_slicer}[kind]
    return make(name, dict(options))


@lru_cache(maxsize=256)
def _library(path: str, options: tuple[tuple[str, float], ...], label: str) -> Any:
    return _core.library_codec(path, dict(options), label)


@lru_cache(maxsize=256)
def _by_size(bound: int, small: tuple[Any, ...], large: tuple[Any, ...]) -> Any:
    return _core.codec_by_size(bound, list(small), list(large))


def part(answer: Any, kind: str, label: str = "") -> Any:
    """Return the result of a hook as a handle of the core.

    Equal natives share a handle. The core encodes a value once for all links with equal handles.

    Args:
        answer: The result of `geomx_codec` or `geomx_slicer`.
        kind: ``codec`` or ``slicer``.
        label: The plugin, as named in errors.

    Raises:
        PluginError: There is no such native part, or it refuses its options.
    """
    if isinstance(answer, Native):
        whose = f"{label}: " if label else ""
        if answer.kind != kind:
            raise PluginError(f"{whose}native {answer.name} is a {answer.kind}, not a {kind}")
        options = tuple(sorted(answer.options.items()))
        try:
            if answer.library:
                return _library(answer.library, options, f"{whose}{answer.name}")
            return _native(kind, answer.name, options)
        except (TypeError, ValueError) as error:
            raise PluginError(f"{whose}{kind} {answer.name}: {error}") from error
    if isinstance(answer, BySize):
        small, large = (
            tuple(part(codec, kind, label) for codec in codecs)
            for codecs in (answer.small, answer.large)
        )
        return _by_size(answer.bound, small, large)
    make = _core.python_codec if kind == "codec" else _core.python_slicer
    return make(answer, label)


def parts_without_snapshots(cluster: Cluster, selection: Selection) -> Iterator[str]:
    """Yield the plugins, as named in errors, with parts on servers whose state cannot be written.

    These are parts in Python or in shared libraries. The log of a node that has one is not replaced
    by snapshots of the node (docs/journal.md), and therefore grows as long as the node runs.
    """
    policy = selection.sync_policy(cluster)
    up = [
        hop
        for party in cluster.parties
        for hop in ((party.workers[0], party.server), (party.server, cluster.global_servers[0]))
    ]
    links = [cluster.link(source, target, "push") for source, target in up]
    links += [cluster.link(source, target, "pull") for target, source in up]
    for link in (replace(link, exchange=policy.exchange) for link in links):
        for hook in ("geomx_codec", "geomx_slicer"):
            for label, answer in selection.labelled(hook, link=link):
                if not _has_snapshots(answer):
                    yield label
    sides: list[object] = [site.native for site in policy.coordinators(cluster)]
    sides += [policy.party_policy(cluster, party) for party in cluster.parties]
    if any(side is not None and not isinstance(side, Native) for side in sides):
        yield selection.sync_label(cluster)
    for group, overlay in selection.overlays(cluster):
        if not isinstance(overlay.site.native, Native):
            yield selection.overlay_label(group.root)


def _has_snapshots(answer: Any) -> bool:
    if isinstance(answer, BySize):
        return all(map(_has_snapshots, (*answer.small, *answer.large)))
    return isinstance(answer, Native) and not answer.library


@contextmanager
def blaming(label: str, answer: object) -> Iterator[None]:
    """Attribute exceptions of a plugin's object, while it is converted, to the plugin.

    Args:
        label: Plugin and hook, as named in errors.
        answer: The object.

    Raises:
        PluginError: The object raised an exception.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        raise PluginError(f"{label}: {type(answer).__name__}: {one_line(error)}") from error


_ANY_SIZE = 1 << 16  # elements; whether a native codec is linear does not depend on it


def linear_traits(codec: Any) -> str:
    """Return a description by which linear codecs are compared; ``none`` for other codecs."""
    if isinstance(codec, BySize):
        kinds = [linear_traits(each) for each in (*codec.small, *codec.large)]
        linear = [kind for kind in kinds if kind != "none"]
        return f"{', '.join(linear)} from {codec.bound} elements on" if linear else "none"
    if isinstance(codec, Native):
        handle = part(codec, "codec")
        linear_chain = _core.CodecChain([handle], _ANY_SIZE).linear
        return f"{codec.name} {dict(codec.options)}" if linear_chain else "none"
    if not getattr(codec, "linear", False):
        return "none"
    return f"{type(codec).__name__} {getattr(codec, '__dict__', {})}"


def encodings_are_added(chains: Sequence[Sequence[tuple[str, Any]]]) -> list[list[bool]]:
    """Return for each chain of codecs, by sizes of a shard, whether servers add what it encodes.

    They do so where all codecs that encode the shard are linear, and decode what arrives otherwise.

    Args:
        chains: The codecs of some links, with their plugins' labels.

    Returns:
        A list for each chain, with an entry for each size from which codecs may differ.
    """
    codecs = [codec for chain in chains for _, codec in chain]
    bounds = [codec.bound for codec in codecs if isinstance(codec, BySize)]
    sizes = sorted({_ANY_SIZE, *(max(1, n) for bound in bounds for n in (bound - 1, bound))})
    handles = [[part(codec, "codec", label) for label, codec in chain] for chain in chains]
    return [[_core.CodecChain(each, size).linear for size in sizes] for each in handles]


def optimizers(selection: Selection) -> list[_core.OptimizerFactory]:
    """Return the optimizers of plugins as handles of the core."""
    brought = selection.optimizer()
    if brought is None:
        return []
    name, label, prototype = brought
    return [_core.python_optimizer(name, prototype, label)]


def state_refusal(selection: Selection, optimizer: str, state: bytes, elements: int) -> str:
    """Return why an optimizer on global servers cannot continue from a state; empty if it can.

    Args:
        selection: The plugins, which may bring the optimizer.
        optimizer: The optimizer, as of `geomx.plugin.parts.optimizer_text`.
        state: What one of the servers saved of a shard.
        elements: Number of elements of the shard.
    """
    try:
        _core.Optimizer(optimizer, 0, optimizers(selection)).load(state, elements)
    except RuntimeError as error:
        return str(error)
    return ""


OF_SCRIPT: Mapping[str, Any] = {"name": "script", "learning_rate": 0.0}
"""The optimizer that sync policies are given if only the worker's script knows the real one."""


def training_optimizers(
    cluster: Cluster, selection: Selection, optimizer: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the optimizers of global servers, and of workers after each local step.

    Args:
        cluster: The nodes of the experiment.
        selection: Its sync policy decides; the optimizer of a plugin replaces `optimizer`.
        optimizer: The workload's optimizer.

    Returns:
        The optimizer of global servers, and that of workers; None for no updates.

    Raises:
        ConfigError: The core does not have the optimizer.
    """
    chosen = chosen_optimizers(cluster, selection, optimizer)
    for one in chosen:
        check_optimizer(selection, one)
    return chosen


def chosen_optimizers(
    cluster: Cluster, selection: Selection, optimizer: Mapping[str, Any]
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return `training_optimizers` without checks, for workers with their own local steps."""
    policy = selection.sync_policy(cluster)
    brought = selection.optimizer()
    if brought is not None:
        optimizer = {"name": brought[0], **common_options(optimizer)}
    return (
        policy.global_optimizer(optimizer, len(cluster.workers)),
        policy.local_optimizer(optimizer),
    )


def check_optimizer(selection: Selection, optimizer: Mapping[str, Any] | None) -> None:
    """Check that the core or a plugin has an optimizer.

    Args:
        selection: The selected plugins.
        optimizer: Its name and options; None for none.

    Raises:
        ConfigError: There is no such optimizer, or it lacks an option.
    """
    brought = selection.optimizer()
    known = [*_core.optimizers(), *([brought[0]] if brought is not None else [])]
    if optimizer is not None and optimizer["name"] not in known:
        raise ConfigError(
            "workload.optimizer", optimizer["name"], f"one of {', '.join(_core.optimizers())}"
        )
