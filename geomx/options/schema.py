"""All options of an experiment that do not belong to plugins, as dataclasses.

Hydra composes these options with those of the selected plugins (`geomx.config.compose`). This
module does not import Hydra, because live node processes use it too.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Gt, Interval, MinLen

from geomx.errors import ConfigError
from geomx.options.bounds import Amount, Count, Device, OneOf, Seed, Share
from geomx.options.costs import Costs
from geomx.options.parsing import option

MODES = ("sim", "live", "both")
EMULATIONS = ("shaper", "netns", "none")
QUEUEING = ("priority", "fifo")
ACK_SHARE = 52 / (2 * 1500)
"""Bytes of a TCP acknowledgement with timestamps per byte of the two full segments it is about."""
STUDIED = ("sync", "accel")
AIMS = TO_ACCURACY, PER_ITERATION = "time_to_accuracy", "seconds_per_iteration"
PACE = ("forward_ms", "backward_ms")


@dataclass
class RuntimeOptions:
    """Options of the live runtime (mode=live)."""

    # Time limit in seconds: a longer wait is logged, a longer call of a plugin is an error, and a
    # node that is silent for longer is suspect (unless faults.suspect_s is set).
    failure_timeout_s: Annotated[float, Ge(0.1)] = 5.0
    # Upper bound on the payload bytes of a message, in both modes; an urgent message waits for at
    # most one other. Parts of codecs that cannot be cut come on top, and a message holds 64 MiB.
    frame_bytes: Annotated[int, Interval(ge=1024, le=32 << 20)] = 262144
    # true: a live step takes at least the workload's time divided by the worker's speed; false: it
    # runs as fast as this machine computes.
    pace: bool = True
    # TCP and UDP port of the scheduler; 0: any free port.
    port: Annotated[int, Interval(ge=0, le=65535)] = 0
    # Number of threads of each process for one large tensor; null: the cores of this machine
    # divided by the number of the run's processes on it. Results do not depend on it.
    threads: Annotated[int, Interval(ge=1, le=1024)] | None = None
    # Treatment of gradients or parameters that contain NaN or infinite values. warn: log worker and
    # tensor; refuse: end the run before other nodes receive them; ignore. Tensors on a GPU are not
    # checked.
    non_finite: Annotated[str, OneOf(("warn", "refuse", "ignore"))] = "warn"
    # Device on which servers update and encode: cpu, cuda or cuda:N of their machine.
    server_device: Device = "cpu"


def restart_delay_s(number: int) -> float:
    """Return the seconds before a node's restart `number` (1 or more): 0.05, 0.2, 0.8 … 10."""
    return min(10.0, 0.05 * 4.0 ** min(number - 1, 8))


def _number_of(quorum: float | None, members: int) -> int:
    """Return a quorum, which may be a share of `members`, as a number; 0: all."""
    if quorum is None:
        return 0
    return int(quorum) if quorum >= 1 else math.ceil(quorum * members - 1e-9)


