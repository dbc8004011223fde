"""Events that plugins may observe while an experiment runs, in both modes.

A plugin subscribes once, while the experiment is built; from then on its function is called with
every batch of events, in order. Observers must not influence the run: events are frozen, and
functions run on the thread of the training loop.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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

        Raises:
            TypeError: It cannot be called, or not with one argument.
        """
        if not callable(observer) or not _takes_one(observer):
            raise TypeError(
                f"events.subscribe needs a function of a list of events, not {observer!r}"
            )
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


def _takes_one(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a built-in function may not say
        return True
    return True


# ---- events of the simulated world (docs/world.md) ----


@dataclass(frozen=True)
class StepEnded:
    """A worker has ended a local step.

    Attributes:
        time_s: Seconds since the start of the run.
        worker: The worker's name.
        step: Number of the step, from 0.
        loss: Training loss of its batch; NaN in a run of sizes alone.
    """

    time_s: float
    worker: str
    step: int
    loss: float


@dataclass(frozen=True)
class ValueArrived:
    """A new value of a tensor has arrived at a worker.

    Attributes:
        time_s: Seconds since the start of the run.
        worker: The worker's name.
        tensor: Name of the tensor.
        round: Its round.
    """

    time_s: float
    worker: str
    tensor: str
    round: int


@dataclass(frozen=True)
class EdgeChanged:
    """An edge of the WAN was changed by a program or a scenario.

    Attributes:
        time_s: Seconds since the start of the run.
        source: Where the edge begins.
        target: Where it ends.
        changes: The attributes that were set: ``bandwidth_mbps``, ``delay_ms``, ``loss``, ``up``.
    """

    time_s: float
    source: str
    target: str
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class TransferEnded:
    """The last byte of a transfer has arrived, or it was cancelled.

    Attributes:
        time_s: Seconds since the start of the run.
        source: Name of the sending node.
        target: Name of the receiving node.
        sent_bytes: Bytes that had left.
        started_s: When it began.
        cancelled: Whether it was cancelled.
    """

    time_s: float
    source: str
    target: str
    sent_bytes: float
    started_s: float
    cancelled: bool


@dataclass(frozen=True)
class NodeActed:
    """Something was done to a node by a program or a scenario.

    Attributes:
        time_s: Seconds since the start of the run.
        node: Name of the node.
        what: ``kill``, ``restart`` (of a kill with ``restart_s``, too), ``pause`` or ``slow``. The
            ends of pauses and of slow times are no events; each call of ``world.compute.slow`` is.
    """

    time_s: float
    node: str
    what: str


WorldEvent = StepEnded | ValueArrived | EdgeChanged | TransferEnded | NodeActed
