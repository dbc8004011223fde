"""Events of a scenario in live runs: which can happen there, and bandwidths as traces of edges."""

from __future__ import annotations

from dataclasses import replace

from geomx.cluster import Cluster
from geomx.errors import ConfigError
from geomx.experiment.experiment import Experiment
from geomx.network.schedules import EDGE_CHANGES
from geomx.scenario import ScenarioEvent
from geomx.scenario.events import ANY, PLACES
from geomx.scenario.places import Edge, find_edge

UNLIMITED_MBPS = 1e6
"""Stands for no limit until a scenario sets a bandwidth, as an edge with a trace has one."""


def check_live_events(experiment: Experiment) -> None:
    """Check that a live run can carry out the events of its scenario.

    Raises:
        ConfigError: It cannot; the message names the event.
    """
    if experiment.mode == "sim":
        return
    workers = {ANY + "worker", *(node.name for node in experiment.cluster.workers)}
    for index, event in enumerate(experiment.scenario):
        key = f"scenario[{index}].{event.what}"
        if event.what == "traffic" and experiment.emulate != "netns":
            remedy = "live runs have traffic of others with emulate=netns only; or choose mode=sim"
            raise ConfigError(key, list(event.targets), remedy)
        if event.what == "slow" and event.slow not in workers:
            raise ConfigError(key, event.slow, "live runs slow workers only; choose mode=sim")
        if event.what == "slow" and not experiment.runtime.pace:
            remedy = "needs runtime.pace=true, by which a live worker's steps take longer"
            raise ConfigError(key, event.slow, remedy)
        if event.what == "set":
            _check_set(experiment, event, key)
        if event.what in PLACES and event.at_iteration is not None:
            remedy = "live runs change the network at_s only; or choose mode=sim"
            raise ConfigError(f"scenario[{index}].at_iteration", event.at_iteration, remedy)


def of_live_script(experiment: Experiment) -> Experiment:
    """Return the experiment of a script that is launched, in live mode.

    Args:
        experiment: Composed in any mode.

    Raises:
        ConfigError: A live run cannot carry out its scenario, or it needs an experiment of geomx's
            own: workers that are training scripts have no pace of geomx, and a program acts on a
            simulation.
    """
    if experiment.mode == "sim":
        network = with_bandwidths(experiment.cluster, experiment.scenario)
        experiment = replace(experiment, mode="live", cluster=network)
    for program in experiment.programs:
        remedy = "acts on the simulated world, and training scripts run live"
        raise ConfigError("scenario", program.name, remedy)
    for index, event in enumerate(experiment.scenario):
        if event.what == "slow":
            key, remedy = f"scenario[{index}].{event.what}", "is for experiments, not for scripts"
            raise ConfigError(key, list(event.targets), remedy)
    check_live_events(experiment)
    return experiment


def _check_set(experiment: Experiment, event: ScenarioEvent, key: str) -> None:
    if experiment.emulate == "none":
        raise ConfigError(key, list(event.targets), "needs emulate=shaper or emulate=netns")
    for name in ("delay_ms", "loss"):
        if (value := getattr(event, name)) is not None and experiment.emulate != "netns":
            remedy = "live runs set it with emulate=netns only; or choose mode=sim"
            raise ConfigError(f"{key}.{name}", value, remedy)
    if event.every_s is not None and event.mbps is not None:
        remedy = "live runs set bandwidths at at_s only; choose mode=sim"
        raise ConfigError(f"{key}.every_s", event.every_s, remedy)


def with_bandwidths(cluster: Cluster, events: tuple[ScenarioEvent, ...]) -> Cluster:
    """Return the cluster with the bandwidths that a scenario sets as traces of its edges.

    Every process of a live run knows the traces, so that all change an edge at the same instant.

    Args:
        cluster: The network.
        events: The scenario.

    Returns:
        The cluster with another graph.

    Raises:
        ConfigError: A bandwidth ends at 0, or of an edge that changes by itself.
    """
    sets: dict[Edge, dict[float, float]] = {}
    keys: dict[Edge, str] = {}
    numbered = [(n, e) for n, e in enumerate(events) if e.set is not None and e.mbps is not None]
    for index, event in sorted(numbered, key=lambda pair: pair[1].at_s or 0.0):
        assert event.set is not None and event.mbps is not None
        for source, target in (event.set, event.set[::-1]):
            edge = find_edge(cluster.graph, source, target)
            sets.setdefault(edge, {})[event.at_s or 0.0] = event.mbps
            keys[edge] = f"scenario[{index}].set"
    if not sets:
        return cluster
    graph = cluster.graph.copy()
    for edge, by_time in sets.items():
        data, first_s = graph.edges[edge], min(by_time)
        for name in EDGE_CHANGES:
            if name != "trace" and name in data:
                remedy = f"edge {edge[0]} -> {edge[1]} has {name}; live runs set others only"
                raise ConfigError(keys[edge], list(edge), remedy)
        before = [row for row in data.get("trace", ()) if row[0] < first_s]
        rows = [*before, *([at_s, mbps] for at_s, mbps in sorted(by_time.items()))]
        if rows[-1][1] == 0:
            remedy = "the last bandwidth of a live run must not be 0, or messages never arrive"
            raise ConfigError(keys[edge], list(edge), remedy)
        data["trace"] = rows
        if data.pop("unlimited", False):
            data["bandwidth_mbps"] = UNLIMITED_MBPS
    return replace(cluster, graph=graph)