@dataclass
class FaultOptions:
    """Treatment of lost links and nodes."""

    # Reaction to a suspect link or node. stop: end the run with an error that names it; wait: wait
    # until it responds again; continue: train without the lost worker or party.
    on_loss: Annotated[str, OneOf(("stop", "wait", "continue"))] = "stop"
    # Seconds of silence after which a peer is suspect; null: runtime.failure_timeout_s (5).
    suspect_s: Annotated[float | None, Ge(0.1)] = None
    # With wait: seconds of silence after which the run ends as with stop.
    patience_s: Annotated[float, Ge(0.1)] = 600.0
    # With continue: number of parties (below 1: their share) that must have contributed before a
    # global round may close without the others; null: rounds wait for all present parties.
    quorum: Annotated[float | None, Gt(0)] = None
    # Seconds for which a global round then waits for the others.
    deadline_s: Annotated[float | None, Ge(0)] = None
    # The same of the rounds of each party: workers (below 1: their share), and seconds.
    party_quorum: Annotated[float | None, Gt(0)] = None
    party_deadline_s: Annotated[float | None, Ge(0)] = None
    # Upper bound on the seconds between two attempts to reconnect; the first ones are sooner.
    redial_s: Annotated[float, Interval(ge=0.02, le=60)] = 1.0
    # log: nodes log what they receive in the folder durable/ of the run, and are restarted from
    # these logs when they are killed; other nodes wait meanwhile, as with wait. Workers that run
    # scripts or compute on GPUs have none; with continue, only global servers and the scheduler do.
    # replica: each global server has a standby, which repeats all that it does, and takes its place
    # at once when it is lost.
    durable: Annotated[str, OneOf(("none", "log", "replica"))] = "none"
    # With replica: the site (a party, or that of the global servers) where the standbys are; null:
    # each is beside its global server, where nothing is sent over the WAN twice.
    standby: str | None = None
    # Megabytes by which a log may grow before a snapshot of its node replaces it; at least four
    # times the snapshot.
    log_mb: Annotated[float, Ge(0)] = 64.0
    # true: the records of a log are on the disk before anything that depends on them is sent, so
    # that a run can be resumed after its machine has failed. false: they are left to the operating
    # system, which is enough when processes are killed.
    log_sync: bool = False
    # With continue: workers, or parties with all of theirs, that are absent at the start and join
    # during the run, by the scenario or by hand (geomx node --join).
    absent: list[str] = field(default_factory=list)
    # With durable=log or continue: how often each killed node is restarted, after increasing
    # delays.
    restarts: Amount = 3

    @property
    def continues(self) -> bool:
        """Whether training continues without lost workers and parties."""
        return self.on_loss == "continue"

    @property
    def waits(self) -> bool:
        """Whether nodes wait for silent ones, for up to `patience_s`."""
        return self.on_loss == "wait" or self.durable == "log"

    def logs(self, role: str) -> bool:
        """Return whether nodes of a role keep logs, from which their new processes resume."""
        return self.durable == "log" and not (self.continues and role in ("worker", "server"))

    def __post_init__(self) -> None:
        if self.absent and not self.continues:
            remedy = "needs faults.on_loss=continue, with which others train without them"
            raise ConfigError("absent", ",".join(self.absent), remedy)
        if self.standby is not None and self.durable != "replica":
            raise ConfigError(
                "standby", self.standby, "has no effect without faults.durable=replica"
            )
        self._check_quorum("", self.quorum, self.deadline_s, "parties")
        self._check_quorum("party_", self.party_quorum, self.party_deadline_s, "workers")

    def _check_quorum(
        self, of: str, quorum: float | None, deadline_s: float | None, members: str
    ) -> None:
        if quorum is None and deadline_s is not None:
            remedy = f"has no effect without faults.{of}quorum"
            raise ConfigError(f"{of}deadline_s", deadline_s, remedy)
        if quorum is None:
            return
        if quorum >= 1 and quorum != int(quorum):
            remedy = f"must be a whole number of {members}, or a share of them below 1"
            raise ConfigError(f"{of}quorum", quorum, remedy)
        if deadline_s is None:
            remedy = (
                f"needs faults.{of}deadline_s, the seconds for which a round then waits for the "
                "others"
            )
            raise ConfigError(f"{of}quorum", quorum, remedy)
        if not self.continues:
            remedy = (
                f"needs faults.on_loss=continue, with which rounds close without some {members}"
            )
            raise ConfigError(f"{of}quorum", quorum, remedy)

    def quorum_of(self, parties: int) -> int:
        """Return the number of parties, of `parties`, with which a round may close; 0: all."""
        return _number_of(self.quorum, parties)

    def party_quorum_of(self, workers: int) -> int:
        """Return the number of workers, of `workers`, with which a party's may close; 0: all."""
        return _number_of(self.party_quorum, workers)

    def suspect_after_s(self, runtime: RuntimeOptions) -> float:
        """Return the seconds of silence after which a peer is suspect."""
        return runtime.failure_timeout_s if self.suspect_s is None else self.suspect_s


