"""An experiment as text, which the scheduler sends to every joining node.

All nodes build the network, the plugins and their options from this text, so that they agree. It
contains names and numbers only, no code, and building it does not need Hydra. The text was checked
when the experiment was composed, and every node checks it again with the same functions, because it
arrives over the network.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from geomx.cluster import Cluster
from geomx.errors import GeomxError
from geomx.experiment.experiment import Experiment
from geomx.network.files import read_network, to_node_link
from geomx.options.parsing import build_options
from geomx.options.schema import FaultOptions, MetricsOptions, RuntimeOptions, TcpOptions
from geomx.plugin.registration import Choice
from geomx.scenario import Scenario, ScenarioEvent, read_scenario
from geomx.version import __version__
from geomx.workload import TensorSpec


@dataclass(frozen=True)
class Spec:
    """The part of an experiment that every node of a live run knows.

    Attributes:
        cluster: The nodes and their network.
        sync: Name and options of the sync plugin.
        accel: Names and options of the accelerators, in order.
        workload: Name and options of the workload; None for training scripts.
        times_s: Seconds of the forward and backward pass of each of the workload's layers. Measured
            times may differ from those of the workload's options.
        seed: Seed of all random numbers.
        iterations: Local steps per worker.
        evaluate_every: Local steps between evaluations on held-out data.
        numerics: Whether real gradients are computed.
        emulated: Whether the nodes emulate the bandwidth and delay of their links themselves.
        usage_file: File by which nodes share the bandwidth of common edges; see `links.shape`.
        runtime: Options of the live runtime.
        faults: Treatment of lost links and nodes.
        metrics: Where nodes serve their metrics.
        scenario: Events that are injected during the run.
        tcp: Options of WAN connections.
        tensors: All that are trained, in key order: servers take no others. None: a training script
            brings its own.
        checkpoint: File with which training begins (`geomx.live.checkpoint`); empty: none.
        rounds_before: Synchronisations that it contains.
    """

    cluster: Cluster
    sync: Choice
    accel: tuple[Choice, ...] = ()
    workload: Choice | None = None
    times_s: tuple[tuple[float, float], ...] = ()
    seed: int = 0
    iterations: int = 0
    evaluate_every: int = 1
    numerics: bool = False
    emulated: bool = True
    usage_file: str = ""
    runtime: RuntimeOptions = dataclasses.field(default_factory=RuntimeOptions)
    faults: FaultOptions = dataclasses.field(default_factory=FaultOptions)
    metrics: MetricsOptions = dataclasses.field(default_factory=MetricsOptions)
    scenario: tuple[ScenarioEvent, ...] = ()
    tcp: TcpOptions = dataclasses.field(default_factory=TcpOptions)
    tensors: tuple[TensorSpec, ...] | None = None
    checkpoint: str = ""
    rounds_before: int = 0

    @classmethod
    def of(cls, experiment: Experiment, script: bool = False) -> Spec:
        """Return the part of `experiment` that nodes need; without the workload for a script."""
        workload = (experiment.workload.name, dict(experiment.workload_options))
        runtime = experiment.runtime
        if experiment.emulate == "netns" and runtime.threads is None:
            # Nodes have different addresses, but share this machine's cores.
            cores = len(os.sched_getaffinity(0))
            share = max(1, cores // len(experiment.cluster.nodes))
            runtime = dataclasses.replace(runtime, threads=share)
        layers = experiment.workload.layers
        return cls(
            cluster=experiment.cluster,
            sync=experiment.selection.sync,
            accel=experiment.selection.accel,
            workload=None if script else workload,
            times_s=tuple((float(layer.forward_s), float(layer.backward_s)) for layer in layers),
            seed=experiment.seed,
            iterations=experiment.iterations,
            evaluate_every=experiment.evaluate_every,
            numerics=experiment.numerics,
            emulated=experiment.emulate == "shaper",
            runtime=runtime,
            faults=experiment.faults,
            metrics=experiment.metrics,
            scenario=experiment.scenario,
            tcp=experiment.tcp,
            tensors=None
            if script
            else tuple(_tensor(t.name, t.shape, t.layer) for t in experiment.workload.tensors),
        )

    @property
    def event_schedule(self) -> Scenario:
        """The scenario's events, and the nodes that join later."""
        return Scenario(self.scenario, self.cluster, self.seed, self.faults.absent)

    def to_json(self) -> str:
        """Return the text that `from_json` reads."""
        fields: dict[str, Any] = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self)
        }
        fields["cluster"] = to_node_link(self.cluster.graph)
        fields["runtime"] = dataclasses.asdict(self.runtime)
        fields["faults"] = dataclasses.asdict(self.faults)
        fields["metrics"] = dataclasses.asdict(self.metrics)
        fields["scenario"] = [event.plain() for event in self.scenario]
        fields["tcp"] = dataclasses.asdict(self.tcp)
        if self.tensors is not None:
            fields["tensors"] = [[each.name, each.shape, each.layer] for each in self.tensors]
        return json.dumps({"geomx": __version__, **fields})

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """Read the text that `to_json` returned.

        Raises:
            GeomxError: Another version of geomx wrote it, or it is invalid.
        """
        try:
            fields = dict(json.loads(text))
            if (theirs := fields.pop("geomx")) != __version__:
                raise GeomxError(
                    f"the scheduler runs geomx {theirs}, this is {__version__}: install the same "
                    "version on all machines"
                )
            fields["cluster"] = read_network(fields["cluster"])
            fields["sync"] = _choice(fields["sync"])
            fields["accel"] = tuple(_choice(choice) for choice in fields["accel"])
            fields["times_s"] = tuple((float(f), float(b)) for f, b in fields["times_s"])
            if fields["workload"] is not None:
                fields["workload"] = _choice(fields["workload"])
            fields["runtime"] = build_options(RuntimeOptions, fields["runtime"], "runtime")
            fields["faults"] = build_options(FaultOptions, fields["faults"], "faults")
            fields["metrics"] = build_options(MetricsOptions, fields["metrics"], "metrics")
            fields["scenario"] = read_scenario(fields["scenario"], fields["cluster"])
            fields["tcp"] = build_options(TcpOptions, fields["tcp"], "tcp")
            if fields["tensors"] is not None:
                fields["tensors"] = tuple(_tensor(*each) for each in fields["tensors"])
            return cls(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise GeomxError(f"the scheduler sent no experiment: {error!r}") from error


def _tensor(name: Any, shape: Any, layer: Any) -> TensorSpec:
    return TensorSpec(str(name), tuple(int(size) for size in shape), int(layer))


def _choice(value: Any) -> Choice:
    name, options = value
    if not isinstance(name, str) or not isinstance(options, Mapping):
        raise TypeError(value)
    return name, dict(options)
