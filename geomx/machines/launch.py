"""``geomx launch JOB.yaml``: a training script, or an experiment, on many machines.

Without a command the workload of the experiment is run, as ``python -m geomx mode=live`` does on
one machine, and the same files are left behind.
"""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from geomx.cli.machines import split
from geomx.cluster import NodeSpec
from geomx.errors import ConfigError
from geomx.live import access, emulation
from geomx.live.launcher import run_experiment
from geomx.live.spec import Spec
from geomx.machines import jobfile, reach
from geomx.machines.certs import folder_of
from geomx.machines.jobfile import JobFile
from geomx.machines.remote import POLL_S, RemoteJob, to_terminal

if TYPE_CHECKING:
    from geomx.experiment.experiment import Experiment
    from geomx.results.results import Results


def launch(file: Path, arguments: Sequence[str]) -> tuple[Path, Results | None]:
    """Run a job on the machines of `file`.

    Args:
        file: The job file.
        arguments: Words as for ``python -m geomx``, then perhaps ``--`` and a command.

    Returns:
        Where the files of the run are; the results, if it was an experiment.

    Raises:
        ConfigError: The file or a word is wrong.
        NodeLost: A node failed; says which, and its last words.
    """
    from geomx.config.compose import compose

    words, command = split(list(arguments))
    if "--" in arguments and not command:
        raise ConfigError("launch", shlex.join(arguments), "there is no command after --")
    job = jobfile.read(file)
    for name, host in job.hosts.items():
        access.check(f"hosts.{name}.address", host.address, job.tls, job.insecure)
    with tempfile.TemporaryDirectory(prefix="geomx-") as folder:
        experiment, directory = compose(composed(job, words, Path(folder)))
    if experiment.emulate != "none":
        remedy = "there are real links between machines: emulate=none"
        raise ConfigError("emulate", experiment.emulate, remedy)
    emulation.check(experiment)
    start = _Start(job, experiment, directory, command)
    if not command:
        return directory, run_experiment(experiment, directory, start)
    with start(Spec.of(experiment, script=True)) as running:
        while running.poll():
            time.sleep(POLL_S)
    return directory, None


def composed_experiment(job: JobFile, words: Sequence[str] = ()) -> Experiment:
    """The experiment of a job, without a directory of its own.

    Raises:
        ConfigError: The network or a word is wrong.
    """
    from geomx.config.compose import compose

    with tempfile.TemporaryDirectory(prefix="geomx-") as name:
        folder = Path(name)
        return compose(composed(job, words, folder), directory=folder)[0]


def composed(job: JobFile, words: Sequence[str], folder: Path) -> list[str]:
    """The words of the command line that describe the experiment of a job.

    Args:
        job: The job file.
        words: Those that the user typed.
        folder: Where the network may be written.
    """
    network = job.network_content()
    if not isinstance(network, str):
        written = folder / "network.yaml"
        written.write_text(yaml.safe_dump(network, sort_keys=False), encoding="utf-8")
        network = str(written)
    own = ["mode=live", "emulate=none", f"network={network}", f"runtime.port={job.port}"]
    return [*own, *job.words, *words]


class _Start:
    """Makes the nodes of a job on its machines."""

    def __init__(
        self, job: JobFile, experiment: Experiment, directory: Path, command: list[str]
    ) -> None:
        self._job = job
        self._directory = directory
        self._command = command
        self._homes = job.homes(experiment.cluster)
        self._tls: dict[str, dict[str, str]] = {}
        if job.tls is not None:
            for name in self._homes:
                self._tls[name] = access.read_files(folder_of(Path(job.tls), name))

    def __call__(self, spec: Spec) -> RemoteJob:
        width = max(map(len, self._homes))
        tell = to_terminal(width)
        return RemoteJob(spec, self._directory, self._words, self._opening, tell, self._command)

    def _words(self, node: NodeSpec) -> list[str]:
        job, name = self._job, self._homes[node.name]
        host = job.hosts[name]
        python = shlex.split(job.python_of(host))
        command = [*python, "-P", "-m", "geomx.machines", "--role", node.role, "--attached"]
        return reach.argv(host.reach or job.reach, name, host.address, command)

    def _opening(self, node: NodeSpec) -> dict[str, Any]:
        job, host = self._job, self._job.hosts[self._homes[node.name]]
        directory = host.directory if host.directory is not None else job.directory
        scripted = node.role == "worker" and self._command
        return {
            "host": host.address,
            "command": self._command if scripted else [],
            "directory": directory if scripted else "",
            "env": {**job.env, **host.env},
            "tls": self._tls.get(node.name, {}),
        }
