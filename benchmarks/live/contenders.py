"""How each contender's processes are started, and how their figures are collected."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

WORKERS = Path(__file__).resolve().parent / "workers"
GEOMX = str(Path(sys.executable).with_name("geomx"))
PATIENCE_S = 600.0
FIRST = 1  # rounds that are not among the later ones: those whose memory is new


class NotHereError(Exception):
    """A contender cannot run here."""


@dataclass(frozen=True)
class Task:
    """What every contender does.

    Attributes:
        sizes: Elements of each tensor.
        workers: How many average; for geomx, of each party.
        rounds: Rounds, the first included.
    """

    sizes: tuple[int, ...]
    workers: tuple[int, ...]
    rounds: int

    @property
    def bytes(self) -> int:
        """Bytes of all tensors."""
        return 4 * sum(self.sizes)


@dataclass(frozen=True)
class Figures:
    """What one run measured.

    Attributes:
        init_s: Until all initial values are everywhere.
        first_s: Of the first round.
        rounds_s: Of each later round, from the start of the first worker to the end of the last.
        cpu_s: Processor time of all processes for one later round, without what makes contributions
            and checks sums.
        growth: Memory that each role's processes have used at most, in bytes, beyond what they
            had before initialisation.
    """

    init_s: float
    first_s: float
    rounds_s: tuple[float, ...]
    cpu_s: float
    growth: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Access:
    """Emulated links of the sites to each other.

    Attributes:
        mbps: Of every party's access, in each direction.
        delay_ms: Between two sites, one way.
        emulate: Value of the option ``emulate``.
    """

    mbps: float
    delay_ms: float = 15
    emulate: str = "shaper"


def geomx(
    task: Task,
    words: Sequence[str] = (),
    tls: bool = False,
    access: Access | None = None,
    script: str = "of_geomx.py",
) -> Figures:
    """Average through geomx: a local server for each party, one global server.

    Args:
        task: The task.
        words: Further overrides.
        tls: Whether all connections are encrypted.
        access: None: links are as fast as the machine.
        script: Of its workers.
    """
    return Run(task).of(lambda run: _launch(run, words, tls, access, script))


def gloo(task: Task) -> Figures:
    """Average through PyTorch's gloo, a ring."""
    import importlib.util

    if importlib.util.find_spec("torch") is None:
        raise NotHereError("PyTorch is not installed")
    port = free_port()

    def start(run: Run) -> list[subprocess.Popen[bytes]]:
        script = str(WORKERS / "of_gloo.py")
        return [
            run.process([sys.executable, script, str(rank), str(port)], {"OMP_NUM_THREADS": "1"})
            for rank in range(run.workers)
        ]

    return Run(task).of(start)


def mxnet(task: Task, python: str) -> Figures:
    """Average through stock MXNet's ``dist_sync``: one server."""
    roles = {
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(free_port()),
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": str(sum(task.workers)),
        "DMLC_INTERFACE": "lo",
    }

    def start(run: Run) -> list[subprocess.Popen[bytes]]:
        nodes = ["scheduler", "server", *["worker"] * run.workers]
        script = str(WORKERS / "of_mxnet.py")
        return [run.process([python, script], {**roles, "DMLC_ROLE": node}) for node in nodes]

    return Run(task).of(start)


def tcp(task: Task) -> Figures:
    """Move the bytes of geomx's tree over bare TCP, all directions of all links at once."""
    ports = [free_port() for _ in range(len(task.workers) + 1)]

    def start(run: Run) -> list[subprocess.Popen[bytes]]:
        script = str(WORKERS / "of_tcp.py")
        nodes = [(ports[0], 0, len(task.workers), -1)]
        for port, workers in zip(ports[1:], task.workers, strict=True):
            nodes.append((port, ports[0], workers, -1))
            first = len([node for node in nodes if node[3] >= 0])
            nodes += [(0, port, 0, first + index) for index in range(workers)]
        return [run.process([sys.executable, script, *map(str, node)], {}) for node in nodes]

    return Run(task).of(start)


def stock_mxnet(folder: Path) -> str:
    """Return an interpreter with MXNet as it was released, and the numpy that it needs.

    Args:
        folder: Where its environment is made, if it is not there.

    Raises:
        NotHereError: It cannot be installed here.
    """
    python = folder / "bin" / "python"
    check = [str(python), "-c", "import mxnet"]
    if python.exists() and not subprocess.run(check, check=False, capture_output=True).returncode:
        return str(python)
    commands = [
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "mxnet==1.9.1", "numpy<1.24"],
        check,
    ]
    for command in commands:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip() or "failed").splitlines()[-1]
            raise NotHereError(f"MXNet cannot be installed for {sys.version.split()[0]}: {last}")
    return str(python)


