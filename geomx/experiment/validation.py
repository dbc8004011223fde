"""Checks of a whole experiment, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping

from geomx.errors import ConfigError, unreadable
from geomx.experiment.costs import warn_of_foreign_costs
from geomx.experiment.experiment import Experiment
from geomx.experiment.idle_plugins import warn_of_idle_plugins
from geomx.experiment.links import wan_ways
from geomx.experiment.live_events import check_live_events
from geomx.experiment.rounds import check_rounds, needs_all
from geomx.network.sharing import FIFO, SHARING
from geomx.network.steps import draws_steps
from geomx.network.warnings import LOSS_BASED, warn_of_uneven_round_trips
from geomx.plugin.contracts import exchanges_at_once
from geomx.scenario.programs import SUFFIX
from geomx.version import __version__

FLUID, REFERENCE = "fluid", "reference"
WAN_FUNCTION = "wan_model"
"""Function of a file that brings a model of the network."""


def validate(experiment: Experiment) -> None:
    """Check with every plugin that it supports the experiment, and that no two plugins conflict.

    Raises:
        ConfigError: A plugin does not support it, or two plugins conflict.
        PluginError: A plugin broke a rule.

    Warns:
        ModelWarning: The prediction is known to be inexact.
        PluginWarning: An accelerator has no effect.
    """
    _check_restarts(experiment)
    _check_standbys(experiment)
    _check_members(experiment)
    check_programs(experiment)
    check_wan(experiment.sim.wan)
    check_live_events(experiment)
    _check_metrics(experiment)
    _check_sharing(experiment)
    _check_steps(experiment)
    warn_of_foreign_costs(experiment.costs, __version__, here=experiment.mode != "sim")
    cluster, selection = experiment.cluster, experiment.selection
    selection.validate(experiment)
    selection.sync_policy(cluster)
    selection.placement(cluster, experiment.workload.tensors)
    selection.overlays(cluster)
    _check_fragments(experiment)
    if experiment.faults.continues:
        _check_continues(experiment)
    check_rounds(cluster, selection, experiment.faults)
    warn_of_idle_plugins(experiment)
    if experiment.tcp.congestion in LOSS_BASED:
        warn_of_uneven_round_trips(experiment.tcp.congestion, wan_ways(cluster, selection))


def _check_restarts(experiment: Experiment) -> None:
    cluster = experiment.cluster
    workers = {"any worker", *(node.name for node in cluster.workers)}
    stood_by = (*cluster.global_servers, *cluster.standbys)
    servers = {"any global_server", *(node.name for node in stood_by)}
    for index, event in enumerate(experiment.scenario):
        if event.restart_s is None:
            continue
        key = f"scenario[{index}].restart_s"
        if experiment.faults.durable == "replica" and event.kill in servers:
            remedy = "leave it out: with faults.durable=replica, its standby takes its place"
            raise ConfigError(key, event.restart_s, remedy)
        if experiment.faults.continues:
            continue
        if event.kill in workers:
            remedy = "needs faults.on_loss=continue, with which workers may come back"
            raise ConfigError(key, event.restart_s, remedy)
        if experiment.faults.durable != "log":
            remedy = "needs faults.durable=log, from which nodes are restarted"
            raise ConfigError(key, event.restart_s, remedy)


def check_programs(experiment: Experiment) -> None:
    """Check that programs can act on the run.

    Raises:
        ConfigError: The run is live, where there is no simulated world.
    """
    programs = [program.name for program in experiment.programs]
    programs += experiment.selection.labelled_by("geomx_scenario")
    if programs and experiment.mode != "sim":
        remedy = f"{programs[0]} acts on the simulated world; choose mode=sim"
        raise ConfigError("mode", experiment.mode, remedy)


def check_wan(chosen: str) -> None:
    """Check that there is the model of the network that ``sim.wan`` names.

    Args:
        chosen: The option.

    Raises:
        ConfigError: There is none.
    """
    if chosen in (FLUID, REFERENCE):
        return
    if not chosen.endswith(SUFFIX):
        remedy = f"must be {FLUID}, {REFERENCE}, or a file with a function {WAN_FUNCTION}()"
        raise ConfigError("sim.wan", chosen, remedy)
    if (why := unreadable(chosen)) is not None:
        raise ConfigError("sim.wan", chosen, why)


def _check_metrics(experiment: Experiment) -> None:
    """Check that every node of a live run has a port for its metrics.

    Raises:
        ConfigError: The last ones have none.
    """
    port, nodes = experiment.metrics.port, len(experiment.cluster.nodes)
    if port is not None and port + nodes > 1 << 16:
        remedy = f"must be at most {(1 << 16) - nodes}, as each of the {nodes} nodes has a port"
        raise ConfigError("metrics.port", port, remedy)


def _check_sharing(experiment: Experiment) -> None:
    """Check that the flows of sites can share as the network says.

    Raises:
        ConfigError: The run is live, where flows share as what carries them lets them.
    """
    rule = experiment.cluster.graph.graph.get(SHARING)
    if experiment.mode == "sim":
        return
    if rule == FIFO and experiment.emulate == "shaper":
        remedy = "the shaper shares by max-min; choose emulate=netns or mode=sim"
        raise ConfigError("network.sharing", rule, remedy)
    if isinstance(rule, Mapping):
        remedy = (
            "no site goes first in live runs; leave it out or choose mode=sim, not "
            f"{experiment.mode}"
        )
        raise ConfigError("network.sharing", rule, remedy)


def _check_steps(experiment: Experiment) -> None:
    """Check that steps can take as long as the network says.

    Raises:
        ConfigError: The run is live, and nothing paces its workers.
    """
    drawn = draws_steps(experiment.cluster.graph)
    if drawn and experiment.mode != "sim" and not experiment.runtime.pace:
        remedy = "the network's steps need runtime.pace=true, by which live workers keep their pace"
        raise ConfigError("runtime.pace", "false", remedy)


def _check_standbys(experiment: Experiment) -> None:
    """Check that standbys of the network are used.

    Raises:
        ConfigError: They are not.
    """
    if experiment.cluster.standbys and experiment.faults.durable != "replica":
        name = experiment.cluster.standbys[0].name
        remedy = "needs faults.durable=replica, with which standbys take over"
        raise ConfigError("network", name, remedy)


def _check_members(experiment: Experiment) -> None:
    """Check that members can join and leave as the scenario requires.

    Raises:
        ConfigError: Training could not continue without them.
    """
    for index, event in enumerate(experiment.scenario):
        if event.what not in ("join", "leave"):
            continue
        key, value = f"scenario[{index}].{event.what}", event.targets[0]
        if not experiment.faults.continues:
            remedy = "needs faults.on_loss=continue, with which others continue without it"
            raise ConfigError(key, value, remedy)
        if event.what == "leave" and experiment.selection.coordinators(experiment.cluster):
            name, _ = experiment.selection.sync
            remedy = f"sync={name} plans the steps of all workers, none of which may leave before"
            raise ConfigError(key, value, remedy)
    experiment.event_schedule.check()


def _check_fragments(experiment: Experiment) -> None:
    """Check how the sync algorithm divides the model, and that logs can repeat it.

    Raises:
        ConfigError: It cannot divide this model, or a worker's log would lack what it has made of
            answers.
        PluginError: It breaks the rules of `SyncPolicy.fragments`.
    """
    cluster, selection = experiment.cluster, experiment.selection
    policy = selection.sync_policy(cluster)
    fragments = policy.fragments([tensor.elements for tensor in experiment.workload.tensors])
    if not experiment.faults.logs("worker"):
        return
    worker = policy.worker(cluster, cluster.workers[0], experiment.iterations)
    if not exchanges_at_once(policy, worker, len(fragments)):
        remedy = (
            f"sync={selection.sync[0]} applies answers while training goes on, which workers' logs "
            "cannot repeat: choose faults.durable=replica, faults.on_loss=continue, with which "
            "workers keep no logs, or options with which all tensors are exchanged at once and the "
            "next step takes the answers"
        )
        raise ConfigError("faults.durable", "log", remedy)


def _check_continues(experiment: Experiment) -> None:
    """Check that rounds can complete without lost nodes.

    Raises:
        ConfigError: Something needs all of them (`needs_all`).
    """
    for who, why in needs_all(experiment.cluster, experiment.selection):
        remedy = f"{who} {why}; leave it out, or choose faults.on_loss=stop or wait"
        raise ConfigError("faults.on_loss", "continue", remedy)