@dataclass
class MetricsOptions:
    """Metrics of a live run for Prometheus and geomx top."""

    # TCP port of the scheduler's metrics, which include those of all nodes; node n of the network
    # serves its own at this port plus n. null: none are served.
    port: Annotated[int | None, Interval(ge=1, le=65535)] = None
    # Address to listen on. Beyond this machine, the job needs certificates (TLS).
    host: str = "127.0.0.1"


@dataclass
class TcpOptions:
    """WAN connections: the simulator's model, and the sockets of live runs."""

    # Congestion control: bbr (equal shares), cubic or reno (shares by 1 / round-trip time).
    congestion: Annotated[str, OneOf(("bbr", "cubic", "reno"))] = "bbr"
    # Number of parallel connections from one node to another, each with its own window and share.
    streams: Count = 1
    # Upper bound on the unacknowledged bytes of a connection; limits its rate to window / round
    # trip time.
    window_bytes: Annotated[int, Ge(1448)] = 2750000
    # Queueing of best-effort datagrams by routers. priority: after all other packets, by their
    # marks; fifo: in the order of arrival, so senders delay them; null: fifo with emulate=netns,
    # else priority.
    queueing: Annotated[str | None, OneOf(QUEUEING)] = None
    # Bytes of acknowledgements on the way back per byte sent, headers included. null: 0 with
    # emulate=shaper, which sends none over the network that it emulates, else 0.0173: one of 52
    # bytes per two segments of 1500.
    ack_share: Annotated[float, Interval(ge=0, lt=1)] | None = None

    def over(self, emulate: str) -> TcpOptions:
        """Return these options with null values replaced by the defaults of `emulate`."""
        queueing = self.queueing or ("fifo" if emulate == "netns" else "priority")
        ack_share = self.ack_share
        if ack_share is None and emulate != "shaper":
            ack_share = ACK_SHARE
        return dataclasses.replace(self, queueing=queueing, ack_share=ack_share)


