"""Every option of an experiment that is not a plugin's, as dataclasses: types, defaults, meaning.

Hydra composes these with the options of the chosen plugins (`geomx.config.compose`); this module
knows nothing of Hydra, so that live node processes can use the same dataclasses without it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Interval, MinLen

from geomx.errors import ConfigError
from geomx.options.bounds import Amount, Count, Device, OneOf, Share
from geomx.options.costs import Costs
from geomx.options.parsing import option

MODES = ("sim", "live", "both")
EMULATIONS = ("shaper", "netns", "none")
QUEUEING = ("priority", "fifo")
STUDIED = ("sync", "accel")
AIMS = TO_ACCURACY, PER_ITERATION = "time_to_accuracy", "seconds_per_iteration"
PACE = ("forward_ms", "backward_ms")


@dataclass
class RuntimeOptions:
    """How the live runtime behaves (mode=live)."""

    # Seconds after which a wait is worth a line, that one call of a plugin may take, and of silence
    # after which a node is suspect, unless faults.suspect_s says otherwise.
    failure_timeout_s: Annotated[float, Ge(0.1)] = 5.0
    # Most payload bytes in one message, in both modes: an urgent message waits for at most one.
    frame_bytes: Annotated[int, Ge(1024)] = 262144
    # Let a live step take at least the workload's own time over the worker's speed; false: as fast
    # as this machine computes.
    pace: bool = True
    # TCP and UDP port of the scheduler; 0 lets the system choose a free one.
    port: Annotated[int, Interval(ge=0, le=65535)] = 0
    # Threads of each process that work on one large tensor; null: this machine's cores, shared
    # among the processes of the run that are on it. Results do not depend on it.
    threads: Count | None = None
    # A gradient, or parameters, with values that are NaN or infinite: warn, by worker and tensor;
    # refuse, which ends the run before others take them over; ignore. What lies on a GPU is not
    # looked at.
    non_finite: Annotated[str, OneOf(("warn", "refuse", "ignore"))] = "warn"
    # Where servers run the optimizer and encode: cpu, cuda or cuda:N of the machine they are on.
    server_device: Device = "cpu"


@dataclass
class FaultOptions:
    """What a run does when it loses a link or a node."""

    # A link or node over or from which nothing has come for suspect_s: stop, which ends the run and
    # names it; wait, until something comes again; continue, without the lost worker or party.
    on_loss: Annotated[str, OneOf(("stop", "wait", "continue"))] = "stop"
    # Seconds of silence after which the far end of a link is suspect; null:
    # runtime.failure_timeout_s, which is 5.
    suspect_s: Annotated[float | None, Ge(0.1)] = None
    # With wait: seconds of silence after which the run ends as with stop.
    patience_s: Annotated[float, Ge(0.1)] = 600.0
    # Most seconds between two attempts to make a broken connection again; the first come sooner.
    redial_s: Annotated[float, Interval(ge=0.02, le=60)] = 1.0
    # log: servers and the scheduler write what they receive to the folder durable/ of the run, and
    # are restarted from there when they are killed; others wait meanwhile, as with wait. The files
    # grow with all that is received.
    durable: Annotated[str, OneOf(("none", "log"))] = "none"
    # With durable=log or continue: how often one node that was killed is restarted, at growing
    # intervals.
    restarts: Amount = 3

    @property
    def continues(self) -> bool:
        """Whether training goes on without a worker or a party that is lost."""
        return self.on_loss == "continue"

    @property
    def waits(self) -> bool:
        """Whether a silent node is waited for, as long as `patience_s`."""
        return self.on_loss == "wait" or self.durable == "log"

    def __post_init__(self) -> None:
        if self.continues and self.durable == "log":
            remedy = "lets others wait for nodes that were killed; choose on_loss=wait with it"
            raise ConfigError("durable", self.durable, remedy)

    def suspect_after_s(self, runtime: RuntimeOptions) -> float:
        """Seconds of silence after which the far end of a link is suspect."""
        return runtime.failure_timeout_s if self.suspect_s is None else self.suspect_s


@dataclass
class TcpOptions:
    """How WAN connections behave: the simulator's model, and in live mode the sockets."""

    # Congestion control: bbr (shares equally), cubic or reno (share by 1 / round-trip time).
    congestion: Annotated[str, OneOf(("bbr", "cubic", "reno"))] = "bbr"
    # Connections that carry what one node sends another, in parallel: so many windows and shares.
    streams: Count = 1
    # Most bytes that one connection has under way; its rate is at most this over the round trip.
    window_bytes: Annotated[int, Ge(1448)] = 2750000
    # What routers do with best-effort datagrams: priority (by their marks: after all else) or fifo
    # (first come, first served: senders hold them back); null: fifo with emulate=netns.
    queueing: Annotated[str | None, OneOf(QUEUEING)] = None

    def over(self, emulate: str) -> TcpOptions:
        """Return these options with open values set to what fits the emulation `emulate`."""
        queueing = self.queueing or ("fifo" if emulate == "netns" else "priority")
        return dataclasses.replace(self, queueing=queueing)


