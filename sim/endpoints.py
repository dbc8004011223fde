"""What endpoints' work takes in one experiment: figures per kind of work, GPUs counted in."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

from geomx import _core
from geomx.cluster import Direction, NodeSpec
from geomx.experiment.costs import beside_device, served_on_device
from geomx.experiment.experiment import Experiment
from geomx.experiment.hops import hop
from geomx.experiment.native_parts import part
from geomx.experiment.wiring import MOST_SHARD_ELEMENTS
from geomx.options.costs import CodecCosts, Figures
from geomx.sim.numbers import known, number


def handle(figures: Figures) -> _core.Costs:
    """Return costs as the core takes them."""
    costs = _core.Costs()
    for work, (per_message_s, per_byte_s) in figures.items():
        costs.set(work, per_message_s, per_byte_s)
    return costs


def of_roles(experiment: Experiment, figures: Figures) -> dict[str, _core.Costs]:
    """Return the costs of nodes by role, as the core takes them.

    Args:
        experiment: The experiment.
        figures: Costs with tensors in the host's memory.

    Returns:
        Seconds per message and per byte, by kind of work.
    """
    return {
        "scheduler": handle(figures),
        "global_server": handle(of_servers(experiment, figures, "pull")),
        "standby": handle(of_servers(experiment, figures, "pull")),
        "server": handle(of_servers(experiment, figures, "push")),
        "worker": handle(of_workers(experiment, figures)),
    }


def of_workers(experiment: Experiment, figures: Figures) -> Figures:
    """Return the costs of workers, wherever their tensors are.

    Args:
        experiment: The experiment, whose workload names the device.
        figures: Costs with tensors in the host's memory.

    Returns:
        Seconds per message and per byte, by kind of work.
    """
    if not experiment.on_device:
        return figures
    worker = experiment.cluster.workers[0]
    server = experiment.cluster.party_of(worker).server
    push, push_share = _chain(experiment, worker, server, "push")
    pull, pull_share = _chain(experiment, server, worker, "pull")
    encoded = push.on_devices if push_share != 1 else None
    decoded = pull.decodes_on_devices if pull_share != 1 else None
    return beside_device(figures, experiment.costs.device, encoded, decoded)


def of_servers(experiment: Experiment, figures: Figures, direction: Direction) -> Figures:
    """Return the costs of servers that send over the WAN in `direction`.

    Args:
        experiment: The experiment, whose runtime options name the servers' device.
        figures: Costs without a GPU.
        direction: ``push`` for local servers, ``pull`` for global servers.

    Returns:
        Seconds per message and per byte, by kind of work.
    """
    if experiment.runtime.server_device == "cpu":
        return figures
    server = experiment.cluster.parties[0].server
    ends = server, experiment.cluster.global_servers[0]
    source, target = ends if direction == "push" else ends[::-1]
    chain, share = _chain(experiment, source, target, direction)
    there = chain.on_devices and share != 1
    return served_on_device(figures, experiment.costs.device, share if there else None)


def _chain(
    experiment: Experiment, source: NodeSpec, target: NodeSpec, direction: Direction
) -> tuple[_core.CodecChain, float]:
    """A hop's codecs for the largest tensor, and its bytes on the wire over those before."""
    largest = max(tensor.elements for tensor in experiment.workload.tensors)
    largest = min(largest, MOST_SHARD_ELEMENTS)
    link = hop(experiment.cluster, experiment.selection, source, target, direction)
    codecs = [part(codec, "codec") for codec in experiment.selection.codecs(link)]
    chain = _core.CodecChain(codecs, largest)
    return chain, chain.layout()[1] / (4 * largest)


def charged(accelerator: str, costs: CodecCosts, chosen: Collection[str]) -> CodecCosts:
    """Check what a plugin says that an accelerator's codecs take.

    Args:
        accelerator: Name of the accelerator.
        costs: What its codecs take, and where that was measured.
        chosen: Names of the chosen accelerators.

    Returns:
        The costs.

    Raises:
        ValueError: That accelerator is not chosen, or `costs` are no times.
    """
    known("chosen accelerator", accelerator, chosen)
    if not isinstance(costs, CodecCosts):
        raise ValueError(f"costs={costs!r} of {accelerator}: must be a geomx.CodecCosts")
    times: dict[str, Any] = {
        name: number(name, getattr(costs, name), lambda s: 0 <= s < math.inf, "0 or more seconds")
        for name in (field.name for field in fields(costs))
        if name != "basis"
    }
    return replace(costs, **times)
