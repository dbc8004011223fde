"""One experiment: what is trained, by whom, over which network, with which plugins; and its run.

An `Experiment` is mode-free data. The runner of each mode is found by name, so that this package
imports neither the simulator nor the live runtime before one of them is wanted.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geomx.attended import attended, looking
from geomx.cluster import Cluster
from geomx.config import RuntimeOptions, SimOptions, StudyOptions, TcpOptions
from geomx.costs import Costs, doubt_costs, this_machine
from geomx.doubts import LOSS_BASED, doubt_uneven_round_trips
from geomx.effects import doubt_idle_plugins
from geomx.errors import ConfigError, GeomxError
from geomx.patience import Calls, memory_limited
from geomx.registry import Selection
from geomx.workload import Workload

if TYPE_CHECKING:
    from geomx.results import Results

SCHEMA = 1
_ASSIGNS = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@-]*=")
RUNNERS = {"sim": "geomx.sim:run", "live": "geomx.live:run"}


@dataclass
class Experiment:
    """Everything that a run needs to know.

    Attributes:
        mode: ``sim``, ``live`` or ``both``.
        seed: Seeds everything that draws.
        iterations: Local steps per worker.
        numerics: Whether real gradients are computed.
        cluster: Who takes part, and the network.
        workload: What is trained.
        selection: The plugins, in order.
        evaluate_every: Local steps between evaluations.
        runtime: Options of the live runtime.
        tcp: Options of WAN connections.
        emulate: What makes the network's links in a live run: ``shaper``, ``netns`` or ``none``.
        costs: Endpoint costs in simulation, and where they come from.
        sim: Options of the simulator itself.
        words: The words of the command line that repeat it.
        workload_options: The workload's options as given; live processes build it from them.
        study: What to compare instead of running this experiment itself; None: nothing.
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
    tcp: TcpOptions = field(default_factory=TcpOptions)
    emulate: str = "shaper"
    costs: Costs = field(default_factory=Costs)
    sim: SimOptions = field(default_factory=SimOptions)
    words: list[str] = field(default_factory=list)
    workload_options: dict[str, Any] = field(default_factory=dict)
    study: StudyOptions | None = None

    def __post_init__(self) -> None:
        """Decide what the links' options leave open."""
        self.tcp = self.tcp.over(self.emulate)

    def validate(self) -> None:
        """Ask every plugin whether it can take part, and refuse two that decide the same.

        Raises:
            ConfigError: One cannot, or two do; or the live run cannot be made here.
            PluginError: A plugin broke a rule.

        Warns:
            ModelDoubt: The prediction will not be exact.
            PluginDoubt: An accelerator changes nothing.
        """
        doubt_costs(self.costs, version(), here=self.mode != "sim")
        self.selection.validate(self)
        self.selection.sync_policy(self.cluster)
        self.selection.placement(self.cluster, self.workload.tensors)
        doubt_idle_plugins(self)
        if self.mode != "sim":
            # Found by name, like the runners.
            importlib.import_module("geomx.live.places").check(self)
        if self.tcp.congestion in LOSS_BASED:
            from geomx.links import wan_ways

            doubt_uneven_round_trips(self.tcp.congestion, wan_ways(self.cluster, self.selection))

    @property
    def on_device(self) -> bool:
        """Whether workers' tensors lie on a GPU."""
        said = self.costs.on_device
        return self.workload.device != "cpu" if said is None else said

    def header(self) -> dict[str, Any]:
        """The part of ``summary.json`` that is known before the run."""
        sync, options = self.selection.sync
        return {
            "schema": SCHEMA,
            "geomx": version(),
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
            "words": list(self.words),
        }


def version() -> str:
    """The installed version of geomx."""
    try:
        return importlib.metadata.version("geomx")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def execute(experiment: Experiment, directory: Path) -> Results:
    """Run an experiment in its mode, leaving its files in `directory`.

    With ``mode="both"`` the files are in ``directory/sim`` and ``directory/live``; beside them,
    ``comparison.json``, a page that shows one over the other and a trace of both. The results
    returned are those of the live run.

    Plugins' code runs in a thread of its own, and the caller looks on (`geomx.attended`).

    Raises:
        ConfigError: It is a study, which has many results (see `geomx.study`).
        GeomxError: The run failed in a way that has a sentence.
        KeyboardInterrupt: The caller was interrupted; what was measured is kept.
    """
    if experiment.study is not None:
        remedy = "many results; run it by geomx.study.run or the command line, or say study=null"
        raise ConfigError("study", "", remedy)
    with memory_limited():
        return attended(lambda: _execute(experiment, directory))


def _execute(experiment: Experiment, directory: Path) -> Results:
    if experiment.mode != "both":
        module, function = RUNNERS[experiment.mode].split(":")
        calls = Calls(experiment.runtime.failure_timeout_s, experiment.selection)
        try:
            with looking(calls):
                return getattr(importlib.import_module(module), function)(experiment, directory)
        except GeomxError:
            raise
        except Exception as error:
            blamed = experiment.selection.blamed(error)
            if blamed is None:
                raise
            raise blamed from error
    from geomx.prediction import compare
    from geomx.report import both

    if experiment.costs.cores is None:
        _, cores = this_machine()
        costs = dataclasses.replace(experiment.costs, cores=cores)
        experiment = dataclasses.replace(experiment, costs=costs)
    sim, live = (
        _execute(dataclasses.replace(experiment, mode=mode), directory / mode)
        for mode in ("sim", "live")
    )
    both.leave(sim, live, compare(sim, live), directory)
    return live


def run(*words: str | Sequence[str]) -> Results:
    """Run the experiment that `words` describe, as the command line would (`geomx.run`).

    Files are left where the command line leaves them; `Results.directory` says where. A sweep
    (``-m``) belongs to the command line, a study to `geomx.study.run`.

    Everything happens in a thread of its own, or in processes that are started for it; the process
    that calls this, its signal handlers, limits and settings stay as they are. It may be called
    from any thread, also where an event loop runs, as in a notebook; it returns when the run ends.

    Args:
        words: The words of the command line: in one sequence, or one by one.

    Raises:
        ConfigError: The words do not describe an experiment.
        GeomxError: The run failed in a way that has a sentence.
        KeyboardInterrupt: It was interrupted; its processes have ended, what was measured is kept.
    """
    listed = _words(words)

    def work() -> Results:
        from geomx.compose import compose

        experiment, directory = compose(listed)
        return execute(experiment, directory)

    return attended(work)


def _words(given: Sequence[str | Sequence[str]]) -> list[str]:
    """The words of a call: a sequence of them, or each by itself.

    Raises:
        ConfigError: One of them is a flag, no text, or several words in one text.
    """
    one = given[0] if len(given) == 1 else ""
    words = list(one if isinstance(one, Iterable) and not isinstance(one, str) else given)
    for word in words:
        if not isinstance(word, str):
            remedy = 'words are texts like "+sync=NAME", in one list or one by one'
            raise ConfigError("word", repr(word), remedy)
        if word.startswith("-"):
            raise ConfigError("word", word, "flags belong to the command line")
        parts = [word] if "'" in word or '"' in word else word.split()
        if len(parts) > 1 and all(_ASSIGNS.match(part) for part in parts):
            separate = ", ".join(repr(part) for part in parts)
            raise ConfigError("word", word, f"is {len(parts)} words; write [{separate}]")
    return [str(word) for word in words]
