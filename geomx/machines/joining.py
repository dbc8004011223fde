"""``geomx node --join``: a worker, or a whole party, joins a live run while it trains.

Before starting a process, it asks the scheduler for the experiment, under the name of the first
joining node, so that a refusal is reported immediately. A party's local server starts first, then
its workers; all nodes are processes on this machine. They leave together.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from geomx.cluster import NodeSpec
from geomx.errors import ConfigError, GeomxError
from geomx.live import access
from geomx.live.diagnosis import last_words
from geomx.live.exit_status import DONE, INTERRUPTED
from geomx.live.files import path as file_of
from geomx.live.files import script_file, stem
from geomx.live.journal import Notes
from geomx.live.member import Member
from geomx.live.spec import Spec
from geomx.machines import agent
from geomx.terminal.log import say

PATIENCE_S = 10.0
"""Seconds for which a run that cannot be joined now is asked again."""


@dataclass(frozen=True)
class Join:
    """The nodes that join, and how.

    Attributes:
        scheduler: Address of the scheduler, ``host:port``.
        name: A worker, or the local server whose whole party joins.
        party: Whether the whole party joins.
        host: The address on which they listen.
        directory: For their files.
        env: Environment variables of their processes.
        command: Command that workers run instead of the workload.
        patience_s: Limit on the wait for the run to take them in, in seconds.
    """

    scheduler: str
    name: str
    party: bool
    host: str
    directory: Path
    env: dict[str, str]
    command: Sequence[str]
    patience_s: float

    def run(self) -> int:
        """Join, take part until the run ends or a signal asks to leave; return the exit status.

        Raises:
            ConfigError: The nodes cannot join this run; says why.
        """
        nodes = self._nodes(self._experiment())
        running = {node.name: self._start(node) for node in nodes}
        say(f"{', '.join(running)} join the run; their logs are in {self.directory / 'nodes'}")
        return self._supervise(nodes, running)

    def _experiment(self) -> Spec:
        folder = self.env.get(access.TLS)
        try:
            return Member.experiment(
                self.scheduler,
                self.name,
                self.env[access.TOKEN],
                self.host,
                Path(folder) if folder else None,
                self.patience_s,
                access.INSECURE in self.env,
            )
        except GeomxError as error:
            raise ConfigError("--join", self.name, str(error)) from error

    def _nodes(self, spec: Spec) -> list[NodeSpec]:
        """Return the nodes that join, in the order in which they start."""
        node = spec.cluster.node(self.name)
        if node.role not in ("server", "worker"):
            remedy = "must be a worker or a local server; the others are there from the start"
            raise ConfigError("--join", self.name, remedy)
        if spec.workload is None and not self.command:
            raise ConfigError("--join", self.name, "the run is of a script: give it after --")
        if spec.workload is not None and self.command:
            raise ConfigError("--join", self.name, "the run has a workload: leave the command out")
        return [node, *spec.cluster.party_of(node).workers] if self.party else [node]

    def _start(self, node: NodeSpec) -> agent.Child:
        files = stem(self.directory, node.name)
        again = file_of(files, ".jsonl").exists()  # an earlier process of the node has written it
        with file_of(files, ".log").open("ab" if again else "wb") as log:
            if node.role == "worker" and self.command:
                if again:
                    Notes(files, resumed=True).again()
                script_file(self.directory).write_text(shlex.join(self.command), encoding="utf-8")
                env = agent.script_env(node.name, None, self.host, self.scheduler, files)
                return agent.Child(agent.tethered(self.command), {**self.env, **env}, output=log)
            argv = agent.node_argv(
                node.name, None, self.host, files,
                scheduler=self.scheduler, patience_s=self.patience_s,
            )  # fmt: skip
            return agent.Child([*argv, *(["--again"] if again else [])], self.env, output=log)

    def _supervise(self, nodes: Sequence[NodeSpec], running: dict[str, agent.Child]) -> int:
        """Wait for the end of all nodes; end them all if one fails, or on a second signal."""
        asked, status = agent.Asked(), DONE
        asking: list[NodeSpec] = []  # of these, workers leave before their server
        try:
            while running and status == DONE and not asked.to_end:
                if asked.to_leave():
                    asking = list(nodes)
                for node in tuple(asking):
                    if node.role == "worker" or len(running) == 1:
                        asking.remove(node)
                        if node.name in running:
                            running[node.name].process.ask_to_leave()
                status = self._ended(running)
                time.sleep(agent.TICK_S)
        finally:
            for child in running.values():
                child.end()
        return INTERRUPTED if asked.to_end else status

    def _ended(self, running: dict[str, agent.Child]) -> int:
        """Forget nodes that have ended; return the exit status of one that failed, or `DONE`."""
        for name, child in tuple(running.items()):
            status = child.process.poll()
            if status is None:
                continue
            child.sweep()
            del running[name]
            if status != DONE:
                said = last_words(self.directory, name)
                how = f"{name} ended with exit status {status}" + (f": {said}" if said else "")
                say(how, "error", name)
                return status if status > 0 else 128 - status
        return DONE
