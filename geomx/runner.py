"""Runs experiments: simulated, live, or both.

This is the only module that knows both runners, the simulator and the live one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from geomx.config.compose import compose
from geomx.config.own_files import FLAG
from geomx.errors import ConfigError, GeomxError
from geomx.experiment.costs import this_machine
from geomx.experiment.experiment import Experiment
from geomx.experiment.validation import check_programs
from geomx.limits.rules import Calls, memory_limited
from geomx.limits.watchdog import attended, looking
from geomx.live import emulation, resume
from geomx.live.launcher import run_experiment
from geomx.live.resumption import Resumption
from geomx.live.spec import Spec
from geomx.pages import both
from geomx.results.prediction import compare
from geomx.results.results import Results
from geomx.scenario.programs import program_of
from geomx.sim.computing import Computing
from geomx.sim.script_members import leaving_allowed
from geomx.sim.scripts import simulate_script
from geomx.sim.simulation import simulate
from geomx.sim.world import World
from geomx.virtual.processes import Processes

_ASSIGNS = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@-]*=")
RUNNERS: dict[str, Callable[[Experiment, Path], Results]] = {
    "sim": simulate,
    "live": run_experiment,
}


def execute(
    experiment: Experiment, directory: Path, resumption: Resumption | None = None
) -> Results:
    """Run an experiment in its mode.

    With ``mode="both"`` the files are in ``directory/sim`` and ``directory/live``, with
    ``comparison.json``, a page that compares the runs and a trace of both beside them.

    Plugins' code runs in a separate thread, which the caller watches (`geomx.limits.watchdog`).

    Args:
        experiment: The experiment.
        directory: Directory of its files.
        resumption: How a live run is continued all of whose processes were killed.

    Returns:
        The results; with ``mode="both"`` those of the live run.

    Raises:
        ConfigError: It is a study, which has many results (see `geomx.study`).
        GeomxError: The run failed for a known reason.
        KeyboardInterrupt: The run was interrupted; its measurements are kept.
    """
    if experiment.study is not None:
        remedy = "a study has many results; call geomx.study.run, or set study=null"
        raise ConfigError("study", "", remedy)
    check(experiment)
    with memory_limited():
        return attended(lambda: _execute(experiment, directory, resumption))


def check(experiment: Experiment) -> None:
    """Check whether this machine can run an experiment live.

    Args:
        experiment: The experiment.

    Raises:
        ConfigError: It cannot; the message says what to choose instead.
    """
    if experiment.mode != "sim":
        emulation.check(experiment)
    if experiment.mode != "live":
        _check_anew(experiment)


def _check_anew(experiment: Experiment) -> None:
    """Refuse a simulation that is to begin with the state of a live run."""
    if experiment.begins_with:
        raise ConfigError("resume", experiment.begins_with, "begins live runs only: add mode=live")


def _execute(
    experiment: Experiment, directory: Path, resumption: Resumption | None = None
) -> Results:
    if experiment.mode == "both":
        return _execute_both(experiment, directory)
    calls = Calls(experiment.runtime.failure_timeout_s, experiment.selection)
    with _blaming(experiment), looking(calls):
        if resumption is not None:
            return run_experiment(experiment, directory, resumption=resumption)
        results: Results = RUNNERS[experiment.mode](experiment, directory)
        return results


@contextmanager
def _blaming(experiment: Experiment) -> Iterator[None]:
    """Name the plugin whose code raised an unexpected exception in the block."""
    try:
        yield
    except GeomxError:
        raise
    except (Exception, SystemExit) as error:
        blamed = experiment.selection.blamed(error)
        if blamed is None:
            raise
        raise blamed from error


def simulate_command(
    experiment: Experiment,
    directory: Path,
    command: Sequence[str],
    compute: str,
    shadows: bool = False,
) -> Results:
    """Simulate a training script: ``geomx simulate ... -- COMMAND``.

    Args:
        experiment: The network and the plugins; its workload does not count.
        directory: Directory of the files.
        command: The command of every worker.
        compute: What its computing takes, as of `geomx.sim.computing.Computing.read`.
        shadows: Whether only the first worker runs the command, and the others do what it does.

    Returns:
        The results.

    Raises:
        ConfigError: `compute` is not understood, or scripts cannot be simulated so.
        GeomxError: The run failed for a known reason.
    """
    _check_anew(experiment)
    computing = Computing.read(compute)
    workers = experiment.cluster.workers
    processes = Processes(
        workers[:1] if shadows else workers,
        command,
        directory,
        Spec.of(leaving_allowed(experiment)[0], script=True).to_json(),
        experiment.runtime.failure_timeout_s,
    )
    with _blaming(experiment):
        results: Results = simulate_script(
            experiment, directory, command, computing, processes, shadows
        )
        return results


def _execute_both(experiment: Experiment, directory: Path) -> Results:
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


def run(*overrides: str | Sequence[str], world: Callable[[World], object] | None = None) -> Results:
    """Run an experiment as the command line would, and return its results.

    Files are left where the command line leaves them; `Results.directory` says where. A sweep
    (``-m``) belongs to the command line, a study to `geomx.study.run`.

    Everything happens in a thread of its own, or in processes that are started for it; the process
    that calls this, its signal handlers, limits and settings stay as they are. It may be called
    from any thread, also where an event loop runs, as in a notebook; it returns when the run ends.

    Args:
        overrides: The overrides of the command line: in one sequence, or one by one.
        world: A function that is called with the simulated world when the run begins, and may
            start processes that act on it (docs/world.md).

    Returns:
        The results; with ``mode=both`` those of the live run.

    Raises:
        ConfigError: The overrides do not describe an experiment.
        GeomxError: The run failed for a reason that geomx knows.
        KeyboardInterrupt: It was interrupted; its processes have ended, what was measured is kept.

    Example:
        >>> results = run("workload=tiny", "iterations=4")
        >>> results.summary["rounds"]
        4
        >>> sorted(results.parameters())
        ['hidden.bias', 'hidden.weight', 'output.weight']
    """
    listed = _listed(overrides)

    def work() -> Results:
        if resume.asked(listed):
            return execute(*resume.read(listed))
        experiment, directory = compose(listed)
        if world is not None:
            programs = (*experiment.programs, program_of(world))
            experiment = dataclasses.replace(experiment, programs=programs)
            check_programs(experiment)
        return execute(experiment, directory)

    return attended(work)


def _listed(given: Sequence[str | Sequence[str]]) -> list[str]:
    """Return the overrides of a call, given as a sequence or one by one.

    Raises:
        ConfigError: One of them is a flag, is not a string, or contains several overrides.
    """
    one = given[0] if len(given) == 1 else ""
    overrides = list(one if isinstance(one, Iterable) and not isinstance(one, str) else given)
    for override in overrides:
        if not isinstance(override, str):
            remedy = 'overrides are strings such as "+sync=NAME", in one list or one by one'
            raise ConfigError("override", repr(override), remedy)
        if override.startswith("-"):
            instead = "write 'hydra.searchpath=[file:///FOLDER]'"
            what = instead if override.startswith(FLAG) else "leave it out"
            raise ConfigError("override", override, f"is a flag of the command line; {what}")
        parts = [override] if "'" in override or '"' in override else override.split()
        if len(parts) > 1 and all(_ASSIGNS.match(part) for part in parts):
            separate = ", ".join(repr(part) for part in parts)
            remedy = f"is {len(parts)} overrides; write [{separate}]"
            raise ConfigError("override", override, remedy)
    return [str(override) for override in overrides]
