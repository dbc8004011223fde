"""The training loop of an experiment's worker, as instructions to its driver.

A worker makes two passes per step, which its driver executes:

    for order in passes(steps):
        ...                             # execute it, and set its result

A forward pass ends when the gradients exist, and the worker's own optimizer, if it has one, has
made its step. A backward pass ends when the next step can begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import nan

from geomx.training.steps import Report, Steps


@dataclass(slots=True)
class Forward:
    """The forward pass of the current step; each layer waits for its own values.

    Attributes:
        needs: Keys whose answers it waits for beside those of the last `Backward`.
        compute_s: Set by the driver: seconds of computing in one step, without waiting.
    """

    needs: Sequence[int] = ()
    compute_s: float = nan


@dataclass(slots=True)
class Backward:
    """The backward pass, its pushes, and the wait for the values that the next step needs first.

    These are the values of the first layer; after the last step, of all layers.

    Attributes:
        push: ``gradients`` or ``parameters``: those of a layer are pushed when its backward pass is
            over, from the last layer to the first; ``nothing``.
        last: Whether this is the last step.
        report: The report to send after the pushes, whose reply is awaited too; None for none.
        part: The keys that are pushed, and those in flight whose answers the next step needs; None:
            all keys, and these.
        answer: Set by the driver if there is a report: the coordinator's reply.
    """

    push: str
    last: bool
    report: Report | None
    part: tuple[Sequence[int], Sequence[int]] | None = None
    answer: Sequence[float] = ()


def passes(steps: Steps) -> Iterator[Forward | Backward]:
    """Yield the instructions of a worker's training loop until the sync policy ends it.

    Args:
        steps: The worker's steps, which contain the state of the loop.

    Yields:
        A `Forward` and a `Backward` per step.
    """
    while not steps.last:
        steps.begin()
        flights = steps.flights
        forward = Forward() if flights is None else Forward(flights.early)
        yield forward
        push = steps.exchange if steps.synchronises() else "nothing"
        part = None if flights is None else (flights.sent, flights.due)
        backward = Backward(push, steps.last, steps.report(forward.compute_s), part)
        yield backward
        if backward.report is not None:
            steps.reply(backward.answer)


def evaluates(steps: Steps, every: int) -> bool:
    """Return whether to evaluate the model on held-out data after the current step.

    Args:
        steps: The steps of a worker.
        every: Local steps between evaluations; the last step is always evaluated.

    Returns:
        True to evaluate.
    """
    return steps.last or (steps.step + 1) % every == 0
