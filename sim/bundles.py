"""How many frames of a large shard are simulated as one event."""

from __future__ import annotations

from collections.abc import Sequence

from geomx.experiment.experiment import Experiment
from geomx.options.schema import RuntimeOptions
from geomx.sim.wire import is_fluid

MOST_FRAMES = 256
"""Frames of the usual size in one event: 64 MiB, the most that a message can hold."""


def frames_per_event(
    experiment: Experiment, shards: Sequence[Sequence[tuple[int, int, int, int]]]
) -> int:
    """Return the number of frames that may be sent as one event, unless slicers restrict it.

    More than one only if nothing can come between two frames: no other priorities and no orders of
    a coordinator, and no jitter, which is drawn for every message. Models of the network that
    others bring see every frame.

    Args:
        experiment: The experiment.
        shards: Of each tensor: (offset, elements, global server, priority).
    """
    cluster = experiment.cluster
    priorities = {piece[3] for pieces in shards for piece in pieces}
    jitter = any("jitter_ms" in data for _, _, data in cluster.graph.edges(data=True))
    alike = (
        experiment.sim.bundle
        and is_fluid(experiment)
        and not experiment.numerics
        and experiment.runtime.frame_bytes == RuntimeOptions().frame_bytes
        and len(priorities) == 1
        and not experiment.selection.coordinators(cluster)
        and not jitter
    )
    return MOST_FRAMES if alike else 1
