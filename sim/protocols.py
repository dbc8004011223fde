"""What the parts of a simulation see of it, and of each other.

`geomx.sim.simulation.Simulation` is the world and `geomx.sim.worker.SimulatedWorker` the worker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, MutableMapping
from typing import Any, NamedTuple, Protocol

import simpy
from numpy.typing import NDArray

from geomx import _core
from geomx.cluster import NodeSpec
from geomx.events import Events
from geomx.experiment.experiment import Experiment
from geomx.plugin.sync import SyncPolicy
from geomx.results.recorder import Recorder
from geomx.results.traffic import Peak
from geomx.scenario import Act, Iterations, Program
from geomx.sim.clock import Clock
from geomx.terminal.progress import Advance
from geomx.training.pace import Pace
from geomx.training.steps import Steps
from geomx.workload import Model

Partial = tuple[int, int, int, list[tuple[int, int]], int]
Notice = tuple[int, str, int, int, str, str, list[float], Partial | None]
"""What the fabric tells: node, kind, key, round, text, reason, values, and of a round that was
closed without some nodes, or with late contributions: (shard, workers, global round, late, how
many of the late count in no sum)."""
OF_TRAINERS = frozenset({"forward", "ready", "reply"})
"""The kinds of notices that continue a worker and concern nothing else."""
ARRIVED = "transferred"
"""The kind of notices of transfers whose last byte has arrived."""


class Worker(Protocol):
    """A simulated worker, with names as of `geomx.sim.worker.SimulatedWorker`."""

    spec: NodeSpec
    rank: int
    steps: Steps
    parameters: list[NDArray[Any]]
    loss: float
    ended: bool
    trains: bool

    @property
    def compute_s(self) -> float:
        """Seconds of computing in a step."""
        ...

    @property
    def took_s(self) -> float:
        """Seconds of computing in the present step."""
        ...

    def run(self) -> Generator[simpy.Event, Any, None]:
        """Train."""
        ...

    def hear(self, notice: Notice) -> None:
        """Handle a notice of the fabric to this worker."""

    def round(self, key: int) -> int:
        """Return the round of the last value of a tensor that it has received; 0 before that."""
        ...

    def pause(self, for_ns: int) -> None:
        """Stop its computing for a time from now on, in nanoseconds."""

    def standing(self) -> str:
        """Return what the worker waits for, for errors; empty if the fabric knows."""
        ...


class IterationRow(NamedTuple):
    """One local step of one worker; times in nanoseconds of SimPy's clock."""

    worker: Worker
    step: int
    start_ns: int
    end_ns: int


class Acts(Protocol):
    """What may be done to links and nodes, see `geomx.sim.scenario.Acts`."""

    fruitless: int
    coming: int
    iterations: Iterations

    def begin_step(self, worker: int, step: int) -> None:
        """Let the events of the scenario begin that do so as a worker begins a local step."""
        ...

    def carry_out(self, act: Act, row: dict[str, Any] | None) -> None:
        """Carry out an act now."""
        ...

    def later(self, act: Act) -> Generator[simpy.Event, Any, None]:
        """Wait until the time of an act that ends another, and carry it out."""
        ...


class Samples(Protocol):
    """Readings of edges, see `geomx.sim.edge_samples.EdgeSamples`."""

    peaks: dict[tuple[str, str], Peak]

    def close(self) -> None:
        """Close their file."""


class Standing(Protocol):
    """The standbys of global servers, see `geomx.sim.standbys.Standbys`."""

    replaced: bool

    def expects(self, node: NodeSpec, row: dict[str, Any]) -> None:
        """Take note of the row of a fault of a node, which its standby may repair."""
        ...

    def kill(self, node: NodeSpec, reason: str) -> bool:
        """Kill a node's process if the run goes on without it; return whether it does."""
        ...


class Lives(Protocol):
    """The processes of nodes, see `geomx.sim.members.Members`."""

    def is_dead(self, node: int) -> bool:
        """Return whether a node, by its id, has no process."""
        ...


class Running(Protocol):
    """One simulation; the attributes are those of `geomx.sim.simulation.Simulation`."""

    env: Clock
    experiment: Experiment
    fabric: _core.Fabric
    recorder: Recorder
    events: Events
    policy: SyncPolicy
    model: Model | None
    initial: list[NDArray[Any]] | None
    plan: _core.TrainingPlan
    global_optimizer: dict[str, Any] | None
    local_optimizer: dict[str, Any] | None
    optimizer_factories: list[_core.OptimizerFactory]
    skipped_ns: int
    advance: Advance
    idle: bool
    programs: tuple[Program, ...]

    @property
    def edge_samples(self) -> Samples | None:
        """The readings of edges; None: there are none."""
        ...

    @property
    def members(self) -> Lives | None:
        """The processes of nodes; None if all take part in all rounds."""
        ...

    @property
    def standbys(self) -> Standing:
        """The standbys of global servers."""
        ...

    @property
    def acts(self) -> Acts:
        """What may be done to links and nodes."""
        ...

    @property
    def world(self) -> Any:
        """The world (`geomx.sim.world.World`), which is made when it is asked for."""
        ...

    @property
    def needs_values(self) -> bool:
        """Whether the simulation itself needs a notice of every new value at a worker."""
        ...

    @property
    def programmed(self) -> bool:
        """Whether programs or plugins act on the world."""
        ...

    @property
    def has_world(self) -> bool:
        """Whether there is a world, on which something acts or which something reads."""
        ...

    def begin(self, worker: Worker) -> float:
        """Return the multiple of the usual time that a worker's next step takes."""
        ...

    @property
    def pace(self) -> Callable[[float], Pace]:
        """What a step takes a worker of a speed."""
        ...

    @property
    def workers(self) -> MutableMapping[int, Worker]:
        """By node id."""
        ...

    def config(self, node: NodeSpec) -> _core.NodeConfig:
        """Return what a process of a node is told."""
        ...

    def tensor_name(self, key: int) -> str:
        """Return the name of a tensor."""
        ...

    def iteration(self, row: IterationRow, loss: float = math.nan) -> None:
        """Record a finished local step."""
        ...

    def write(self, row: IterationRow, loss: float = math.nan) -> None:
        """Write the row of a local step, with times of the run."""
        ...

    def evaluate(self, worker: Worker, step: int, end_s: float, final: bool) -> None:
        """Evaluate the first worker's parameters after `step`, which ended at `end_s`."""
        ...
