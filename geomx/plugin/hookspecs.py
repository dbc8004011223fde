"""The hooks: what geomx asks plugins.

Hooks build, objects run: hooks are called while an experiment is put together, and answer with
plain objects that do the work afterwards (a hook call costs microseconds, a slice must not).
`geomx_register` is asked of every installed module. The others are asked only of the plugins that
the experiment selected, one after the other in the order of the command line (`sync` first, then
`accel` from left to right); pluggy's `tryfirst` and `trylast` have no effect. A hook may be called
several times with equal arguments (for each link, for each node, in each process of a live run), so
an answer may depend on nothing but the arguments and the plugin's options. A method takes any
subset of a hook's arguments, by name. ``None`` means that the plugin has nothing to say.

All hooks but two know nothing of the mode, which keeps simulation and deployment the same
experiment: `geomx_sim` is asked in simulations only, and `geomx_validate` is told the mode.
"""

from __future__ import annotations

from collections.abc import Sequence

import pluggy

from geomx.cluster import Cluster, Link
from geomx.events import Events
from geomx.plugin.coordination import Group, Overlay
from geomx.plugin.experiment import Experiment, Simulation
from geomx.plugin.parts import BySize, Codec, Native, Optimizer, Partitioner, Placement, Slicer
from geomx.plugin.registration import Register
from geomx.plugin.sync import SyncPolicy
from geomx.workload import TensorSpec

PROJECT = "geomx"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a method, or a module's `geomx_register`, as the answer to the hook of its name."""


@hookspec
def geomx_register(register: Register) -> None:
    """Announce plugins: ``register("accel", "mine", MineConfig, Mine)``.

    Called once per installed module, when plugins are looked for; order does not matter.

    Args:
        register: A function of ``(kind, name, config, factory, made_of={})``. `kind` is ``"sync"``,
            ``"accel"``, ``"workload"`` or ``"network"``; `config` a dataclass whose fields are the
            options of the plugin; ``factory(config_instance)`` returns an object whose hook methods
            are asked below. For a workload it returns a `geomx.workload.Workload`; for a network
            (``network=NAME``) what a network file holds, in either form, or a networkx graph; with
            ``factory.suffixes = (".x",)`` and an option `file`, ``network=FILE.x`` means it too.
            The first line of the factory's docstring is what ``geomx plugins`` shows; its attribute
            ``lossless = True`` promises that training with the plugin gives the same numbers, up to
            the order of additions. A field of `config` with ``metadata={"search": (...)}`` offers
            values to ``geomx plan``. ``factory.mxnet = {"type": "2bit", "word": "option"}`` says by
            which name and words scripts of MXNet and GeoMX ask for compression.
            ``made_of={"other": ["option"]}`` says which plugins of that kind this one is made of,
            and which of their options are not its own; ``factory(config_instance, *others)``
            then gets them built. ``register.package(name)`` finds the sub-packages of a package and
            loads each of them in isolation.
    """


@hookspec
def geomx_cluster(cluster: Cluster) -> Cluster | None:
    """Change who takes part, before anything else is built (more global servers, say).

    Chained in order: each plugin gets the cluster that the one before it returned.
    """


@hookspec
def geomx_sync_policy(cluster: Cluster) -> SyncPolicy | None:
    """Decide when nodes synchronise, and whom they wait for.

    Exclusive: one plugin decides. An accelerator's answer replaces that of the default sync plugin;
    two answers otherwise are refused, naming both.
    """


@hookspec
def geomx_placement(cluster: Cluster, tensors: Sequence[TensorSpec]) -> Placement | None:
    """Assign the shards of tensors to global servers.

    Exclusive: two answers are refused, naming both. Without any, shard i of key k is kept by global
    server ``(k + i) % n``.

    Args:
        cluster: The nodes of the experiment.
        tensors: In key order.
    """


@hookspec
def geomx_partitioner(cluster: Cluster) -> Partitioner | None:
    """Cut tensors into shards, the units that are synchronised independently.

    Chained in order: each partitioner gets the list of shards that the one before it returned.
    """


@hookspec
def geomx_codec(link: Link) -> Codec | Native | BySize | None:
    """Encode what crosses `link`.

    Codecs chain: the first encodes first and decodes last. Those that choose rows come first, then
    those that quantise values, then casts; codecs of the same stage are in the order of the command
    line. Return None for links that are not concerned (a LAN, a pull).
    """


@hookspec
def geomx_slicer(link: Link) -> Slicer | Native | None:
    """Cut encoded shards into slices, each with a priority and a channel.

    Called once for every kind of directed link, and chained in order: each slicer gets the slices
    of the one before it. Return None for links that are not concerned.
    """


@hookspec
def geomx_overlay(group: Group) -> Overlay | None:
    """Let the members of a group talk with each other, not with their root alone.

    Called of every party with its workers, and of every global server with the parties' local
    servers where parties update together. Exclusive per group: two answers are refused, naming
    both. Without any, all members push to the root and get values from it.
    """


@hookspec
def geomx_update(cluster: Cluster) -> str | None:
    """Ask for the optimizer to run at the parties: return ``"party"``.

    Global servers then answer with the sum of what was pushed, which may be sparse, and every local
    server moves its own replica of the weights, all alike. One plugin that asks is enough; a sync
    policy whose parties do not update together keeps the optimizer at the global server.
    """


@hookspec
def geomx_optimizer() -> Optimizer | None:
    """Move the weights by an optimizer of your own.

    Exclusive. It runs wherever the sync policy has the workload's optimizer run, in its place, and
    keeps the workload's learning rate, schedule, weight decay and clipping. Training scripts bring
    their own optimizer and do not ask.
    """


@hookspec
def geomx_validate(experiment: Experiment) -> None:
    """Refuse an experiment that this plugin cannot take part in.

    Called of all selected plugins, in order, after everything else is known and before anything
    runs. Raise `geomx.errors.ConfigError` naming the option and saying what to change.
    """


@hookspec
def geomx_sim(simulation: Simulation) -> None:
    """Tell the simulator what this plugin takes and does.

    Called of all selected plugins, in order, in simulations only, before virtual time starts.

    Args:
        simulation: `Simulation.charge` brings what the plugin's codecs take, as measured. SimPy
            processes may be started on ``simulation.env``; its clock counts whole nanoseconds, and
            delays are rounded up to one.
    """


@hookspec
def geomx_events(events: Events) -> None:
    """Observe what happens: subscribe to `events` of the protocol.

    Called of all selected plugins, in order, in both modes, before the first event.
    """
