"""The membership of a worker whose run is simulated."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import cast

from geomx import _core
from geomx.errors import GeomxError
from geomx.live.member import Member
from geomx.live.spec import Spec
from geomx.virtual import wire
from geomx.virtual.loop import State, VirtualLoop


class VirtualMember(Member):
    """A worker of a simulated run, as `geomx.live.member.Member` of a live one."""

    virtual = True

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        # The loop has the methods that a worker's process uses.
        super().__init__(cast(_core.Loop, loop), Spec.from_json(loop.experiment), name, {})
        self._simulator = loop

    @classmethod
    def of_environment(cls) -> VirtualMember:
        """Join the simulation that this process was started for, and wait for its start.

        Raises:
            GeomxError: The simulator does not expect this process.
        """
        name = os.environ.get(wire.WORKER)
        if name is None:
            raise GeomxError(f"{wire.SOCKET} is set, but {wire.WORKER} is not")
        loop = VirtualLoop(os.environ[wire.SOCKET], name)
        member = cls(loop, name)
        loop.start(member.node.speed)
        return member

    def now(self) -> float:
        """See `Member.now`: the virtual time."""
        return self._simulator.now()

    def declare(
        self,
        key: int,
        shape: Sequence[int],
        shards: Sequence[tuple[int, int, int, int]],
        name: int | str,
    ) -> None:
        """See `Member.declare`."""
        self._simulator.declare(key, shape, shards, str(name))

    def plans(self, steps: int) -> None:
        """See `Member.plans`."""
        self._simulator.plans(steps)

    def begins(self) -> None:
        """See `Member.begins`."""
        super().begins()
        self._simulator.mark("begins")

    def computed(self) -> None:
        """See `Member.computed`."""
        self._simulator.mark("computed")

    def sleep(self, seconds: float) -> None:
        """See `Member.sleep`."""
        self._simulator.sleep(seconds)

    def uncounted(self) -> AbstractContextManager[None]:
        """See `Member.uncounted`."""
        return self._simulator.uncounted()

    def reduces(self, size_bytes: int, processes: int) -> None:
        """See `Member.reduces`.

        In each of 2 (p - 1) steps, every process sends a p-th of its values to the next one
        (Patarasuk and Yuan, 2009).
        """
        self._simulator.reduces(self._lan_s(2 * (processes - 1), size_bytes / processes))

    def shares(self, size_bytes: int, processes: int) -> None:
        """See `Member.shares`; in each step, each process that has the values gives them to one."""
        self._simulator.sleep(self._lan_s(math.ceil(math.log2(processes)), size_bytes))

    def _lan_s(self, steps: int, size_bytes: float) -> float:
        """Return how long `steps` messages take, one after the other, over the LAN of this node."""
        cluster = self.spec.cluster
        way = cluster.path(self.node, cluster.party_of(self.node).server)
        return steps * (way.delay_s + size_bytes * 8 / way.bandwidth_bps)

    def evaluated(self, step: int, accuracy: float | None, loss: float | None) -> None:
        """See `Member.evaluated`."""
        self._simulator.evaluated(step, accuracy, loss)

    def wait_stopped(self, until: Callable[[], bool] = lambda: False) -> None:
        """See `Member.wait_stopped`: the simulator tells all processes when the run is over."""
        del until
        super().wait_stopped()

    def ask_states(self) -> None:
        """See `Member.ask_states`."""
        self._simulator.ask_states()

    def wait_state(self) -> State:
        """See `Member.wait_state`."""
        return self._simulator.wait_state()

    def load_state(self, key: int, shard: int, saved: bytes) -> None:
        """See `Member.load_state`."""
        self._simulator.load_state(key, shard, saved)
