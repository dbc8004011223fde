"""Every option of an experiment that is not a plugin's, as dataclasses: types, defaults, meaning.

Hydra composes these with the options of the chosen plugins (`geomx.config.compose`); this module
knows nothing of Hydra, so that live node processes can use the same dataclasses without it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass, field
from typing import Any

from geomx.errors import ConfigError
from geomx.options.costs import Costs
from geomx.options.parsing import near, option

MODES = ("sim", "live", "both")
EMULATIONS = ("shaper", "netns", "none")
QUEUEING = ("priority", "fifo")
STUDIED = ("sync", "accel")
AIMS = TO_ACCURACY, PER_ITERATION = "time_to_accuracy", "seconds_per_iteration"
PACE = ("forward_ms", "backward_ms")


DEVICES = r"cpu|cuda(:\d+)?"
"""What names a device, as in PyTorch; cuda is the first GPU."""


NON_FINITE = ("warn", "refuse", "ignore")


@dataclass
class RuntimeOptions:
    """How the live runtime behaves (mode=live)."""

    # Seconds of silence after which a node counts as lost.
    failure_timeout_s: float = 5.0
    # Most payload bytes in one message, in both modes: an urgent message waits for at most one.
    frame_bytes: int = 262144
    # Let a live step take at least the workload's own time over the worker's speed; false: as fast
    # as this machine computes.
    pace: bool = True
    # TCP and UDP port of the scheduler; 0 lets the system choose a free one.
    port: int = 0
    # Threads of each process that work on one large tensor; null: this machine's cores, shared
    # among the processes of the run that are on it. Results do not depend on it.
    threads: int | None = None
    # A gradient, or parameters, with values that are NaN or infinite: warn, by worker and tensor;
    # refuse, which ends the run before others take them over; ignore. What lies on a GPU is not
    # looked at.
    non_finite: str = "warn"
    # Where servers run the optimizer and encode: cpu, cuda or cuda:N of the machine they are on.
    server_device: str = "cpu"

    def __post_init__(self) -> None:
        """Refuse what no run can work with."""
        if not re.fullmatch(DEVICES, self.server_device):
            raise ConfigError("server_device", self.server_device, "must be cpu, cuda or cuda:N")
        if self.non_finite not in NON_FINITE:
            raise ConfigError("non_finite", self.non_finite, near(self.non_finite, NON_FINITE))
        if self.threads is not None:
            _at_least("threads", self.threads, 1)
        _at_least("failure_timeout_s", self.failure_timeout_s, 0.1)
        _at_least("frame_bytes", self.frame_bytes, 1024)
        if not 0 <= self.port <= 65535:
            raise ConfigError("port", self.port, "must be between 0 and 65535")


@dataclass
class TcpOptions:
    """How WAN connections behave: the simulator's model, and in live mode the sockets."""

    # Congestion control: bbr (shares equally), cubic or reno (share by 1 / round-trip time).
    congestion: str = "bbr"
    # Connections that carry what one node sends another, in parallel: so many windows and shares.
    streams: int = 1
    # Most bytes that one connection has under way; its rate is at most this over the round trip.
    window_bytes: int = 2750000
    # What routers do with best-effort datagrams: priority (by their marks: after all else) or fifo
    # (first come, first served: senders hold them back); null: fifo with emulate=netns.
    queueing: str | None = None

    def __post_init__(self) -> None:
        """Refuse what the model does not know."""
        known = ("bbr", "cubic", "reno")
        if self.congestion not in known:
            raise ConfigError("congestion", self.congestion, near(self.congestion, known))
        if self.queueing not in (None, *QUEUEING):
            raise ConfigError("queueing", self.queueing, near(self.queueing, QUEUEING))
        _at_least("streams", self.streams, 1)
        _at_least("window_bytes", self.window_bytes, 1448)

    def over(self, emulate: str) -> TcpOptions:
        """These, with what is left open decided by what makes the network's links."""
        queueing = self.queueing or ("fifo" if emulate == "netns" else "priority")
        return dataclasses.replace(self, queueing=queueing)


