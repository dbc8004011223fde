"""``geomx launch JOB.yaml``: a training script, or an experiment, on many machines.

Without a command, the workload of the experiment is run as by ``python -m geomx mode=live`` on one
machine, with the same output files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from geomx.cluster import NodeSpec
from geomx.config.compose import compose
from geomx.errors import ConfigError
from geomx.experiment.experiment import Experiment
from geomx.live import access, emulation
from geomx.live.launcher import run_experiment, run_script
from geomx.live.spec import Spec
from geomx.machines import jobfile, reach
from geomx.machines.certs import folder_of
from geomx.machines.jobfile import JobFile
from geomx.machines.remote import RemoteJob, to_terminal
from geomx.machines.scripts import check_mode, composed_for_script
from geomx.results.results import Results
from geomx.terminal.log import environment
from geomx.terminal.output import telling_where


def launch(
    file: Path, overrides: Sequence[str], command: Sequence[str] = ()
) -> tuple[Path, Results]:
    """Run a job on the machines of a job file.

    Args:
        file: The job file.
        overrides: Overrides as for ``python -m geomx``, applied after those of the job file.
        command: Of the script that every worker runs; empty: the experiment's workload is run.

    Returns:
        Directory of the run, and its results.

    Raises:
        ConfigError: The file or an override is invalid.
        NodeLost: A node failed; the message names it and quotes its last output.
    """
    job = jobfile.read(file)
    for name, host in job.hosts.items():
        access.check(f"hosts.{name}.address", host.address, job.tls, job.insecure)
    with tempfile.TemporaryDirectory(prefix="geomx-") as folder:
        words = composed(job, overrides, Path(folder))
        if command:
            experiment, directory = composed_for_script(words, _check_durable)
        else:
            experiment, directory = compose(words)
            check_mode(experiment.mode, "geomx without launch simulates an experiment")
    if experiment.emulate != "none":
        remedy = "must be none: links between machines are not emulated"
        raise ConfigError("emulate", experiment.emulate, remedy)
    _check_durable(experiment)
    emulation.check(experiment)
    access.check_token(experiment.faults.absent, experiment.event_schedule.by_hand)
    start = _Start(job, experiment, directory, list(command))
    with telling_where(directory):
        if command:
            return directory, run_script(experiment, directory, command, start)
        return directory, run_experiment(experiment, directory, start)


def _check_durable(experiment: Experiment) -> None:
    """Check that nodes on several machines can resume as the options say.

    Raises:
        ConfigError: They cannot.
    """
    faults = experiment.faults
    if faults.logs("worker"):
        remedy = (
            "needs faults.on_loss=continue on several machines, where only global servers and the "
            "scheduler keep logs; choose that, or faults.durable=replica or none"
        )
        raise ConfigError("faults.durable", faults.durable, remedy)


def composed_experiment(job: JobFile, overrides: Sequence[str] = ()) -> Experiment:
    """Return the experiment of a job, without a directory.

    Args:
        job: The job file.
        overrides: Overrides given by the user.

    Raises:
        ConfigError: The network or an override is invalid.
    """
    with tempfile.TemporaryDirectory(prefix="geomx-") as name:
        folder = Path(name)
        return compose(composed(job, overrides, folder), directory=folder)[0]


def composed(job: JobFile, overrides: Sequence[str], folder: Path) -> list[str]:
    """Return the overrides that describe the experiment of a job.

    Args:
        job: The job file.
        overrides: Overrides given by the user.
        folder: Folder for the file of the network.
    """
    network = job.network_content()
    if not isinstance(network, str):
        written = folder / "network.yaml"
        written.write_text(yaml.safe_dump(network, sort_keys=False), encoding="utf-8")
        network = str(written)
    own = ["mode=live", "emulate=none", f"network={network}", f"runtime.port={job.port}"]
    return [*own, *job.words, *overrides]


class _Start:
    """Starts the nodes of a job on its machines."""

    def __init__(
        self, job: JobFile, experiment: Experiment, directory: Path, command: list[str]
    ) -> None:
        self._job = job
        self._directory = directory
        self._command = command
        self._homes = job.homes(experiment.cluster)
        self._insecure = {access.INSECURE: "1"} if job.insecure else {}
        self._tls: dict[str, dict[str, str]] = {}
        if job.tls is not None:
            for name in self._homes:
                self._tls[name] = access.read_files(folder_of(Path(job.tls), name))

    def __call__(self, spec: Spec) -> RemoteJob:
        width = max(map(len, self._homes))
        tell = to_terminal(width)
        return RemoteJob(spec, self._directory, self._argv, self._opening, tell, self._command)

    def _argv(self, node: NodeSpec) -> list[str]:
        job, name = self._job, self._homes[node.name]
        host = job.hosts[name]
        python = job.python_of(host)
        command = [*python, "-P", "-m", "geomx", "node", "--role", node.role, "--attached"]
        return reach.argv(host.reach or job.reach, name, host.address, command)

    def _opening(self, node: NodeSpec) -> dict[str, Any]:
        job, host = self._job, self._job.hosts[self._homes[node.name]]
        directory = host.directory if host.directory is not None else job.directory
        scripted = node.role == "worker" and self._command
        return {
            "host": host.address,
            "command": self._command if scripted else [],
            "directory": directory if scripted else "",
            "env": {**environment(), **job.env, **host.env, **self._insecure},
            "tls": self._tls.get(node.name, {}),
        }
