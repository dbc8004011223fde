"""The hooks that plugins implement.

geomx calls hooks while it builds an experiment. They return plain objects, which geomx calls during
the run, because a hook call takes microseconds, which is too slow per slice. `geomx_register` is
called for every installed module; the other hooks only for the selected plugins, in the order of
the command line (`sync` first, then `accel` from left to right, then `track`). pluggy's `tryfirst`
and `trylast` have no effect. A hook may be called several times with equal arguments (for each
link, for each node, in each process of a live run), so its result may depend on the arguments and
the plugin's options only. A method takes any subset of a hook's arguments, by name, and returns
None if it does not apply.

Hooks do not know the mode, so that simulation and deployment are the same experiment. The
exceptions are `geomx_sim`, `geomx_scenario` and `geomx_wan_model`, which are called in simulations
only, `geomx_validate`, whose experiment contains the mode, and `geomx_track`, which only observes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pluggy

from geomx.cluster import Cluster, Link
from geomx.events import Events
from geomx.plugin.coordination import Group, Overlay
from geomx.plugin.experiment import Experiment, Simulation, World
from geomx.plugin.parts import BySize, Codec, Native, Optimizer, Partitioner, Placement, Slicer
from geomx.plugin.registration import Register
from geomx.plugin.sync import SyncPolicy
from geomx.plugin.tracking import TrackedRun, Tracker
from geomx.plugin.wan import WanModel
from geomx.workload import TensorSpec

PROJECT = "geomx"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a method, or a module's `geomx_register`, as an implementation of the hook of its name."""


@hookspec
def geomx_register(register: Register) -> None:
    """Register plugins: ``register("accel", "mine", MineConfig, Mine)``.

    Called once per installed module, when plugins are discovered; the order does not matter.

    Args:
        register: A function of ``(kind, name, config, factory, made_of={}, variant_of="")``. `kind`
            is ``"sync"``, ``"accel"``, ``"track"``, ``"workload"`` or ``"network"``. `config` is a
            dataclass whose fields are the options; a field with ``metadata={"search": (...)}``
            offers these values to ``geomx plan``. ``factory(config_instance)`` returns an object
            that implements hooks; for a workload, a `geomx.workload.Workload`; for a network
            (``network=NAME``), the content of a network file, in either form, or a networkx graph.
            With ``factory.suffixes = (".x",)`` and an option `file`, ``network=FILE.x`` selects it
            too. The first line of the factory's docstring is shown by ``geomx plugins``.
            ``factory.lossless = True`` promises that training gives the same values as without the
            plugin, up to the order of additions. ``factory.mxnet = {"type": "2bit", "word":
            "option"}`` is the name under which scripts of MXNet and GeoMX request compression, and
            maps their parameters to options. ``made_of={"other": ["option"]}`` names the plugins of
            that kind that this one combines, and which of their options are not its own;
            ``factory(config_instance, *others)`` then receives them. ``variant_of="other"`` says
            that this is that plugin under another name. ``register.package(name)``
            finds the sub-packages of a package and loads each of them in isolation.
    """


@hookspec
def geomx_cluster(cluster: Cluster) -> Cluster | None:
    """Change the cluster before anything else is built, for example by more global servers.

    Chained in order.

    Args:
        cluster: The nodes and their network, as the previous plugin returned them.

    Returns:
        The changed cluster; None for no change.
    """


@hookspec
def geomx_sync_policy(cluster: Cluster) -> SyncPolicy | None:
    """Decide when nodes synchronise, what they exchange, and where optimizers run.

    Exclusive. The result of an accelerator replaces that of the default sync plugin; otherwise two
    results are an error that names both plugins.

    Args:
        cluster: The nodes of the experiment.

    Returns:
        The policy; None if this plugin does not decide.
    """


@hookspec
def geomx_placement(cluster: Cluster, tensors: Sequence[TensorSpec]) -> Placement | None:
    """Assign the shards of tensors to global servers.

    Exclusive: two results are an error that names both plugins. By default, shard i of key k is
    stored on global server ``(k + i) % n``.

    Args:
        cluster: The nodes of the experiment.
        tensors: All tensors in key order.

    Returns:
        The placement; None if this plugin does not decide.
    """


@hookspec
def geomx_partitioner(cluster: Cluster) -> Partitioner | None:
    """Divide tensors into shards, the units that are synchronised independently.

    Chained in order: each partitioner gets the shards that the previous one returned.

    Args:
        cluster: The nodes of the experiment.

    Returns:
        The partitioner; None for no change.
    """


