"""A global server's part of a sync policy: rounds that close without parties that are late.

`SyncPolicy.round_policy` returns a `RoundPolicy`, or a native one with the same methods
(``runtime_cpp/core/round_policy.h``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

__all__ = ["Contribution", "RoundPolicy"]


class Contribution(NamedTuple):
    """One party's contribution to a round of a shard.

    Attributes:
        source: Id of the party's local server.
        meant: The round that it was pushed for.
        age: Number of rounds that have closed between its base and the open round; 0: in time.
        workers: Number of workers whose contributions it includes.
        steps: Local steps that these workers have made for it, all of them together. A script that
            does not count its steps makes one for each push.
    """

    source: int
    meant: int
    age: int
    workers: int
    steps: int


@runtime_checkable
class RoundPolicy(Protocol):
    """Decides when rounds close, and what contributions count; every global server has a deep copy.

    A round closes when nothing more is awaited, or at the time that `closes_at` names. A
    contribution to a round that has closed is late, and its party is answered at once with the
    current value. Two methods are optional: ``takes(shard, late)`` returns whether a late
    `Contribution` counts in the open round (by default, True) or is lost; ``weigh(shard,
    contributions, workers)`` returns, when a round closes, the weight of a worker in each of its
    contributions, finite and not negative (by default, 1); `workers` is the number of all.

    With weights w, values v and numbers of workers m of the contributions, the sum becomes (number
    of all workers) * sum(w v) / sum(w m): a weighted mean. With the attribute ``relative = False``
    it becomes (number of all workers) * sum(w v) / sum(m), which small weights make smaller.
    """

    def closes_at(
        self,
        shard: tuple[int, int],
        contributions: Sequence[Contribution],
        awaited: Sequence[int],
        before_s: float | None,
        now_s: float,
    ) -> float | None:
        """Decide when the open round closes although contributions are awaited.

        Called after each contribution and each change of the members.

        Args:
            shard: (key of the tensor, number of the shard).
            contributions: Those that the round has: in time, by source, then the others.
            awaited: Ids of the local servers of parties that take part and have not contributed in
                time, ascending.
            before_s: The last answer for this round; None at first.
            now_s: The time in seconds.

        Returns:
            The time in seconds; `now_s` or earlier for at once, None for not yet.
        """
        ...
