"""Events that plugins may observe while an experiment runs, in both modes.

A plugin subscribes once, while the experiment is built; from then on its function is called with
every batch of events, in order. Observers must not influence the run: events are frozen, and
functions run on the thread of the training loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """Something that happened at a worker.

    Attributes:
        time_s: Seconds since all nodes had joined.
        node: The worker's name.
        kind: ``iteration`` (one local step is over) or ``value`` (a tensor's new value is in).
        key: The tensor; -1 for an iteration.
        round: The tensor's round, or the number of the local step, from 0.
    """

    time_s: float
    node: str
    kind: str
    key: int
    round: int


class Events:
    """Where plugins subscribe and training loops publish."""

    def __init__(self) -> None:
        self._observers: list[Callable[[Sequence[Event]], None]] = []

    def subscribe(self, observer: Callable[[Sequence[Event]], None]) -> None:
        """Call a function with every batch of events from now on.

        Args:
            observer: A function of a sequence of events; it must not change them.
        """
        self._observers.append(observer)

    @property
    def observed(self) -> bool:
        """Whether there are observers; without them no events need to be created."""
        return bool(self._observers)

    def publish(self, events: Sequence[Event]) -> None:
        """Call every observer with a batch of events.

        Args:
            events: In the order in which they happened.
        """
        for observer in self._observers:
            observer(events)
