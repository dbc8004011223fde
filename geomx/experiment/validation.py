"""Checks of a whole experiment, before anything runs."""

from __future__ import annotations

from geomx.errors import ConfigError
from geomx.experiment.costs import warn_of_foreign_costs
from geomx.experiment.experiment import Experiment
from geomx.experiment.idle_plugins import warn_of_idle_plugins
from geomx.experiment.links import wan_ways
from geomx.network.warnings import LOSS_BASED, warn_of_uneven_round_trips
from geomx.version import __version__


def validate(experiment: Experiment) -> None:
    """Check with every plugin that it supports the experiment, and that no two plugins conflict.

    Raises:
        ConfigError: One cannot, or two do.
        PluginError: A plugin broke a rule.

    Warns:
        ModelWarning: The prediction will not be exact.
        PluginWarning: An accelerator changes nothing.
    """
    _check_restarts(experiment)
    warn_of_foreign_costs(experiment.costs, __version__, here=experiment.mode != "sim")
    cluster, selection = experiment.cluster, experiment.selection
    selection.validate(experiment)
    selection.sync_policy(cluster)
    selection.placement(cluster, experiment.workload.tensors)
    warn_of_idle_plugins(experiment)
    if experiment.tcp.congestion in LOSS_BASED:
        warn_of_uneven_round_trips(experiment.tcp.congestion, wan_ways(cluster, selection))


def _check_restarts(experiment: Experiment) -> None:
    if experiment.faults.durable == "log":
        return
    for index, happening in enumerate(experiment.scenario):
        if happening.restart_s is not None:
            remedy = "needs faults.durable=log, from which nodes are restarted"
            raise ConfigError(f"scenario[{index}].restart_s", happening.restart_s, remedy)
