"""One simulated run: SimPy's clock, the native fabric, the workers, and what is written down.

SimPy and the fabric take turns. The fabric may run ahead natively up to the next SimPy event, or to
the first instant at which a worker must be told something; then SimPy resumes at that time. Between
two SimPy events, messages by the thousand cost no Python at all.

Everything is deterministic: the same experiment with the same seed writes the same bytes.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import simpy
from simpy.events import EventPriority

from geomx import _core
from geomx.cluster import NodeSpec
from geomx.errors import GeomxError
from geomx.events import Event, Events
from geomx.experiment.experiment import Experiment
from geomx.experiment.native_parts import optimizers, training_optimizers
from geomx.experiment.wiring import node_config, shards
from geomx.limits.rules import uncollected
from geomx.limits.watchdog import if_abandoned, looking
from geomx.network.steps import draws_steps
from geomx.options.costs import WORK, CodecCosts
from geomx.pages import page
from geomx.plugin.parts import as_vector
from geomx.plugin.workloads import model_of
from geomx.results.recorder import Recorder
from geomx.results.results import Results
from geomx.scenario.events import PLACES
from geomx.sim.bundles import frames_per_event
from geomx.sim.clock import FOREVER, Clock
from geomx.sim.complaints import COMPLAINTS, tell
from geomx.sim.edge_samples import EdgeSamples
from geomx.sim.endpoints import charged, of_roles
from geomx.sim.members import Members
from geomx.sim.network import add_edges, connect
from geomx.sim.processes import Instant, failure
from geomx.sim.protocols import ARRIVED, OF_TRAINERS, IterationRow, Notice, Worker
from geomx.sim.repetition import Repetition
from geomx.sim.scenario import Acts, play
from geomx.sim.standbys import Standbys
from geomx.sim.standstill import standstill
from geomx.sim.totals import record_totals, recorded_if_it_fails
from geomx.sim.wire import delegate
from geomx.sim.worker import SimulatedWorker
from geomx.sim.world import World
from geomx.terminal.progress import progress, stage
from geomx.tracking.begin import begin
from geomx.training.pace import NS, Pace
from geomx.workload import Model

AFTER_EVERYTHING = EventPriority(3)
"""SimPy priority of the network: it runs after all other events of an instant."""


class Simulation:
    """One simulated experiment; the hook ``geomx_sim`` gets it before virtual time starts.

    Attributes:
        env: SimPy's environment; its clock counts integer nanoseconds, and delays are rounded
            up to one.
        experiment: The experiment.
        fabric: All nodes and the network between them.
        costs: Endpoint costs by kind of work, (seconds per message, seconds per byte); plugins may
            change them.
        events: For observers to subscribe to.
        model: The model, or None if sizes and times alone are simulated.
        initial: Its initial weights by key; None likewise.
        plan: Layers and tensors of all workers, for the fabric.
        global_optimizer: Optimizer of global servers as name and numbers; None: none.
        local_optimizer: Optimizer of workers after each local step, likewise.
        skipped_ns: Time that was skipped (see `geomx.sim.repetition`); the run's time is the sum of
            SimPy's and this.
        idle: Whether only plugins' processes and repeated acts of a scenario have events left, and
            no message is with a model of the network.
        programs: Functions of the world that begin with the run.
        acts: What may be done to links and nodes.
    """

    declares = True  # the shards are known before the run
    members_of = Members.of
    model_of = staticmethod(model_of)

    def __init__(self, experiment: Experiment, recorder: Recorder) -> None:
        self.env = Clock()
        self.experiment = experiment
        self.recorder = recorder
        self.events = Events()
        self.policy = experiment.selection.sync_policy(experiment.cluster)
        self.global_optimizer, self.local_optimizer = training_optimizers(
            experiment.cluster, experiment.selection, experiment.workload.optimizer
        )
        self.optimizer_factories = optimizers(experiment.selection)
        self.fabric = _core.Fabric(experiment.seed, experiment.sim.max_spans, experiment.fifo)
        self._codecs = dict(experiment.costs.codecs)
        self.costs = {work: self._cost_of(work) for work in WORK}
        workload = experiment.workload
        self.model = self.model_of(workload, experiment.seed) if experiment.numerics else None
        model, keys = self.model, range(len(workload.tensors))
        self.initial = (
            None if model is None else [as_vector(model.get(model.parameters, key)) for key in keys]
        )
        self.shards = shards(experiment.cluster, experiment.selection, workload.tensors)
        placed = zip(workload.tensors, self.shards, strict=True)
        self.plan = _core.TrainingPlan(
            len(workload.layers),
            [(tensor.elements, tensor.layer, pieces) for tensor, pieces in placed],
        )
        self._latest: tuple[Worker, int] | None = None
        self.members: Members | None = None
        self.skipped_ns = self._end_ns = 0
        self.idle = False
        self._world: World | None = None
        self.programs = experiment.programs
        self.advance: Any = lambda *args, **fields: None
        times_s = [(layer.forward_s, layer.backward_s) for layer in workload.layers]
        self.pace = lru_cache(maxsize=None)(partial(Pace.of, times_s))
        experiment.selection.sim(self)
        experiment.selection.events(self.events)
        self._build()

    def charge(self, accelerator: str, costs: CodecCosts) -> None:
        """Let encoding and decoding take what a plugin says, for `geomx_sim`.

        Counts where the experiment asks for plugins' figures (``costs.by_plugin``) and has none of
        its own for the accelerator (``costs.codecs``). See `geomx.sim.endpoints.charged`.
        """
        costs = charged(accelerator, costs, dict(self.experiment.selection.accel))
        if self.experiment.costs.by_plugin:
            self._codecs.setdefault(accelerator, costs)
            self.costs |= {work: self._cost_of(work) for work in ("encode", "decode")}

    def _cost_of(self, work: str) -> tuple[float, float]:
        accelerators = tuple(name for name, _ in self.experiment.selection.accel)
        return replace(self.experiment.costs, codecs=self._codecs).of(work, accelerators)

    def _build(self) -> None:
        cluster, experiment = self.experiment.cluster, self.experiment
        costs = of_roles(experiment, self.costs)
        self.fabric.share_cores(experiment.costs.cores or 0)
        self._bundled = frames_per_event(experiment, self.shards)
        wire = delegate(experiment, self.fabric)
        for node in stage(cluster.nodes, "building nodes"):
            self.fabric.add_node(self.config(node), costs[node.role])
        self.fabric.report_values(self.needs_values)
        self._edges = add_edges(self.fabric, cluster, experiment.seed)
        connect(self.fabric, cluster, experiment.selection, self._edges, experiment.tcp)
        self.standbys = Standbys(self, self._edges)
        self._wire = wire(self.env, cluster.nodes, self._edges)
        self.workers: dict[int, Worker] = {
            spec.id: self.worker(spec, rank) for rank, spec in enumerate(cluster.workers)
        }

    def worker(self, spec: NodeSpec, rank: int) -> Worker:
        """Return the worker of a node."""
        return SimulatedWorker(self, spec, rank)

    def config(self, node: NodeSpec) -> _core.NodeConfig:
        """Return what a process of a node is told."""
        experiment = self.experiment
        config = node_config(
            experiment.cluster,
            experiment.selection,
            node,
            phantom=self.model is None,
            runtime=experiment.runtime,
            faults=experiment.faults,
            live=False,
            seed=experiment.seed,
            placed=self.shards if self.declares else None,
        )
        config.bundle = self._bundled
        late = self.members.unjoined if self.members else experiment.event_schedule.late
        config.absent = sorted(late)
        return config

    # ---- running ----

    def run(self) -> Results:
        """Run to the end, record everything, and return the results.

        Raises:
            GeomxError: No event is left although workers are not done.
        """
        started = time.monotonic()
        self.repetition = Repetition(self)
        total = self.experiment.iterations * len(self.workers)
        self.members = self.members_of(self)
        self.acts = Acts(self, self.members)
        if self.members or self.experiment.event_schedule or self.programmed:
            self.fabric.expect_faults()
        if self.members:
            end: simpy.Event = self.members.start()
        else:
            processes = [self.env.process(worker.run()) for worker in self.workers.values()]
            end = simpy.AllOf(self.env, processes)
        self._schedule_network(0)
        play(self, self.experiment.event_schedule, end)
        self._start_programs()
        with progress(total or None, "simulating") as self.advance:
            self._go(end)
        return self._finish(time.monotonic() - started)

    @property
    def needs_values(self) -> bool:
        """Whether the simulation itself needs a notice of every new value at a worker."""
        return self.events.observed

    @property
    def programmed(self) -> bool:
        """Whether programs or plugins act on the world."""
        by_plugin = self.experiment.selection.answers("geomx_scenario")
        by_event = self.experiment.event_schedule.has(*PLACES, "slow")
        return bool(self.programs) or by_plugin or by_event

    @cached_property
    def has_world(self) -> bool:
        """Whether there is a world: programs act on it, or options read it or draw steps."""
        drawn = draws_steps(self.experiment.cluster.graph)
        return self.programmed or drawn or bool(self.experiment.sim.edges_every_s)

    @property
    def world(self) -> World:
        """The world, which is made when it is asked for."""
        if self._world is None:
            self._world = World(self, self._edges)
        return self._world

    def _start_programs(self) -> None:
        self.edge_samples = EdgeSamples.of(self, self._edges)
        if not self.has_world:
            return
        self.experiment.selection.scenario(self.world)
        for program in self.programs:
            program.start(self.world)

    def begin(self, worker: Worker) -> float:
        """Return the multiple of the usual time that a worker's next step takes."""
        return 1.0 if self._world is None else self._world.compute.begin(worker)

    def _go(self, end: simpy.Event) -> None:
        try:
            limit_s, base = self.experiment.runtime.failure_timeout_s, Simulation._go.__code__
            with looking(Instant(self, limit_s, base)), recorded_if_it_fails(self, self._edges):
                self.env.run(end)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            named = failure(error, self)
            if named is error:
                raise
            raise named from error

    def _schedule_network(self, delay_ns: int) -> None:
        event = self.env.event()
        event.callbacks = [self._run_network]
        event._ok, event._value = True, None
        self.env.schedule(event, AFTER_EVERYTHING, delay_ns)

    def _run_network(self, _: simpy.Event) -> None:
        if self._world is not None:
            self._world.look()
        horizon = self.env.peek()
        limit = FOREVER if math.isinf(horizon) else int(horizon)
        if limit == self.env.now:
            self._schedule_network(0)
            return
        reached = self.fabric.advance(limit)
        if reached == FOREVER:
            raise GeomxError(f"the simulation {standstill(self)}")
        coming = self.acts.coming or (self._wire is not None and self._wire.under_way)
        self.idle = reached == limit and self.fabric.idle and not coming
        if reached == limit:
            self._schedule_network(limit - self.env.now)
            return
        wake = self.env.timeout(max(reached - self.env.now, 0))
        wake.callbacks.append(self._deliver)

    def _deliver(self, _: simpy.Event) -> None:
        if self._wire is not None:
            self._wire.pass_on()
        notices = self.fabric.take_notices()
        if self._world is not None:
            self._world.wan.arrive(notices)
        self.repetition.look(notices)
        for notice in notices:
            hear = self.workers[notice[0]].hear if notice[1] in OF_TRAINERS else self._hear
            hear(notice)
        self._schedule_network(0)

    def _hear(self, notice: Notice) -> None:
        """Handle a notice that does not simply continue a worker."""
        node, kind, key, number, *_ = notice
        if self.standbys.hear(notice) or (self.members and self.members.hear(notice)):
            return
        if kind in COMPLAINTS:
            tell(self, notice)
        elif kind == ARRIVED:
            self.world.wan.tell_arrival()
        else:
            if kind == "value" and self._world is not None:
                self._world.value_arrived(node, key, number)
            self.workers[node].hear(notice)

    def tensor_name(self, key: int) -> str:
        """Return the name of a tensor."""
        return self.experiment.workload.tensors[key].name

    # ---- reports of workers ----

    def iteration(self, row: IterationRow, loss: float = math.nan) -> None:
        """Record a finished local step of a worker, `row`, with its training loss."""
        self.repetition.add(row)
        if self._world is not None:
            self._world.step_ended(row, loss)
        if self.acts.iterations.waiting and not row.worker.steps.last:
            self.acts.begin_step(row.worker.spec.id, row.step + 1)
        if later_ns := self.skipped_ns:
            row = row._replace(start_ns=row.start_ns + later_ns, end_ns=row.end_ns + later_ns)
        self.write(row, loss)
        self.advance(1, time_s=row.end_ns / NS, loss=None if math.isnan(loss) else loss)

    def write(self, row: IterationRow, loss: float = math.nan) -> None:
        """Write the row of a step, with times of the run."""
        worker, step, start_ns, end_ns = row
        known = None if math.isnan(loss) else loss
        end_s = end_ns / NS
        self.recorder.iteration(
            worker.spec.name,
            worker.spec.party,
            step,
            start_ns / NS,
            worker.took_s,
            max(0.0, (end_ns - start_ns) / NS - worker.took_s),
            end_s,
            known,
            self.experiment.workload.batch_size,
        )
        if end_ns >= self._end_ns:
            self._end_ns, self._latest = end_ns, (worker, step)
        if self.events.observed:
            self.events.publish([Event(end_s, worker.spec.name, "iteration", -1, step)])

    def evaluate(self, worker: Worker, step: int, end_s: float, final: bool) -> None:
        """Evaluate the first worker's parameters after `step`, which ended at `end_s`."""
        if self.model is not None and worker.rank == 0:
            self._judge(self.model, worker, step, end_s, final)

    def _judge_latest(self) -> None:
        """Evaluate the last worker to finish, if not all parties wait for all others.

        The first worker may finish long before the others change the model for the last time.
        """
        together = self.policy.together and self.members is None
        if self.model is None or together or self._latest is None:
            return
        worker, step = self._latest
        if worker.rank != 0 and worker.ended:
            self._judge(self.model, worker, step, self._end_ns / NS, final=True)

    def _judge(self, model: Model, worker: Worker, step: int, end_s: float, final: bool) -> None:
        tensors = self.experiment.workload.tensors
        values = [
            value.reshape(tensor.shape)
            for value, tensor in zip(worker.parameters, tensors, strict=True)
        ]
        accuracy, loss = model.evaluate(values)
        self.recorder.evaluation(end_s, step, accuracy, loss)
        if final:
            self.recorder.parameters(
                dict(zip((each.name for each in tensors), values, strict=True))
            )

    def _finish(self, wall_seconds: float) -> Results:
        self._judge_latest()
        rounds = record_totals(self, self._edges, self._end_ns / NS)
        if self.members:
            self.members.finish()
        return self.recorder.finish(self._end_ns / NS, rounds, wall_seconds)


def simulate(experiment: Experiment, directory: Path) -> Results:
    """Simulate `experiment` with its files in `directory`; return the results."""
    header = {**experiment.header(), "mode": "sim"}
    recorder = Recorder(directory, header, experiment.sim.max_spans, page.render)
    try:
        with if_abandoned(recorder.abort), uncollected():
            begin(recorder, experiment)
            return Simulation(experiment, recorder).run()
    except BaseException as error:
        recorder.abort(error)
        raise
