"""The nodes of the simulated world: their state, and what may be done to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from geomx.cluster import NodeSpec
from geomx.errors import near
from geomx.scenario import Act
from geomx.scenario.events import LONGEST_S
from geomx.sim.numbers import known, number
from geomx.sim.protocols import Running, Worker
from geomx.sim.world.wan import Wan
from geomx.training.pace import NS


class WorldNode:
    """One node: a worker, a server, a global server or the scheduler.

    Args:
        simulation: The simulation, built.
        wan: Its WAN.
        spec: The node.

    Attributes:
        spec: Name, role, party and speed.
    """

    def __init__(self, simulation: Running, wan: Wan, spec: NodeSpec) -> None:
        self._simulation, self._wan, self.spec = simulation, wan, spec

    @property
    def name(self) -> str:
        """Its name, as ``beijing/worker0``."""
        return self.spec.name

    @property
    def step(self) -> int:
        """The number of local steps that a worker has begun."""
        return self._worker.steps.step + 1

    @property
    def loss(self) -> float:
        """A worker's last training loss; NaN before, and in a run of sizes alone."""
        return self._worker.loss

    def round(self, tensor: str) -> int:
        """Return the round of the last value of a tensor that a worker has received; 0 before that.

        Args:
            tensor: Name of the tensor.

        Raises:
            ValueError: It is no worker, or there is no such tensor.
        """
        return self._worker.round(key_of(self._simulation, tensor))

    @property
    def _worker(self) -> Worker:
        if self.spec.role != "worker":
            raise ValueError(f"{self.name} is a {self.spec.role} and not a worker")
        return self._simulation.workers[self.spec.id]

    @property
    def queued_bytes(self) -> float:
        """Bytes that it holds for others: queued, and of messages being sent."""
        return sum(self._wan.queue(*edge) for edge in self._wan.out_edges(self.name))

    @property
    def sent_bytes(self) -> float:
        """Bytes that have been sent over its edges since the start."""
        return sum(self._wan.carried(*edge) for edge in self._wan.out_edges(self.name))

    def kill(self, restart_s: float | None = None) -> None:
        """Kill its process, as ``kill`` in a scenario does; no effect if it is dead.

        Args:
            restart_s: Seconds until a new process replaces it; None: never.

        Raises:
            NodeLost: The run cannot continue without it, and ends.
            ValueError: It is not restarted under these options, or `restart_s` is out of range.
        """
        if restart_s is not None:
            restart_s = _duration("restart_s", restart_s)
        faults = self._simulation.experiment.faults
        if restart_s is not None and not faults.continues:
            if self.spec.role == "worker":
                raise ValueError("restart_s of a worker needs faults.on_loss=continue")
            if faults.durable != "log":
                raise ValueError("restart_s needs faults.durable=log or faults.on_loss=continue")
        self._act("kill", restart_s, "restart")

    def restart(self) -> None:
        """Start a new process of a killed node; no effect if it runs.

        Raises:
            ValueError: Nodes are not restarted under these options.
        """
        faults = self._simulation.experiment.faults
        if not faults.continues:
            raise ValueError("restart needs faults.on_loss=continue")
        if faults.logs(self.spec.role):
            raise ValueError(f"{self.name} is restarted by kill(restart_s=...)")
        self._act("restart", None, None)

    def pause(self, for_s: float) -> None:
        """Stop its process for a time, as ``pause`` in a scenario does; no effect if it is dead.

        Args:
            for_s: Seconds.

        Raises:
            ValueError: `for_s` is not above 0, or above 1e9.
        """
        self._act("pause", _duration("for_s", for_s), "resume")

    def _act(self, what: str, for_s: float | None, end: str | None) -> None:
        simulation, now = self._simulation, self._simulation.env.now
        one = frozenset([self.spec.id])
        lasts = round((for_s or 0.0) * NS)
        row: dict[str, Any] = {"time_s": now / NS, "what": what, "node": self.name}
        if for_s is not None:
            row["for_s" if what == "pause" else "restart_s"] = for_s
        simulation.acts.carry_out(Act(now, 0, what, one, frozenset(), lasts), row)
        if lasts and end is not None:
            simulation.env.process(simulation.acts.later(Act(now + lasts, 0, end, one)))


def _duration(name: str, seconds: Any) -> float:
    bound = f"above 0 and at most {LONGEST_S:g}"
    return number(name, seconds, lambda value: 0 < value <= LONGEST_S, bound)


class WorldNodes(Mapping[str, WorldNode]):
    """All nodes by name.

    Args:
        simulation: The simulation, built.
        wan: Its WAN.
    """

    def __init__(self, simulation: Running, wan: Wan) -> None:
        nodes = simulation.experiment.cluster.nodes
        self._nodes = {node.name: WorldNode(simulation, wan, node) for node in nodes}

    def __getitem__(self, name: str) -> WorldNode:
        """Return a node; `KeyError` names similar ones."""
        try:
            return self._nodes[known("node", name, self._nodes)]
        except ValueError as error:
            raise KeyError(str(error)) from None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in the order of the cluster."""
        return iter(self._nodes)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._nodes)


def key_of(simulation: Running, tensor: str) -> int:
    """Return the number of a tensor.

    Raises:
        ValueError: There is no such tensor; the message names similar ones.
    """
    for key, spec in enumerate(simulation.experiment.workload.tensors):
        if spec.name == tensor:
            return key
    names = [spec.name for spec in simulation.experiment.workload.tensors]
    raise ValueError(f"there is no tensor {tensor}; {near(tensor, names)}")