@dataclass
class StudyOptions:
    """Variants of the experiment to run and compare; without any, the experiment itself is run."""

    # One variant for each installed plugin of these kinds: sync, accel.
    each: list[Annotated[str, OneOf(STUDIED)]] = field(default_factory=list)
    # More variants, each as overrides of the command line: "sync=NAME accel=[NAME,NAME]".
    variants: list[str] = field(default_factory=list)
    # The variant with which the others are compared; empty: the default sync, no accelerators.
    baseline: str = ""
    # Accuracy in 0..1 for "time to accuracy"; null: 95 % of the baseline's best accuracy.
    target_accuracy: Share | None = None
    # Number of variants that run at the same time; null: one per core, or one if runs are live.
    jobs: Count | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is anything to compare."""
        return bool(self.each or self.variants)


@dataclass
class PlanOptions:
    """The search of ``geomx plan``."""

    by: Annotated[str | None, OneOf(AIMS)] = option(
        None, "time_to_accuracy, with real gradients, or seconds_per_iteration"
    )
    target: Share | None = option(None, "accuracy to reach, in 0..1; null: 95 % of the baseline's")
    max_loss: Annotated[float, Ge(0)] = option(
        0.01, "by seconds_per_iteration: limit on the loss of accuracy"
    )
    candidates: Annotated[int, Ge(2)] = option(64, "limit on the combinations to simulate")
    sync: Annotated[list[str] | None, MinLen(1)] = option(
        None, "sync algorithms to choose among; null: all"
    )
    accel: list[str] | None = option(None, "accelerators to choose among; null: all")
    together: Amount = option(2, "limit on the accelerators of a combination")
    options: bool = option(True, "also try values of options that plugins offer for a search")
    seeds: Count = option(3, "runs of the best, with different seeds")
    live: Amount = option(0, "number of the best combinations to run live at the end")
    tried: Count = option(3, "of a script: number of the best that it is simulated with")
    jobs: Count | None = option(None, "simulations at a time; null: one per core")
    fidelity: str | None = option(None, "file from benchmarks/fidelity; null: this checkout's")


@dataclass
class SimOptions:
    """Options of the simulator (mode=sim)."""

    # In a simulation without gradients that repeats itself exactly, count the repetitions instead
    # of simulating them. Results are the same.
    skip: bool = True
    # Simulate several frames of a tensor of more than 128 MiB as one event if nothing could be sent
    # in between: without numerics, slices, priorities, coordinators and jitter, with frames of
    # 256 KiB. Bytes and messages are the same; times differ by at most 0.4 % of the handling time.
    bundle: bool = True
    # Seconds between readings of all limited edges, for edges_over_time.csv, the peaks in edges.csv
    # and the report; null: none. With readings, every iteration is simulated.
    edges_every_s: Annotated[float, Ge(0.001)] | None = None
    # Model of the network: fluid; reference, the same laws in Python, for small runs; or NAME.py, a
    # file whose function wan_model() returns a geomx.WanModel. Plugins may have one too.
    wan: str = "fluid"
    # Upper bound on the spans stored for the timeline; half of them are from the run's beginning.
    max_spans: Amount = 100000


@dataclass
class Root:
    """The complete configuration, as ``python -m geomx --help`` shows it."""

    # sim: virtual time; live: real processes on this machine; both: run and compare both.
    mode: Annotated[str, OneOf(MODES)] = "sim"
    # Emulation of the network in a live run. shaper: each process delays its messages by the
    # simulator's model; netns: the kernel's TCP between network namespaces (needs root); none.
    emulate: Annotated[str, OneOf(EMULATIONS)] = "shaper"
    # Seed of all random numbers.
    seed: Seed = 0
    # Local steps per worker; null: the workload's default.
    iterations: Count | None = None
    # true: real gradients; false: sizes and times only; null: true if the workload supports it.
    numerics: bool | None = None
    # Local steps between evaluations on held-out data; null: the workload's default.
    evaluate_every: Count | None = None
    # Sites, nodes and links: the content of a network file.
    network: dict[str, Any] = field(default_factory=dict)
    # Options of the selected workload.
    workload: Any = None
    # Options of the selected sync plugin.
    sync: Any = None
    # Options of the selected accelerators by name, in order.
    accel: dict[str, Any] = field(default_factory=dict)
    # Options of the selected experiment trackers by name.
    track: dict[str, Any] = field(default_factory=dict)
    # Options of the live runtime.
    runtime: RuntimeOptions = field(default_factory=RuntimeOptions)
    # Treatment of lost links and nodes.
    faults: FaultOptions = field(default_factory=FaultOptions)
    # Metrics of a live run.
    metrics: MetricsOptions = field(default_factory=MetricsOptions)
    # Directory of a live run with faults.durable=log whose processes were all killed: resumes it,
    # with the experiment that the directory contains. With network=...: a new live run begins with
    # its parameters, optimizers and steps.
    resume: str | None = None
    # Faults and other events to inject during the run: a list, or the name of a YAML file.
    scenario: Any = field(default_factory=list)
    # WAN connections.
    tcp: TcpOptions = field(default_factory=TcpOptions)
    # Endpoint costs in simulation, and measured times of layers. costs=NAME: none, or a device;
    # costs=FILE: a file from geomx calibrate.
    costs: Costs = field(default_factory=Costs)
    # Variants of this experiment to compare; null: run it as it is.
    study: StudyOptions | None = field(default_factory=StudyOptions)
    # Options of the simulator.
    sim: SimOptions = field(default_factory=SimOptions)
