"""Launches live runs: starts their processes, records their measurements, and ends them.

`run_experiment` implements ``mode=live``; `run_script` implements ``geomx launch ... -- COMMAND``,
which runs a training script as every worker of a cluster on this machine.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from geomx.errors import GeomxError
from geomx.experiment import script_workload
from geomx.experiment.experiment import Experiment
from geomx.experiment.live_events import of_live_script
from geomx.experiment.native_parts import training_optimizers
from geomx.live import access, emulation
from geomx.live.checkpoint import begun_with
from geomx.live.collector import Collector
from geomx.live.files import Reader, experiment_file, script_file, stem
from geomx.live.job import POLL_S, Job
from geomx.live.resumption import Resumption
from geomx.live.spec import Spec
from geomx.pages import page
from geomx.results.recorder import Recorder
from geomx.results.results import Results
from geomx.terminal.progress import Advance, progress
from geomx.training.steps import Steps


class Running(Protocol):
    """The processes of a run: a context manager that starts them and ends them.

    Attributes:
        failed_s: When the first of them had failed, by this machine's clock; None: none has.
    """

    failed_s: float | None

    @property
    def gone(self) -> Collection[str]:
        """Names of the nodes that no process is, or will be."""
        ...

    def __enter__(self) -> Running: ...

    def __exit__(self, *raised: Any) -> None: ...

    def poll(self) -> bool:
        """Return whether a process is still running.

        Raises:
            NodeLost: A node has failed.
        """
        ...


def run_experiment(
    experiment: Experiment,
    directory: Path,
    start: Callable[[Spec], Running] | None = None,
    resumption: Resumption | None = None,
) -> Results:
    """Run an experiment with one process per node.

    Args:
        experiment: The experiment.
        directory: Directory of the results.
        start: Starts the processes; None: on this machine.
        resumption: The state from which a killed run is continued (`geomx.live.resume`); None: a
            new run begins.

    Returns:
        The results.

    Raises:
        ConfigError: This machine cannot run the experiment.
        NodeLost: A node failed; the error names it and the reason.
        PluginError: All workers wait for a coordinator that does not answer.
    """
    workload, cluster = experiment.workload, experiment.cluster
    training_optimizers(cluster, experiment.selection, workload.optimizer)
    emulation.check(experiment)
    access.check_token(experiment.faults.absent, experiment.event_schedule.by_hand)
    spec = _spec(experiment, directory, continues=resumption is not None)

    def job() -> Running:
        if start is not None:
            return start(spec)
        return Job(spec, directory, emulate=experiment.emulate, resumption=resumption)

    recorder = _recorder(experiment, directory)
    ahead_s = resumption.ahead_s if resumption else 0.0
    collector = Collector(experiment, directory, recorder, ahead_s=ahead_s)
    total = _steps_to_make(experiment, spec)
    return _run(job, collector, recorder, lambda: progress(total, "training"))


def _steps_to_make(experiment: Experiment, spec: Spec) -> int:
    """Return the local steps of all workers, without those of the run that this one continues."""
    cluster, iterations = experiment.cluster, experiment.iterations
    if spec.rounds_before == 0:
        return iterations * len(cluster.workers)
    policy = experiment.selection.sync_policy(cluster)
    total = 0
    for worker in cluster.workers:
        steps = Steps(policy, cluster, worker, iterations)
        steps.train([tensor.elements for tensor in experiment.workload.tensors])
        steps.resume(spec.rounds_before)
        total += 0 if steps.last else iterations - 1 - steps.step
    return total


def _spec(
    experiment: Experiment, directory: Path, script: bool = False, continues: bool = False
) -> Spec:
    """Return what the nodes know; those of a run that is continued have it in their journals."""
    if continues:
        return Spec.from_json(experiment_file(directory).read_text(encoding="utf-8"))
    spec, before = Spec.of(experiment, script), experiment.begins_with
    return begun_with(spec, before, directory) if before else spec


def _recorder(experiment: Experiment, directory: Path, **about: Any) -> Recorder:
    header = {**experiment.header(), "mode": "live", "emulate": experiment.emulate, **about}
    return Recorder(directory, header, render=page.render)


def _run(
    job: Callable[[], Running],
    collector: Collector,
    recorder: Recorder,
    bar: Callable[[], AbstractContextManager[Advance | None]] = nullcontext,
) -> Results:
    """Run a job, and record it while it happens, also if it fails."""
    began = time.perf_counter()
    ended_s: float | None = None
    try:
        collector.begin()
        with job() as running, bar() as advance:
            try:
                while running.poll():
                    collector.collect(advance)
                    collector.check(running.gone)
                    time.sleep(POLL_S)
            except BaseException:
                ended_s = running.failed_s or time.monotonic()
                raise
        collector.collect()
        return collector.finish(time.perf_counter() - began)
    except BaseException as error:
        collector.collect()
        until_s = collector.since_start_s(ended_s or time.monotonic())
        collector.total(until_s)
        collector.about_script()
        collector.record_faults(until_s, ended=True)
        recorder.abort(error)
        raise


def collect(experiment: Experiment, directory: Path) -> Results:
    """Record a finished run from the notes of its nodes, which may have had different clocks.

    Args:
        experiment: The experiment; its workload is not used if the run was a script's.
        directory: Directory of the run, which contains the notes of all nodes.

    Returns:
        The results.

    Raises:
        GeomxError: A node has not finished; the message names it.
    """
    without = _without(experiment, directory)
    for node in experiment.cluster.nodes:
        notes = list(Reader(stem(directory, node.name)).new())
        status = notes[-1].get("end", {}).get("status") if notes else None
        if status != "done" and node.name not in without:
            raise GeomxError(f"{directory}: node {node.name} has not finished ({status})")
    about: dict[str, Any] = {}
    if (command := _script_of(directory)) is not None:
        experiment, about = _scripted(experiment, command)
    recorder = _recorder(experiment, directory, **about)
    collector = Collector(experiment, directory, recorder, one_clock=False)
    collector.begin()
    collector.collect()
    return collector.finish(collector.seconds)


def _without(experiment: Experiment, directory: Path) -> set[str]:
    """Return the names of nodes without which a run has gone on: absent ones, and lost ones."""
    cluster = experiment.cluster
    names = {cluster.nodes[node].name for node in experiment.event_schedule.late}
    for note in Reader(stem(directory, cluster.scheduler.name)).new():
        if note.get("member") in ("gone", "moved"):
            names.update(note["names"])
        elif note.get("member") in ("back", "takes_part"):
            names.difference_update(note["names"])
    return names


def _script_of(directory: Path) -> list[str] | None:
    """Return the command of the script that nodes have run which were started by hand, or None."""
    try:
        if json.loads(experiment_file(directory).read_text(encoding="utf-8"))["workload"]:
            return None
        return shlex.split(script_file(directory).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _scripted(
    experiment: Experiment, command: Sequence[str]
) -> tuple[Experiment, dict[str, dict[str, str]]]:
    """Return an experiment with a script as its workload, and what the header has about it."""
    workload = script_workload.of(command)
    made = replace(experiment, workload=workload, numerics=True, iterations=0)
    return made, {"script": {"command": shlex.join(command)}}


def run_script(
    experiment: Experiment,
    directory: Path,
    command: Sequence[str],
    start: Callable[[Spec], Running] | None = None,
) -> Results:
    """Run a training script as every worker of a cluster.

    Args:
        experiment: The cluster and the plugins; its workload is not used.
        directory: Directory of the results.
        command: Command of the script.
        start: As for `run_experiment`.

    Returns:
        The results.

    Raises:
        ConfigError: This machine cannot run the cluster.
        NodeLost: A process failed; the error names it and the end of its log.
    """
    experiment = of_live_script(experiment)
    emulation.check(experiment)
    access.check_token(experiment.faults.absent, experiment.event_schedule.by_hand)
    spec = _spec(experiment, directory, script=True)

    def job() -> Running:
        if start is not None:
            return start(spec)
        return Job(spec, directory, list(command), experiment.emulate)

    scripted, about = _scripted(experiment, command)
    recorder = _recorder(scripted, directory, **about)
    return _run(job, Collector(scripted, directory, recorder), recorder)
