"""The training loop of an experiment's worker, as orders to its driver.

A worker of an experiment makes two passes a step, and its driver does no more than that:

    for order in passes(steps):
        ...                             # carry it out, fill in its answer

A forward pass is over when the gradients exist, and a worker that has an optimizer of its own has
made a step of it. A backward pass is over when the next step can begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import nan

from geomx.training.steps import Report, Steps


@dataclass(slots=True)
class Forward:
    """The forward pass of the step that has begun; each layer waits for its own values.

    Attributes:
        compute_s: The driver's answer: seconds that one step of computing takes, without waiting.
    """

    compute_s: float = nan


@dataclass(slots=True)
class Backward:
    """The backward pass, what it pushes, and the wait for what the next step begins with.

    That is the values of the first layer, and in the last step of all layers.

    Attributes:
        push: What leaves: ``gradients`` as they appear, layer by layer from the last to the first;
            ``parameters`` when the pass is over, in the same order; or ``nothing``.
        last: No step comes after this one.
        report: What is sent behind what is pushed; the answer to it is waited for as well.
        answer: The driver's answer, where something is reported: what the coordinator said.
    """

    push: str
    last: bool
    report: Report | None
    answer: Sequence[float] = ()


def passes(steps: Steps) -> Iterator[Forward | Backward]:
    """Yield the orders of a worker's training loop until the sync policy ends it.

    Args:
        steps: The worker's steps, which hold the state of the loop.

    Yields:
        A `Forward` and a `Backward` per step.
    """
    while not steps.last:
        steps.begin()
        forward = Forward()
        yield forward
        push = steps.exchange if steps.synchronises() else "nothing"
        backward = Backward(push, steps.last, steps.report(forward.compute_s))
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
