"""Starts, monitors and ends the processes of a live run on this machine.

The scheduler starts first and reports its address. Then every other node starts as a separate
process: a fork of a process that has imported the modules that nodes need (`geomx.live.forks`), or
the command of a training script. If a process dies or hangs, or on Ctrl-C, all processes end within
seconds: by themselves, by SIGTERM, or by SIGKILL.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence, Set
from pathlib import Path
from types import TracebackType
from typing import IO

from geomx.cluster import NodeSpec
from geomx.errors import NodeLost
from geomx.experiment.links import usage_file_bytes
from geomx.live import access
from geomx.live.descriptors import readable
from geomx.live.diagnosis import Unjoined, Unleft, culprit, last_words
from geomx.live.emulation import inside, place
from geomx.live.exit_status import DONE, signal_name
from geomx.live.files import checkpoint_file, experiment_file, stem
from geomx.live.files import path as file_of
from geomx.live.forks import Fork, ForkServer
from geomx.live.held_ports import HeldPorts
from geomx.live.journal import Notes
from geomx.live.lifetime import Tied
from geomx.live.relay import Patience, Relay
from geomx.live.restarts import Joins, Restarts
from geomx.live.resumption import Resumption
from geomx.live.spec import Spec
from geomx.results.files import replacing, sync_folder

SPEAK_TIMEOUT_S = 60.0
"""Time limit for the scheduler to report its address."""

NOTICE_S = 1.0  # after the first process has ended: for the others to notice it and end
POLITE_S = 1.5  # between SIGTERM and SIGKILL
KILLED_S = 5.0  # upper limit for the kernel to end a killed process
POLL_S = 0.05
LOOK_S = 1.0


class Job:
    """The processes of one run. Use it as a context manager; when it exits, all have ended.

    Args:
        spec: The experiment.
        directory: Directory of the run; logs and notes are written to its folder ``nodes``.
        command: Command of a training script, which workers run instead of the workload of `spec`.
        emulate: How the network is emulated: ``shaper``, ``netns`` or ``none``
            (`geomx.live.emulation`).
        resumption: The state from which a killed run is continued; None: a new run begins.
    """

    def __init__(
        self,
        spec: Spec,
        directory: Path,
        command: Sequence[str] = (),
        emulate: str = "shaper",
        resumption: Resumption | None = None,
    ) -> None:
        self._resumption = resumption
        self._usage_file = directory / "nodes" / "usage"
        checkpoint = str(checkpoint_file(directory).resolve()) if spec.checkpoint else ""
        self.spec = dataclasses.replace(
            spec, usage_file=str(self._usage_file.resolve()), checkpoint=checkpoint
        )
        self.directory = directory
        self.command = list(command)
        # Addresses in network namespaces are not loopback, but no other machine can reach them.
        self._secrets = {access.TOKEN: access.new_token()}
        if emulate == "netns":
            self._secrets[access.INSECURE] = "1"
        self._forks = ForkServer(self._secrets)
        self._running: dict[str, Tied | Fork] = {}
        self._all: dict[str, Tied | Fork] = {}
        self._unjoined = Unjoined(spec.cluster, directory, self.command)
        self._unleft = Unleft(directory, self.command)
        self._relay = Relay(
            self._logs, spec.runtime.failure_timeout_s, scheduler=spec.cluster.scheduler.name
        )
        self.failed_s: float | None = None
        self._ended: dict[str, int] = {}  # exit status by node, in the order in which they ended
        self._address = ""
        self._experiment = experiment_file(directory)
        self._restarts = Restarts(self.spec, directory)
        self._joins = Joins(self.spec, directory)
        self._ports = HeldPorts({})
        self._words: int | None = None  # pipe to the scheduler; with faults.on_loss=continue
        self._place = place(
            emulate,
            spec.cluster,
            experiment=self._experiment,
            log=directory / "nodes" / "network.log",
            notes=stem(directory, spec.cluster.scheduler.name),
        )

    def __enter__(self) -> Job:
        """Start all processes, except those of nodes that join later.

        Raises:
            GeomxError: The emulated network could not be set up.
            NodeLost: The scheduler did not start.
        """
        (self.directory / "nodes").mkdir(parents=True, exist_ok=True)
        with replacing(self._experiment, synced=self.spec.faults.log_sync) as file:
            file.write(self.spec.to_json())
        if self._resumption is None:
            shutil.rmtree(self.directory / "durable", ignore_errors=True)  # of an earlier run
        if self.spec.faults.durable == "log":
            (self.directory / "durable").mkdir(exist_ok=True)
        if self.spec.faults.log_sync:
            for folder in (self.directory, self.directory.parent):
                sync_folder(folder)
        self._place.__enter__()
        try:
            if self._resumption is None:
                self._start_scheduler()
            else:
                self._resume(self._resumption)
            self._joins.announce(self._address)
            for node in self.spec.cluster.nodes:
                if node.id in self._joins.late:
                    file_of(stem(self.directory, node.name), ".jsonl").unlink(missing_ok=True)
                elif node.role != "scheduler":
                    self._start(node)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the processes that are still running."""
        self.end()

    @property
    def gone(self) -> set[str]:
        """Names of the nodes that no process is, or will be."""
        return self._restarts.gone

    def poll(self) -> bool:
        """Monitor the processes; call it periodically.

        Returns:
            Whether a process is still running or will be restarted.

        Raises:
            NodeLost: A node failed; the error names the first one that did.
            GeomxError: The emulated network, or the process that starts nodes, has failed.
        """
        self._place.watch()
        self._relay.look()
        for name, process in list(self._running.items()):
            status = process.poll()
            self._forks.check()
            if status is not None:
                del self._running[name]
                self._take(name, status)
        if self._ended.get(self.spec.cluster.scheduler.name) == DONE:
            self._restarts.cancel()
            self._joins.cancel()
            self._end_late()
        for node in (*self._restarts.due(), *self._joins.due()):
            self._restarts.begins(node.name)
            self._start(node)
        if any(status != DONE for status in self._ended.values()):
            self.failed_s = time.monotonic()
            self._wait(NOTICE_S)
            self._relay.look(last=True)
            shown = self.spec.cluster.workers[0].name if self.command else ""
            raise culprit(self.spec.cluster, self.directory, self._ended, shown)
        self._unjoined.check(self._ended, self._leaves_any)
        if self._ended.get(self.spec.cluster.scheduler.name) != DONE:
            self._find_unleft()
        return bool(self._running) or self._restarts.pending

    def _leaves_any(self, name: str) -> bool:
        return self._all[name].leaves_any()

    def _find_unleft(self) -> None:
        """Continue without workers whose command ended before they left, or end the run."""
        for lost in self._unleft.find(self.spec.cluster.workers, self._ended, self._leaves_any):
            self._tell_scheduler(lost.name, lost.reason)
            if not self._restarts.continues_without(lost.name):
                self.failed_s = time.monotonic()
                raise lost

    def _take(self, name: str, status: int) -> None:
        """Handle the end of a process: restart the node, continue without it, or end the run."""
        if status < 0 and self._restarts.journal(self.spec.cluster.node(name)) is None:
            self._tell_scheduler(name, f"killed by {signal_name(status)}")
        over = self._ended.get(self.spec.cluster.scheduler.name) == DONE
        if over and self._restarts.spare(name, status):
            return
        if not self._restarts.take(name, status):
            self._ended[name] = status

    def _tell_scheduler(self, name: str, reason: str) -> None:
        if self._words is not None:
            word = json.dumps({"ended": name, "reason": reason})
            with contextlib.suppress(OSError):  # the scheduler has ended
                os.write(self._words, word.encode() + b"\n")

    def _end_late(self) -> None:
        """End restarted nodes that have not joined, and lost ones, as the run is over."""
        for name, process in self._running.items():
            if self._restarts.idle(name):
                process.signal_all(signal.SIGTERM)
                process.signal_all(signal.SIGCONT)  # that it was paused may be why it is lost

    def end(self) -> None:
        """End every process, and the processes of training scripts: SIGTERM, then SIGKILL."""
        workers = {node.name for node in self.spec.cluster.workers}
        try:
            # Workers first: a script whose scheduler has ended would say so in a traceback.
            for mine in (workers, self._all.keys() - workers):
                for name in mine & self._all.keys():
                    self._all[name].signal_all(signal.SIGTERM)
                self._wait(POLITE_S, mine)
        finally:  # also after a second Ctrl-C
            for process in self._all.values():
                process.signal_all(signal.SIGKILL)
            self._wait(KILLED_S)
            self._forks.end()
            self._close_words()
            self._ports.release()
            self._usage_file.unlink(missing_ok=True)
            self._place.__exit__()

    # ---- starting ----

    def _resume(self, resumption: Resumption) -> None:
        """Start the scheduler of a continued run, whose nodes know each other's addresses."""
        scheduler = self.spec.cluster.scheduler
        self._usage_file.write_bytes(bytes(usage_file_bytes(self.spec.cluster)))
        self._ports = HeldPorts(resumption.addresses)
        moved = dataclasses.replace(
            resumption,
            addresses=self._ports.addresses,
            usage_file=self.spec.usage_file,
            checkpoint=self.spec.checkpoint,
        )
        moved.write(self.directory / "durable")
        self._address = moved.addresses[scheduler.name]
        self._relay.skip([self._log(node.name) for node in self.spec.cluster.nodes])
        self._restarts.resumes()
        self._start(scheduler)

    def _start_scheduler(self) -> None:
        node = self.spec.cluster.scheduler
        self._usage_file.write_bytes(bytes(usage_file_bytes(self.spec.cluster)))
        reading, writing = os.pipe()
        with open(reading, "rb") as output:
            with open(writing, "wb") as theirs:
                self._fork(node, "--experiment", str(self._experiment), output=theirs)
            patience = Patience(self.spec.runtime.failure_timeout_s)
            deadline = time.monotonic() + SPEAK_TIMEOUT_S
            ready = False
            while not ready and time.monotonic() < deadline:
                ready = bool(readable([output.fileno()], LOOK_S))
                patience.waits("the launcher", lambda: f"{node.name} to report its address")
            self._address = output.readline().decode().strip() if ready else ""
        if not self._address:
            self._wait(POLITE_S)
            self._forks.check()
            raise NodeLost(node.name, last_words(self.directory, node.name) or "it did not start")

    def _start(self, node: NodeSpec) -> None:
        if (before := self._all.get(node.name)) is not None:
            before.signal_all(signal.SIGKILL)  # what it has started, and left behind
        if node.role == "scheduler":
            self._fork(node, "--experiment", str(self._experiment))
        elif node.role == "worker" and self.command:
            self._run_command(node)
        else:
            self._fork(node, "--scheduler", self._address)

    def _fork(self, node: NodeSpec, *role: str, output: IO[bytes] | None = None) -> None:
        """Start the program of a node, with standard output to `output` or, if None, its log."""
        journal = self._restarts.journal(node)
        words = None
        if node.role == "scheduler" and (self.spec.faults.continues or self.spec.cluster.standbys):
            words = self._open_words()
            role = (*role, "--told")
        if self._restarts.again(node.name):
            role = (*role, "--again")
        if node.role == "standby":
            role = (*role, "--stands-by")
        appends = node.name in self._all or self._resumption is not None
        if self._resumption is not None and node.name not in self._all:
            role = (*role, "--resumes")
        arguments = [
            *role, "--name", node.name, "--id", str(node.id),
            "--notes", str(stem(self.directory, node.name)), "--host", self._place.host(node),
            *([] if journal is None else ["--journal", str(journal)]),
        ]  # fmt: skip
        with self._log(node.name).open("ab" if appends else "wb") as log:
            namespace = self._place.namespace(node)
            process = self._forks.start(arguments, output or log, log, namespace, words)
        if words is not None:
            words.close()
        self._running[node.name] = self._all[node.name] = process

    def _open_words(self) -> IO[bytes]:
        """Open a new pipe to the scheduler; return its reading end."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        self._close_words()
        self._words = writing
        return os.fdopen(reading, "rb")

    def _close_words(self) -> None:
        if self._words is not None:
            os.close(self._words)
        self._words = None

    def _run_command(self, node: NodeSpec) -> None:
        """Start the training script of a worker."""
        command = [sys.executable, "-P", "-m", "geomx.live.lifetime", str(os.getpid())]
        environment = {
            **self._secrets,
            "GEOMX_SCHEDULER": self._address,
            "GEOMX_NAME": node.name,
            "GEOMX_ID": str(node.id),
            "GEOMX_HOST": self._place.host(node),
            "GEOMX_NOTES": str(stem(self.directory, node.name).resolve()),
        }
        if self._restarts.again(node.name):
            Notes(stem(self.directory, node.name), resumed=True).again()
        namespace = self._place.namespace(node)
        place = inside(namespace) if namespace else contextlib.nullcontext()
        with self._log(node.name).open("ab" if node.name in self._all else "wb") as log, place:
            # The first worker writes to the terminal, like a script that is run alone.
            to = None if node == self.spec.cluster.workers[0] else log
            # It has its own process group, so Ctrl-C reaches only the launcher, which ends all.
            process = Tied([*command, *self.command], environment, stdout=to, stderr=to)
        self._running[node.name] = self._all[node.name] = process

    # ---- watching ----

    def _wait(self, seconds: float, names: Set[str] | None = None) -> None:
        """Collect exit statuses until the named processes (all) have ended or time has passed."""
        deadline = time.monotonic() + seconds
        names = self._all.keys() if names is None else names
        while self._running.keys() & names and time.monotonic() < deadline:
            for name, process in list(self._running.items()):
                try:
                    self._ended[name] = process.wait(POLL_S / len(self._running))
                except subprocess.TimeoutExpired:
                    continue
                del self._running[name]

    def _logs(self) -> list[Path]:
        """Return the logs of nodes whose output is not on the terminal."""
        shown = self.spec.cluster.workers[0].name if self.command else ""
        return [self._log(name) for name in self._all if name != shown]

    def _log(self, name: str) -> Path:
        return file_of(stem(self.directory, name), ".log")
