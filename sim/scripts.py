"""Runs a training script as every worker of a simulation, in virtual time.

The network, the servers and the plugins are those of a simulated experiment
(`geomx.sim.simulation`); the workers are processes that run the script (`geomx.sim.script_worker`).
What is trained is known once the script has initialised its keys.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import cast

import simpy

from geomx import _core
from geomx.cluster import NodeSpec
from geomx.errors import ConfigError, GeomxError
from geomx.experiment import script_workload
from geomx.experiment.experiment import Experiment
from geomx.experiment.wiring import PlacedShard
from geomx.limits.rules import uncollected
from geomx.limits.watchdog import if_abandoned
from geomx.pages import page
from geomx.results.recorder import Recorder
from geomx.results.results import Results
from geomx.results.scripts import complete
from geomx.sim.computing import Computing
from geomx.sim.cores import Cores
from geomx.sim.protocols import Worker
from geomx.sim.script_members import ScriptMembers, leaving_allowed
from geomx.sim.script_worker import ScriptWorker
from geomx.sim.script_world import Processes
from geomx.sim.shadows import Shadows
from geomx.sim.simulation import Simulation
from geomx.tracking.begin import begin
from geomx.training.pace import NS
from geomx.workload import Model


class ScriptSimulation(Simulation):
    """The simulation of a script.

    Args:
        experiment: The experiment, with the workload of the script.
        recorder: Receives what happens.
        processes: The processes of the workers, which have all connected.
        computing: What computing takes.

    Attributes:
        needs_all: What needs all workers in every round; empty if some may leave before others.
    """

    declares = False
    members_of = ScriptMembers.of
    model_of = staticmethod(lambda workload, seed: cast(Model, object()))  # the script has it

    def __init__(
        self,
        experiment: Experiment,
        recorder: Recorder,
        processes: Processes,
        computing: Computing,
    ) -> None:
        self.processes, self.computing = processes, computing
        self.scripts: list[ScriptWorker] = []
        self._names: dict[int, str] = {}
        experiment, self.needs_all = leaving_allowed(experiment)
        super().__init__(experiment, recorder)
        shared = experiment.costs.cores or 0
        self.cores = Cores(self.env, shared, self._worked_ns) if shared else None
        self.global_optimizer = self.local_optimizer = None  # the script's affair

    @property
    def needs_values(self) -> bool:
        """See `Simulation.needs_values`: workers wait for values by their notices."""
        return True

    def _worked_ns(self) -> float:
        """Return what all nodes' messages have taken so far."""
        return float(sum(self.fabric.worked()))

    def worker(self, spec: NodeSpec, rank: int) -> Worker:
        """See `Simulation.worker`."""
        self.scripts.append(ScriptWorker(self, spec, rank))
        return self.scripts[-1]

    def config(self, node: NodeSpec) -> _core.NodeConfig:
        """See `Simulation.config`."""
        config = super().config(node)
        config.borrow_values = node.role == "worker"  # few of many shadows are asked for theirs
        return config

    # ---- reports of workers ----

    def declared(
        self,
        key: int,
        name: str,
        shape: Sequence[int],
        shards: Sequence[PlacedShard],
    ) -> None:
        """Note a tensor of the script."""
        if key not in self._names:
            self._names[key] = name
            self.shards.append(list(shards))
            workload = self.experiment.workload
            self.experiment.workload = script_workload.with_tensors(workload, [(name, shape)])

    def tensor_name(self, key: int) -> str:
        """See `Simulation.tensor_name`."""
        return script_workload.shown(self._names[key])

    def evaluated(self, step: int, accuracy: float | None, loss: float | None) -> None:
        """Record what the script has told of its model."""
        self.recorder.evaluation(self.env.now / NS, step, accuracy, loss)

    def left(self, worker: Worker) -> None:
        """Note that a worker has left the run."""
        if worker.rank == 0:
            self.recorder.parameters(self.scripts[0].values())
        if self.members:
            self.members.depart(worker)  # rounds go on without it
        if self.all_left:
            for other in self.scripts:
                other.wake()

    @property
    def all_left(self) -> bool:
        """Whether all workers have left the run."""
        return all(worker.ended for worker in self.scripts)

    # ---- the end ----

    def _go(self, end: simpy.Event) -> None:
        super()._go(end)
        self.processes.wait_ended()

    def _judge_latest(self) -> None:
        """Do nothing: the script evaluates."""

    def _finish(self, wall_seconds: float) -> Results:
        if not any(worker.keys for worker in self.scripts):
            raise GeomxError("the script created a store, but initialised no key")
        about: dict[str, float] = {}
        if self.computing.measured:  # real times, which differ from run to run
            startup_s = [each.startup_s for each in self.processes.channels.values()]
            waited_ns = [each.local.real_ns for each in self.scripts]
            about = {
                "startup_s": sum(startup_s) / len(startup_s),
                "waited_s": sum(waited_ns) / len(waited_ns) / NS,
            }
        computed_s = [each.local.computed_s for each in self.scripts]
        elements = [tensor.elements for tensor in self.experiment.workload.tensors]
        complete(self.recorder.header, elements, computed_s, **about)
        return super()._finish(wall_seconds)


def simulate_script(
    experiment: Experiment,
    directory: Path,
    command: Sequence[str],
    computing: Computing,
    processes: AbstractContextManager[Processes],
    shadows: bool = False,
) -> Results:
    """Simulate a script.

    Args:
        experiment: The network and the plugins; its workload is not used.
        directory: Directory of the files.
        command: Command of the script.
        computing: What computing takes.
        processes: Starts the processes of all workers, and ends them; of the first worker alone,
            if the others are its shadows.
        shadows: Whether they are; see `geomx.sim.shadows`.

    Returns:
        The results.

    Raises:
        ConfigError: A simulated script cannot do what the experiment asks for.
        NodeLost: A process of the script failed; its traceback is a note of the error.
        GeomxError: No worker can continue.
    """
    if experiment.faults.continues:
        remedy = "must be stop or wait where a script is simulated"
        raise ConfigError("faults.on_loss", experiment.faults.on_loss, remedy)
    experiment = replace(
        experiment, workload=script_workload.of(command), numerics=True, iterations=0, mode="sim"
    )
    header = experiment.header()
    header["script"] = {"command": shlex.join(command), "compute": str(computing)}
    if shadows:
        header["script"]["shadows"] = len(experiment.cluster.workers) - 1
    recorder = Recorder(directory, header, experiment.sim.max_spans, page.render)
    try:
        begin(recorder, experiment)
        with if_abandoned(recorder.abort), uncollected(), processes as started:
            channels = Shadows(started, experiment) if shadows else started
            return ScriptSimulation(experiment, recorder, channels, computing).run()
    except BaseException as error:
        recorder.abort(error)
        raise
