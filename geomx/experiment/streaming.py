"""Divides large tensors of training scripts so finely that their pieces are under way all at once.

A server adds, updates and answers each shard by itself. While one piece of a tensor is still being
received, earlier ones are thus summed, while they are in the processor's cache, and sent on.
Scripts that are simulated are divided alike, so that times and bytes are those of a launch.
"""

from __future__ import annotations

from collections.abc import Sequence

from geomx.cluster import Cluster
from geomx.experiment.rounds import close_early
from geomx.experiment.wiring import PlacedShard
from geomx.options.schema import FaultOptions
from geomx.plugin.selection import Selection

STREAMED_ELEMENTS = 2**18
"""Elements of a shard of `streamed`: 1 MiB, which a core's cache holds, and whole frames."""


def streams(selection: Selection, cluster: Cluster, faults: FaultOptions) -> bool:
    """Return whether it makes no difference to any value how finely tensors are divided.

    Codecs, slicers, overlays, parties' policies and optimizers of plugins see shards, and where
    rounds close without parties that are late, each shard has contributors of its own.

    Args:
        selection: The plugins.
        cluster: The nodes.
        faults: Treatment of lost nodes.
    """
    hooks = ("codec", "slicer", "overlay", "optimizer")
    if any(selection.answers(f"geomx_{hook}") for hook in hooks):
        return False
    if close_early(cluster, selection, faults):
        return False
    policy = selection.sync_policy(cluster)
    return all(policy.party_policy(cluster, party) is None for party in cluster.parties)


def answered_whole(selection: Selection, cluster: Cluster, faults: FaultOptions) -> bool:
    """Return whether all of a push has left when the value after it arrives.

    Best-effort slices may leave later, and a round that closes early ends without the slowest.

    Args:
        selection: The plugins.
        cluster: The nodes.
        faults: Treatment of lost nodes.
    """
    return not (selection.answers("geomx_slicer") or close_early(cluster, selection, faults))


def streamed(shards: Sequence[PlacedShard]) -> list[PlacedShard]:
    """Divide large shards, so that a server adds and sends the first piece while others arrive.

    Args:
        shards: The shards of a tensor.

    Returns:
        Its shards, each on the same global server and with the same priority as before.
    """
    return [
        (first, min(STREAMED_ELEMENTS, offset + elements - first), server, priority)
        for offset, elements, server, priority in shards
        for first in range(offset, offset + elements, STREAMED_ELEMENTS)
    ]