@dataclass
class StudyOptions:
    """Several variants of one experiment, run and compared; none: a single run."""

    # One variant for every plugin found of these kinds: sync, accel.
    each: list[str] = field(default_factory=list)
    # More variants, each as words of the command line: "sync=NAME accel=[NAME,NAME]".
    variants: list[str] = field(default_factory=list)
    # The variant that the others are held against; empty: the default sync without accelerators.
    baseline: str = ""
    # Accuracy in 0..1 for "time to accuracy"; null: 95 % of the best that the baseline reaches.
    target_accuracy: float | None = None
    # Variants that run at the same time; null: one per core, one by one where runs are live.
    jobs: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no study can work with."""
        for kind in self.each:
            if kind not in STUDIED:
                raise ConfigError("each", kind, near(kind, STUDIED))
        if self.target_accuracy is not None and not 0 < self.target_accuracy <= 1:
            raise ConfigError("target_accuracy", self.target_accuracy, "must be above 0, at most 1")
        if self.jobs is not None:
            _at_least("jobs", self.jobs, 1)

    @property
    def wanted(self) -> bool:
        """Whether there is anything to compare."""
        return bool(self.each or self.variants)


@dataclass
class PlanOptions:
    """What ``geomx plan`` looks for, and where."""

    by: str | None = option(None, "time_to_accuracy, with real gradients, or seconds_per_iteration")
    target: float | None = option(None, "accuracy to reach, in 0..1; null: 95 % of the baseline's")
    max_loss: float = option(0.01, "by seconds_per_iteration: most accuracy that may be lost")
    candidates: int = option(64, "most combinations that are simulated")
    sync: list[str] | None = option(None, "sync algorithms to choose among; null: all")
    accel: list[str] | None = option(None, "accelerators to choose among; null: all")
    together: int = option(2, "most accelerators at once")
    options: bool = option(True, "also try values of options that plugins offer for a search")
    seeds: int = option(3, "runs of the best, with different seeds")
    live: int = option(0, "run so many of the best live at the end, one by one")
    jobs: int | None = option(None, "simulations at a time; null: one per core")
    fidelity: str | None = option(None, "what benchmarks/fidelity wrote; null: this checkout's")

    def __post_init__(self) -> None:
        """Refuse what no plan can work with."""
        if self.by is not None and self.by not in AIMS:
            raise ConfigError("by", self.by, near(self.by, AIMS))
        if self.target is not None and not 0 < self.target <= 1:
            raise ConfigError("target", self.target, "must be above 0, at most 1")
        _at_least("max_loss", self.max_loss, 0)
        for name, least in (("candidates", 2), ("together", 0), ("seeds", 1), ("live", 0)):
            _at_least(name, getattr(self, name), least)
        if self.sync == []:
            raise ConfigError("sync", "[]", "must name one at least; null means all")
        if self.jobs is not None:
            _at_least("jobs", self.jobs, 1)


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
    max_spans: int = 100000

    def __post_init__(self) -> None:
        """Refuse negative numbers."""
        _at_least("max_spans", self.max_spans, 0)


@dataclass
class Root:
    """The whole configuration, as ``python -m geomx --help`` shows it."""

    # sim: virtual time; live: real processes on this machine; both: both, and compared.
    mode: str = "sim"
    # What makes the network's links in a live run. shaper: each process, by the simulator's model;
    # netns: packets of the kernel's own TCP between network namespaces (needs root); none: nothing.
    emulate: str = "shaper"
    # Seeds everything that draws.
    seed: int = 0
    # Local steps per worker; null: as the workload says.
    iterations: int | None = None
    # true: real gradients; false: sizes and times only; null: true where the workload can.
    numerics: bool | None = None
    # Local steps between evaluations on held-out data; null: as the workload says.
    evaluate_every: int | None = None
    # Who takes part and what joins them: the content of a network file.
    network: dict[str, Any] = field(default_factory=dict)
    # What is trained; the options of the chosen workload.
    workload: Any = None
    # When nodes synchronise; the options of the chosen sync plugin.
    sync: Any = None
    # What makes it cheaper; options by accelerator, in order.
    accel: dict[str, Any] = field(default_factory=dict)
    # The live runtime.
    runtime: RuntimeOptions = field(default_factory=RuntimeOptions)
    # WAN connections.
    tcp: TcpOptions = field(default_factory=TcpOptions)
    # Endpoints in simulation, and measured times of layers. costs=NAME: none, or those of a device;
    # costs=FILE: what calibration wrote.
    costs: Costs = field(default_factory=Costs)
    # Compare variants of this experiment; null: run it as it is.
    study: StudyOptions | None = field(default_factory=StudyOptions)
    # The simulator itself.
    sim: SimOptions = field(default_factory=SimOptions)

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if self.mode not in MODES:
            raise ConfigError("mode", self.mode, near(self.mode, MODES))
        if self.emulate not in EMULATIONS:
            raise ConfigError("emulate", self.emulate, near(self.emulate, EMULATIONS))
        _at_least("seed", self.seed, 0)
        for name in ("iterations", "evaluate_every"):
            if getattr(self, name) is not None:
                _at_least(name, getattr(self, name), 1)


def _at_least(name: str, value: float, least: float) -> None:
    if not least <= value < math.inf:
        raise ConfigError(name, value, f"must be {least} or more")
