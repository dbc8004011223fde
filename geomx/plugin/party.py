"""A local server's part of a sync policy, written in Python.

`SyncPolicy.party_policy` returns a `PartySync` where a party's workers wait for each other, and a
`PartyModel` where they do not. Native ones have the same methods (``runtime_cpp/core/policy.h``).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["PartyModel", "PartySync"]


@runtime_checkable
class PartySync(Protocol):
    """A local server's part of a sync policy, written in Python; every server has a deep copy.

    In simulations without gradients all arrays are empty, and returned arrays must be empty too.
    Two methods are optional: ``initial(shard, value)`` receives the initial values before the first
    push, and ``answer(shard, value)`` receives the global server's answer and returns the value for
    the workers.

    With ``faults.on_loss=continue`` a sum may lack workers that were lost. The attribute
    ``makes_up = True`` asks for sums that are scaled up to all of the party's workers, as sums of
    parameters must be; by default, global servers scale what is sent. Two further methods are then
    optional: ``members(present, all)`` is told how many workers are present, and
    ``party_rounds(rounds)`` returns the number of the party's rounds that lead to so many global
    rounds.
    """

    def complete(
        self, shard: tuple[int, int], round_number: int, last: bool, total: NDArray[np.float32]
    ) -> tuple[bool, NDArray[np.float32]]:
        """Decide what to do with the party's sum. Called when all workers have contributed.

        Args:
            shard: (key of the tensor, number of the shard).
            round_number: Round of this shard, from 1.
            last: Whether this is the shard's last round.
            total: Sum of the workers' pushes, float32 of the shard's length.

        Returns:
            Whether to send a value to the global server (True) or to return it to the workers
            (False), and the value, a float32 array of the same length.
        """
        ...


@runtime_checkable
class PartyModel(Protocol):
    """A local server's part where workers do not wait for each other; every server has a deep copy.

    It keeps the party's model. In simulations without gradients all arrays are empty, and returned
    arrays must be empty too. Arrays are float32 of the shard's length.
    """

    def initial(self, shard: tuple[int, int], value: NDArray[np.float32]) -> None:
        """Receive the initial value of a shard, before its first push.

        Args:
            shard: (key of the tensor, number of the shard).
            value: The value, with which all workers start.
        """
        ...

    def update(
        self, shard: tuple[int, int], worker: int, round_number: int, value: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Apply one worker's push.

        Args:
            shard: (key of the tensor, number of the shard).
            worker: Id of the node that pushed.
            round_number: Number of its push of this shard, from 1.
            value: What it pushed.

        Returns:
            What this worker continues with, which is sent to it at once; not after its last push.
        """
        ...

    def send(self, shard: tuple[int, int], ends: bool) -> NDArray[np.float32] | None:
        """Decide whether to send something to the global servers.

        Called after every `update` and `answer` while no push of the shard is unanswered.

        Args:
            shard: (key of the tensor, number of the shard).
            ends: Whether no worker will push this shard again. A value must be returned then.

        Returns:
            The value to send; None if it is not time yet.
        """
        ...

    def answer(self, shard: tuple[int, int], value: NDArray[np.float32]) -> NDArray[np.float32]:
        """Receive the global server's answer to what was sent.

        Args:
            shard: (key of the tensor, number of the shard).
            value: The answer.

        Returns:
            The party's value. After the last answer, all workers receive it and end with it.
        """
        ...