@dataclass
class StudyOptions:
    """Several variants of one experiment, run and compared; none: a single run."""

    # One variant for every plugin found of these kinds: sync, accel.
    each: list[Annotated[str, OneOf(STUDIED)]] = field(default_factory=list)
    # More variants, each as words of the command line: "sync=NAME accel=[NAME,NAME]".
    variants: list[str] = field(default_factory=list)
    # The variant that the others are held against; empty: the default sync without accelerators.
    baseline: str = ""
    # Accuracy in 0..1 for "time to accuracy"; null: 95 % of the best that the baseline reaches.
    target_accuracy: Share | None = None
    # Variants that run at the same time; null: one per core, one by one where runs are live.
    jobs: Count | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is anything to compare."""
        return bool(self.each or self.variants)


@dataclass
class PlanOptions:
    """What ``geomx plan`` looks for, and where."""

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
    jobs: Count | None = option(None, "simulations at a time; null: one per core")
    fidelity: str | None = option(None, "file from benchmarks/fidelity; null: this checkout's")


@dataclass
class SimOptions:
    """How the simulator works, and how much it keeps (mode=sim)."""

    # Where sizes and times alone are simulated and the run repeats itself exactly: count what
    # repeats instead of simulating it. Results are the same.
    skip: bool = True
    # Let several frames of a tensor of more than 128 MiB leave as one event where nothing could
    # come between: without numerics, slices, priorities, coordinators or jitter, with frames of
    # 256 KiB. Bytes and messages are the same, times within 0.4 % of what handling takes.
    bundle: bool = True
    # Most spans that are kept for the timeline; half of them of the run's beginning.
    max_spans: Amount = 100000


@dataclass
class Root:
    """The whole configuration, as ``python -m geomx --help`` shows it."""

    # sim: virtual time; live: real processes on this machine; both: both, and compared.
    mode: Annotated[str, OneOf(MODES)] = "sim"
    # What makes the network's links in a live run. shaper: each process, by the simulator's model;
    # netns: packets of the kernel's own TCP between network namespaces (needs root); none: nothing.
    emulate: Annotated[str, OneOf(EMULATIONS)] = "shaper"
    # Seeds everything that draws.
    seed: Amount = 0
    # Local steps per worker; null: as the workload says.
    iterations: Count | None = None
    # true: real gradients; false: sizes and times only; null: true where the workload can.
    numerics: bool | None = None
    # Local steps between evaluations on held-out data; null: as the workload says.
    evaluate_every: Count | None = None
    # Sites, nodes and links: the content of a network file.
    network: dict[str, Any] = field(default_factory=dict)
    # What is trained; the options of the chosen workload.
    workload: Any = None
    # When nodes synchronise; the options of the chosen sync plugin.
    sync: Any = None
    # What makes it cheaper; options by accelerator, in order.
    accel: dict[str, Any] = field(default_factory=dict)
    # The live runtime.
    runtime: RuntimeOptions = field(default_factory=RuntimeOptions)
    # Links and nodes that are lost.
    faults: FaultOptions = field(default_factory=FaultOptions)
    # What happens to links and nodes meanwhile: a list of happenings, or a YAML file of one.
    scenario: Any = field(default_factory=list)
    # WAN connections.
    tcp: TcpOptions = field(default_factory=TcpOptions)
    # Endpoints in simulation, and measured times of layers. costs=NAME: none, or those of a device;
    # costs=FILE: what calibration wrote.
    costs: Costs = field(default_factory=Costs)
    # Compare variants of this experiment; null: run it as it is.
    study: StudyOptions | None = field(default_factory=StudyOptions)
    # The simulator itself.
    sim: SimOptions = field(default_factory=SimOptions)
