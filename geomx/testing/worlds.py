"""Small networks and experiments to check a plugin in, for both modes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

from geomx.cluster import Cargo, Cluster, Link
from geomx.errors import ConfigError
from geomx.experiment.build import build_experiment
from geomx.experiment.experiment import Experiment
from geomx.network.files import read_network
from geomx.plugin.registration import Choice
from geomx.plugin.registry import Registry
from geomx.results.results import Results
from geomx.runner import execute

FAST = {"uplink_mbps": 1000, "downlink_mbps": 1000}
NETWORK: dict[str, Any] = {
    "name": "check",
    "central": {"name": "hub", "global_servers": 2, **FAST},
    "parties": {"east": {"workers": 2, **FAST}, "west": {"workers": 1, **FAST}},
    "delay_ms": 2,
    "lan": {"mbps": 10000, "delay_ms": 0.05},
}
SMALLEST: dict[str, Any] = {
    **NETWORK,
    "central": {"name": "hub", **FAST},
    "parties": {"east": {"workers": 1, **FAST}, "west": {"workers": 1, **FAST}},
}


def cluster() -> Cluster:
    """Return the nodes of `NETWORK`."""
    return read_network(NETWORK)


def links() -> list[Link]:
    """Return every kind of link that hooks may be called with."""
    world = cluster()
    party, root = world.parties[0], world.global_servers[0]
    server, worker = party.server, party.workers[0]
    hops = [
        (server, root, "push", ("contributions",)),
        (root, server, "pull", get_args(Cargo)[1:]),
        (worker, server, "push", ("contributions",)),
        (server, worker, "pull", get_args(Cargo)[1:]),
    ]
    made = [
        replace(world.link(source, target, direction, cargo), exchange=exchange)  # type: ignore[arg-type]
        for source, target, direction, cargoes in hops
        for cargo, exchange in product(cargoes, ("gradients", "parameters"))
    ]
    going_up = [link for link in made if link.kind == "wan" and link.direction == "push"]
    return [*made, *(replace(link, summed=True) for link in going_up)]


def place(link: Link) -> str:
    """Return a kind of link in words."""
    summed = ", summed" if link.summed else ""
    return f"{link.kind} {link.direction} of {link.carries} ({link.exchange}{summed})"


def together(registry: Registry, names: Sequence[str]) -> tuple[str, ...]:
    """Return as many accelerators as can be combined: in order, all that those before allow.

    Args:
        registry: The installed plugins.
        names: Names of accelerators.
    """
    chosen: tuple[str, ...] = ()
    for name in names:
        selection = registry.select(None, [(each, {}) for each in (*chosen, name)])
        try:
            world = selection.cluster(cluster())
            selection.overlays(world), selection.placement(world, [])
        except ConfigError:
            continue
        chosen = (*chosen, name)
    return chosen


def build(
    registry: Registry,
    sync: Choice | None = None,
    accel: Sequence[Choice] = (),
    workload: Choice = ("tiny", {}),
    network: Mapping[str, Any] = NETWORK,
    **options: Any,
) -> Experiment:
    """Build an experiment.

    Args:
        registry: The installed plugins.
        sync: Name and options of the sync algorithm; None: the default.
        accel: Names and options of the accelerators.
        workload: Name and options of the workload.
        network: Content of a network file.
        options: Further keys of the experiment.

    Raises:
        GeomxError: As for any experiment.
    """
    content = {
        "network": dict(network),
        "sync": None if sync is None else sync[1],
        "accel": dict(accel),
        "workload": workload[1],
        "iterations": 6,
        "evaluate_every": 3,
        **options,
    }
    return build_experiment(content, sync and sync[0], workload[0], [], registry)


def run(folder: Path, experiment: Experiment) -> Results:
    """Run `experiment` with its files in a new subfolder of `folder`."""
    number = len(list(folder.iterdir()))
    # No law reads the trace, which would take a third of the time.
    untraced = replace(experiment, sim=replace(experiment.sim, max_spans=0))
    return execute(untraced, folder / str(number))