class Run:
    """The processes of one contender for one task.

    Args:
        task: The task.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.workers = sum(task.workers)
        self.folder = Path(tempfile.mkdtemp(prefix="bench"))
        self._files = ExitStack()

    def of(self, start: Any) -> Figures:
        """Run what `start` starts until it ends, and read what the workers have written."""
        try:
            with self._files:
                processes = start(self)
                try:
                    self._wait(processes)
                finally:
                    for process in processes:
                        process.kill()
                        process.wait()
            return self._figures()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def task_text(self) -> str:
        """Return what the processes find in their environment; see `rounds.task`."""
        todo = {
            "sizes": [(size, len(list(same))) for size, same in groupby(self.task.sizes)],
            "rounds": self.task.rounds,
            "workers": self.workers,
            "folder": str(self.folder),
            "root": os.getpid(),
        }
        return json.dumps(todo)

    def process(
        self, words: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a process that finds the task in its environment."""
        log = self._files.enter_context((self.folder / "log").open("ab"))
        return subprocess.Popen(
            words,
            env={**os.environ, **environment, "BENCH_TASK": self.task_text()},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

    def _wait(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while any(process.poll() is None for process in processes):
            if any(process.poll() for process in processes) or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text(errors="replace")[-2000:])
            time.sleep(0.05)

    def _figures(self) -> Figures:
        facts = [json.loads(file.read_text()) for file in sorted(self.folder.glob("*.json"))]
        if len(facts) != self.workers:
            raise RuntimeError((self.folder / "log").read_text(errors="replace")[-2000:])
        spans = zip(*(each["spans"] for each in facts), strict=True)
        rounds = [max(end for _, end in of) - min(start for start, _ in of) for of in spans]
        about = next((each for each in facts if "cpu_s" in each), {})
        init = max(each["init_s"] for each in facts)
        later = tuple(rounds[FIRST:])
        cpu = about.get("cpu_s", float("nan")) - sum(each["aside_s"] for each in facts)
        return Figures(init, rounds[0], later, cpu / max(len(later), 1), growth(about))


def growth(facts: Mapping[str, Any]) -> dict[str, int]:
    """Return how much memory the nodes of each role have come to use, from a worker's facts."""
    before, peak = facts.get("memory", ((), ()))
    had = dict(before)
    found: dict[str, int] = {}
    for words, size in peak:
        name = re.search(r"--name \S+/([a-z_]+)", words)
        if name and words in had:
            role = name[1].rstrip("_")
            found[role] = max(found.get(role, 0), size - had[words])
    return found


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _launch(
    run: Run, words: Sequence[str], tls: bool, access: Access | None, script: str
) -> list[subprocess.Popen[bytes]]:
    """Start ``geomx launch`` with as many parties as the task has groups of workers."""
    fast = {"uplink_mbps": 1e5, "downlink_mbps": 1e5}
    site = {"uplink_mbps": access.mbps, "downlink_mbps": access.mbps} if access else fast
    names = [f"party{number}" for number in range(len(run.task.workers))]
    parties = {
        name: {"workers": workers, **site}
        for name, workers in zip(names, run.task.workers, strict=True)
    }
    central = {"name": "hub", "global_servers": 1, **fast}
    delay = access.delay_ms if access else 0
    network = {"name": "bench", "central": central, "parties": parties, "delay_ms": delay}
    command = [GEOMX, "launch"]
    # Other load on the machine must not be taken for a lost node; none of the others keeps a log.
    patient = ["runtime.failure_timeout_s=60", "faults.on_loss=stop", "faults.durable=none"]
    words = [f"hydra.run.dir={run.folder}/run", *patient, *words]
    command_of_worker = ["--", sys.executable, str(WORKERS / script)]
    if not tls:
        (run.folder / "network.yaml").write_text(yaml.safe_dump(network))
        emulate = access.emulate if access else "none"
        place = [f"network={run.folder}/network.yaml", f"emulate={emulate}"]
        return [run.process([*command, *place, *words, *command_of_worker], {})]
    job = {
        "hosts": {"here": {"address": "127.0.0.1"}},
        "reach": "env {command}",
        "tls": "certs",
        "network": network,
        "env": {"BENCH_TASK": run.task_text()},
        "directory": str(run.folder),
        "parties": {
            "hub": {"scheduler": "here", "global_server": "here"},
            **{name: {"server": "here", "worker": "here"} for name in names},
        },
    }
    file = run.folder / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    certs = [GEOMX, "certs", str(file)]
    subprocess.run(certs, check=True, capture_output=True)
    return [run.process([*command, str(file), *words, *command_of_worker], {})]
