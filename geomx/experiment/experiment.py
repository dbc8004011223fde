"""One experiment: workload, nodes, network, plugins and options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from geomx import _core
from geomx.cluster import Cluster
from geomx.experiment.native_parts import chosen_optimizers
from geomx.network.sharing import served_in_order
from geomx.options.costs import Costs
from geomx.options.schema import (
    FaultOptions,
    MetricsOptions,
    RuntimeOptions,
    SimOptions,
    StudyOptions,
    TcpOptions,
)
from geomx.plugin.parts import optimizer_text
from geomx.plugin.selection import Selection
from geomx.scenario import Program, Scenario, ScenarioEvent
from geomx.version import SUMMARY_SCHEMA, __version__
from geomx.workload import Workload


@dataclass
class Experiment:
    """The complete description of a run.

    Attributes:
        mode: ``sim``, ``live`` or ``both``.
        seed: Seed of all random numbers.
        iterations: Local steps per worker.
        numerics: Whether real gradients are computed.
        cluster: The nodes and their network.
        workload: The model and its data.
        selection: The plugins, in order.
        evaluate_every: Local steps between evaluations.
        runtime: Options of the live runtime.
        faults: Treatment of lost links and nodes.
        metrics: Where a live run serves its metrics.
        scenario: Events that are injected during the run.
        tcp: Options of WAN connections.
        emulate: Emulation of the network in a live run: ``shaper``, ``netns`` or ``none``.
        costs: Endpoint costs in simulation, and their source.
        sim: Options of the simulator.
        overrides: Overrides of the command line that reproduce the experiment.
        workload_options: The workload's options as given, from which live processes build it.
        begins_with: Folder of the live run with whose state a live run begins; empty: none.
        study: Variants to compare instead of running this experiment; None: no study.
        programs: Functions of the simulated world that begin with the run.
    """

    mode: str
    seed: int
    iterations: int
    numerics: bool
    cluster: Cluster
    workload: Workload
    selection: Selection
    evaluate_every: int = 10
    runtime: RuntimeOptions = field(default_factory=RuntimeOptions)
    faults: FaultOptions = field(default_factory=FaultOptions)
    metrics: MetricsOptions = field(default_factory=MetricsOptions)
    scenario: tuple[ScenarioEvent, ...] = ()
    tcp: TcpOptions = field(default_factory=TcpOptions)
    emulate: str = "shaper"
    costs: Costs = field(default_factory=Costs)
    sim: SimOptions = field(default_factory=SimOptions)
    overrides: list[str] = field(default_factory=list)
    workload_options: dict[str, Any] = field(default_factory=dict)
    begins_with: str = ""
    study: StudyOptions | None = None
    programs: tuple[Program, ...] = ()

    def __post_init__(self) -> None:
        """Set options of links that depend on the emulation."""
        self.tcp = self.tcp.over(self.emulate)

    @property
    def fifo(self) -> bool:
        """Whether connections share edges, as FIFO queues, by their rates of sending under bbr."""
        return self.tcp.congestion == "bbr" and served_in_order(self.cluster, self.emulate)

    @property
    def optimizers(self) -> tuple[str, ...]:
        """Names of the optimizers that come with geomx."""
        return tuple(_core.optimizers())

    @property
    def scale_free_optimizer(self) -> str | None:
        """See `geomx.plugin.experiment.Experiment`."""
        selection, cluster = self.selection, self.cluster
        parameters = selection.sync_policy(cluster).exchange == "parameters"
        if parameters or selection.update_at_party(cluster):
            return None
        used, _ = chosen_optimizers(cluster, selection, self.workload.optimizer)
        if used is None or used["name"] not in _core.optimizers():
            return None
        scale_free = _core.Optimizer(optimizer_text(used), 0).scale_free
        return str(used["name"]) if scale_free else None

    @property
    def event_schedule(self) -> Scenario:
        """The scenario's events, in the order of time."""
        return Scenario(self.scenario, self.cluster, self.seed, self.faults.absent)

    @property
    def on_device(self) -> bool:
        """Whether workers' tensors are on a GPU."""
        said = self.costs.on_device
        return self.workload.device != "cpu" if said is None else said

    def header(self) -> dict[str, Any]:
        """Return the part of ``summary.json`` that is known before the run."""
        sync, options = self.selection.sync
        return {
            "schema": SUMMARY_SCHEMA,
            "geomx": __version__,
            "mode": self.mode,
            "seed": self.seed,
            "sync": {"name": sync, **options},
            "accel": [{"name": name, **options} for name, options in self.selection.accel],
            "network": {
                "name": self.cluster.name,
                "parties": len(self.cluster.parties),
                "workers": len(self.cluster.workers),
                "global_servers": len(self.cluster.global_servers),
            },
            "workload": {
                "name": self.workload.name,
                "tensors": len(self.workload.tensors),
                "elements": self.workload.elements,
                "bytes": 4 * self.workload.elements,
                "samples": self.workload.samples,
            },
            "iterations": self.iterations,
            "numerics": self.numerics,
            "costs": self.costs.about(self.on_device or self.runtime.server_device != "cpu"),
            "words": list(self.overrides),
        }
