"""What the parts of a simulated script see of each other, and of the processes of the script.

`geomx.sim.scripts.ScriptSimulation` is the world, `geomx.virtual.processes` has the processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from geomx.experiment.wiring import PlacedShard
from geomx.sim.computing import Computing
from geomx.sim.cores import Cores
from geomx.sim.protocols import Running, Worker

Message = tuple[dict[str, Any], Any]
"""The fields of a request and its bytes, as of `geomx.virtual.wire`; of a push that several workers
make, `_core.PushedValues`."""


class Channel(Protocol):
    """The connection to one worker's process."""

    @property
    def startup_s(self) -> float:
        """Real seconds until the store was created."""
        ...

    @property
    def leads(self) -> bool:
        """Whether the process waits for the reply to the latest request, and has it of no other."""
        ...

    def receive(self) -> Message | None:
        """Wait, in real time, for the next request; None if the process has ended."""
        ...

    def send(self, fields: dict[str, object], content: object = b"") -> None:
        """Reply to the last request; no effect if the process has ended."""

    def lost(self, without: str) -> Exception:
        """Return the error that the process has ended `without` having done something."""
        ...


class Processes(Protocol):
    """The processes of all workers, which have connected."""

    @property
    def channels(self) -> Mapping[int, Channel]:
        """By node id."""
        ...

    def wait_ended(self) -> None:
        """Wait, in real time, until all have ended by themselves; raise if one failed."""


class ScriptWorld(Running, Protocol):
    """The simulation of a script."""

    computing: Computing
    cores: Cores | None
    needs_all: str  # what needs all workers in every round; empty: some may leave before others

    @property
    def processes(self) -> Processes:
        """The processes of the workers."""
        ...

    @property
    def all_left(self) -> bool:
        """Whether all workers have left the run."""
        ...

    def declared(
        self, key: int, name: str, shape: Sequence[int], shards: Sequence[PlacedShard]
    ) -> None:
        """Note a tensor of the script."""

    def evaluated(self, step: int, accuracy: float | None, loss: float | None) -> None:
        """Record what the script has told of its model."""

    def left(self, worker: Worker) -> None:
        """Note that a worker has left the run."""
