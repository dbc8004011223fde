"""Builds a typed and validated experiment from plain configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from geomx.cluster import Cluster
from geomx.errors import ConfigError
from geomx.experiment.costs import chosen_costs, timed
from geomx.experiment.experiment import Experiment
from geomx.experiment.live_events import with_bandwidths
from geomx.experiment.validation import validate
from geomx.experiment.words import check_words
from geomx.limits.rules import memory_limited
from geomx.network.files import read_network
from geomx.network.topology import with_standbys
from geomx.options.parsing import build_options
from geomx.options.schema import PACE, Root
from geomx.plugin.registry import Registry
from geomx.scenario import read_programs, read_scenario


@memory_limited()
def build_experiment(
    content: Mapping[str, Any],
    sync: str | None,
    workload: str,
    overrides: Sequence[str],
    registry: Registry,
    begins: bool = False,
) -> Experiment:
    """Build an experiment from plain configuration.

    Args:
        content: Values for `Root`, as plain dicts and lists.
        sync: Name of the sync plugin; None for the default.
        workload: Name of the workload.
        overrides: The user's overrides, which are stored with the results.
        registry: The installed plugins.
        begins: Whether it may begin with the state of another run (``resume``) in the network that
            it has without an override, as a script's does.

    Returns:
        The validated experiment.

    Raises:
        ConfigError: A value is not allowed.
        PluginError: A plugin breaks a rule.
    """
    check_words(overrides, content)
    root = build_options(Root, content, "")
    given = {word.lstrip("+").partition("=")[0] for word in overrides}
    if root.resume is not None and "network" not in given and not begins:
        remedy = "continues one run; for new ones that begin with its state, give network=..., too"
        raise ConfigError("resume", root.resume, remedy)
    selection = registry.select(
        (sync, root.sync or {}) if sync else None,
        [(name, options or {}) for name, options in root.accel.items()],
        [(name, options or {}) for name, options in root.track.items()],
    )
    cluster = selection.cluster(_network(root.network, registry))
    if root.faults.durable == "replica" and not cluster.standbys:
        cluster = with_standbys(cluster, root.faults.standby)
    trained = registry.workload(workload, root.workload or {})
    config = registry.find("workload", workload).config
    trained = timed(trained, root.costs, given=_changed(config, root.workload or {}, PACE))
    numerics = root.numerics
    if numerics is None:
        numerics = trained.has_numerics
    elif numerics and not trained.has_numerics:
        raise ConfigError("numerics", "true", f"workload {workload} has sizes and times only")
    events = read_scenario(root.scenario, cluster)
    if root.mode != "sim":
        cluster = with_bandwidths(cluster, events)
    experiment = Experiment(
        mode=root.mode,
        seed=root.seed,
        iterations=int(root.iterations or trained.iterations),
        evaluate_every=int(root.evaluate_every or trained.evaluate_every),
        numerics=numerics,
        cluster=cluster,
        workload=trained,
        selection=selection,
        runtime=root.runtime,
        faults=root.faults,
        scenario=events,
        metrics=root.metrics,
        tcp=root.tcp,
        emulate=root.emulate,
        costs=chosen_costs(root.costs, trained) if root.mode == "sim" else root.costs,
        sim=root.sim,
        overrides=list(overrides),
        workload_options=dict(root.workload or {}),
        programs=read_programs(root.scenario),
        begins_with=root.resume or "",
        study=root.study if root.study and root.study.wanted else None,
    )
    validate(experiment)
    return experiment


def _network(content: Mapping[str, Any], registry: Registry) -> Cluster:
    """Build the network from a file's content, or from ``{"plugin": NAME}`` and its options."""
    if "plugin" not in content:
        return read_network(content)
    name = str(content["plugin"])
    options = {key: value for key, value in content.items() if key != "plugin"}
    made = registry.network(name, options)
    if isinstance(made, Mapping):
        return read_network({"name": name, **made})
    made.graph.setdefault("name", name)
    return read_network(made)


def _changed(config: type, options: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Return whether any option in `names` differs from its default in the dataclass `config`."""
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    return any(name in options and options[name] != defaults[name] for name in names)
