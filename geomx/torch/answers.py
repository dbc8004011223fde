"""How a model's parameters take answers that are applied while training goes on."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import torch

from geomx.live.torch_exchange import on_host
from geomx.torch.slots import Slot
from geomx.torch.waiting import Waiting
from geomx.training.flights import Answer, Flights


def elements(named: Iterable[torch.Tensor], slots: Sequence[Slot]) -> list[int]:
    """Return the elements of each tensor, by key; 0 for tensors that are not trained.

    Args:
        named: All parameters of the model, in the order of their keys.
        slots: The trained ones.
    """
    trained = {slot.key for slot in slots}
    return [each.numel() if key in trained else 0 for key, each in enumerate(named)]


def sent(slots: list[Slot], flights: Flights | None) -> list[Slot]:
    """Return the parameters that are exchanged after the current step."""
    if flights is None:
        return slots
    keys = set(flights.sent)
    return [slot for slot in slots if slot.key in keys]


def expect(
    waiting: Waiting, slots: Sequence[Slot], flights: Flights | None, early: bool = False
) -> None:
    """Let the next forward pass wait for answers, and apply each as its value arrives.

    Args:
        waiting: The waits of the model's forward passes.
        slots: The trained parameters.
        flights: The answers in flight; None: all parameters have been sent, and take their values.
        early: Whether these are the answers that no later step could apply.
    """
    if flights is None:
        return waiting.expect(slots)
    held = {slot.key: slot for slot in slots}
    for answer in flights.take_early() if early else flights.take_due():
        if slot := held.get(answer.key):
            merge = None if answer.age is None else functools.partial(_merge, flights, answer)
            waiting.expect([slot], merge)


def _merge(
    flights: Flights, answer: Answer, parameter: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """Return what the sync policy makes of a parameter and its value."""
    merged = flights.merge(answer, on_host(parameter), on_host(value))
    return torch.from_numpy(merged).view(parameter.shape).to(parameter.device, parameter.dtype)
