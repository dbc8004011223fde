"""What the tensors of a job begin with: a script's values, or the state of another run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.errors import GeomxError
from geomx.kv.keys import Keys
from geomx.live.checkpoint import Checkpoint, starting
from geomx.live.exchange import Exchange
from geomx.live.member import Member, naming_the_lost
from geomx.plugin.parts import as_vector


class Beginning:
    """The beginning of a job, at one worker.

    Args:
        member: The worker.
        master: Whether it gives initial values.
        keys: Its keys.

    Attributes:
        optimizer: The optimizer that servers were told to run, as text; empty for none.
    """

    def __init__(self, member: Member, master: bool, keys: Keys) -> None:
        self._member = member
        self._keys = keys
        self._checkpoint = _checkpoint(member) if master else None
        self._loaded = self._checkpoint is None
        self.optimizer = ""

    def value(self, key: int, array: NDArray[Any]) -> NDArray[np.float32]:
        """Return the flat values with which a tensor begins, as a copy.

        Args:
            key: Its number.
            array: What the script has given.

        Raises:
            GeomxError: In the run that this job begins with, the tensor had another size.
        """
        if self._checkpoint is None:
            return as_vector(array).copy()
        return self._checkpoint.value(key, array.size).copy()

    def completed(self, exchange: Exchange, key: int) -> int:
        """Return the rounds that were completed when the value of a key has arrived."""
        since = exchange.go_on(key) if self._member.late else 0
        self._loaded = self._loaded or since > 0  # by an earlier process of this worker
        return self._member.spec.rounds_before + since

    def load_states(self) -> None:
        """Have the optimizers on the servers continue as in the other run; once.

        Call it when all keys are initialised and the optimizer is set, before the first push.

        Raises:
            NodeLost: A node of the job died.
        """
        if self._loaded or self._checkpoint is None:
            return
        self._loaded = True
        entries = [self._keys.entry(name) for name in self._keys]
        with naming_the_lost(self._member.loop):
            cuts = {entry.key: [size for _, size, _, _ in entry.shards] for entry in entries}
            self._checkpoint.load_states(self._member, self.optimizer, cuts)


def _checkpoint(member: Member) -> Checkpoint | None:
    """Return what a job begins with, as its first worker; None: with a script's values.

    If an earlier process of this worker is lost, servers may have these values, or may not.
    """
    try:
        return starting(member.spec)
    except GeomxError:
        if member.late:  # perhaps on another machine, which does not have the file
            return None
        raise
