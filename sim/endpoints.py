"""What endpoints' work takes in one experiment: figures per kind of work, GPUs counted in."""

from __future__ import annotations

from geomx import _core
from geomx.cluster import Direction, NodeSpec
from geomx.experiment.costs import beside_device, served_on_device
from geomx.experiment.experiment import Experiment
from geomx.experiment.native_parts import part
from geomx.experiment.wiring import MOST_SHARD_ELEMENTS, hop
from geomx.options.costs import Figures


def handle(figures: Figures) -> _core.Costs:
    """The figures as the core takes them."""
    costs = _core.Costs()
    for work, (per_message_s, per_byte_s) in figures.items():
        costs.set(work, per_message_s, per_byte_s)
    return costs


def of_workers(experiment: Experiment, figures: Figures) -> Figures:
    """What workers' work takes, wherever their tensors lie.

    Args:
        experiment: Its workload says where.
        figures: What it takes with tensors in the host's memory.
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
    """What the work of servers takes that send to the WAN in `direction`.

    Args:
        experiment: Its runtime says where servers update and encode.
        figures: What it takes without a GPU.
        direction: Local servers push, global servers are pulled from.
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