@hookspec
def geomx_codec(link: Link) -> Codec | Native | BySize | None:
    """Encode the values on a link.

    Codecs are chained: the first encodes first and decodes last. Those that select rows come first,
    then those that quantise values, then casts; codecs of the same stage are in the order of the
    command line.

    Args:
        link: The directed link, and what it carries.

    Returns:
        A codec, a compiled codec by name, or codecs by size; None for links without this codec.
    """


@hookspec
def geomx_slicer(link: Link) -> Slicer | Native | None:
    """Divide encoded shards into slices, each with a priority and a channel.

    Called once for every kind of directed link. Chained in order: each slicer gets the slices of
    the previous one.

    Args:
        link: The directed link, and what it carries.

    Returns:
        A slicer, or a compiled one by name; None for links without this slicer.
    """


@hookspec
def geomx_overlay(group: Group) -> Overlay | None:
    """Let the members of a group exchange data directly instead of with their root only.

    Called for every party with its workers, and, if parties update together, for every global
    server with the local servers. Exclusive per group: two results are an error that names both
    plugins. By default, all members push to the root and receive values from it.

    Args:
        group: The root, its members, the scheduler, and the network.

    Returns:
        The overlay; None for the default.
    """


@hookspec
def geomx_update(cluster: Cluster) -> str | None:
    """Request that the optimizer runs at the parties.

    Global servers then answer with the sum of the pushes, which may be sparse, and every local
    server updates its own replica of the weights, identically. With ``"steps"``, every local server
    runs the optimizer on its own party's gradient first and pushes the resulting step; replicas add
    the sum of the steps, and a party's own workers also have what its codec has not sent yet
    (`Codec` in C++ may tell what that is). Where a script's workers update by themselves, no server
    does, and all workers get the sum of the gradients that were sent. With SGD and codecs without
    loss, both equal an optimizer at the global server. One plugin that requests this is sufficient,
    and ``"steps"`` prevails. With a sync policy whose parties do not update together, the optimizer
    stays at the global server. Where parameters are exchanged, parties push moves of them, which
    are steps already; a party's workers likewise have what was not sent of them, if the codec sends
    that in the last round.

    Args:
        cluster: The nodes of the experiment.

    Returns:
        ``"party"`` or ``"steps"``; None for no request.
    """


@hookspec
def geomx_optimizer() -> Optimizer | None:
    """Replace the workload's optimizer.

    Exclusive. It runs wherever the sync policy runs the workload's optimizer, and the workload's
    learning rate, schedule, weight decay and clipping apply to it. Training scripts have their own
    optimizer, so the hook is not called for them.

    Returns:
        The optimizer; None if this plugin has none.
    """


@hookspec
def geomx_validate(experiment: Experiment) -> None:
    """Refuse an experiment that this plugin does not support.

    Called for all selected plugins, in order, after the experiment is built and before it runs.

    Args:
        experiment: The experiment.

    Raises:
        ConfigError: The plugin does not support it; raised by the plugin, with the option, its
            value and the remedy.
    """


@hookspec
def geomx_sim(simulation: Simulation) -> None:
    """Supply the simulator with costs, or start simulated processes.

    Called for all selected plugins, in order, in simulations only, before virtual time starts.

    Args:
        simulation: `Simulation.charge` supplies the measured costs of the plugin's codecs. SimPy
            processes may be started in ``simulation.env``; its clock counts whole nanoseconds, and
            delays are rounded up to one.
    """


@hookspec
def geomx_scenario(world: World) -> None:
    """Act on the simulated world by SimPy processes: traffic, edges, nodes that fail.

    Called for all selected plugins, in order, in simulations only, when virtual time starts. Live
    runs with such a plugin are refused.

    Args:
        world: What programs see of the simulation, and what they may do to it (docs/world.md).
    """


@hookspec
def geomx_wan_model() -> WanModel | None:
    """Replace the simulator's model of the network; exclusive, in simulations only.

    Returns:
        A new model, for one simulation; None for the fluid model (docs/model.md).
    """


@hookspec
def geomx_events(events: Events) -> None:
    """Observe a run by subscribing to events of the protocol.

    Called for all selected plugins, in order, in both modes, before the first event; live in the
    process of each worker. A launched script has no events, a simulated one iterations only.

    Args:
        events: `Events.subscribe` registers a function that receives lists of events.
    """


@hookspec
def geomx_track(run: TrackedRun) -> Tracker | None:
    """Follow a run while it is recorded, for example in an experiment tracker.

    Called once per run, before it starts, in the process that records it: the simulator's, or the
    launcher's of a live run.

    Args:
        run: The run.

    Returns:
        An object that is told of the run, or None.
    """
