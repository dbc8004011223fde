"""Which forward pass waits for which parameters.

A module's own parameters are waited for right before it is called, so that the first layers compute
while the last ones' values are still on their way. Some modules are never called: their parameters
are used by the module around them (the output projection of ``torch.nn.MultiheadAttention``).
Which these are is seen in the passes that were made; until a module has been called once, the next
one around it that has been waits in its place, and before the first pass whoever comes first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

import torch

from geomx.torch.exchange import TensorExchange


class Expected(Protocol):
    """A parameter whose value can be on its way."""

    parameter: torch.Tensor
    key: int


class Waiting:
    """Hooks on every module of `model`.

    Args:
        model: What is trained.
        slots: Its trained parameters.
        exchange: Where values come from.

    Attributes:
        seconds: Spent waiting; whoever reads it sets it back.
    """

    def __init__(
        self, model: torch.nn.Module, slots: Iterable[Expected], exchange: TensorExchange
    ) -> None:
        self.seconds = 0.0
        self._exchange = exchange
        self._pending: dict[int, Expected] = {}  # by key
        self._modules = dict(model.named_modules())
        self._slots = {id(slot.parameter): slot for slot in slots}
        self._called: set[torch.nn.Module] = set()
        self._learned = 0
        self._before_all: list[Expected] = list(self._slots.values())
        self._before: dict[torch.nn.Module, list[Expected]] = {}
        for module in self._modules.values():
            module.register_forward_pre_hook(self._called_next)

    def expect(self, slots: Iterable[Expected]) -> None:
        """New values of `slots` are on their way."""
        self._pending.update({slot.key: slot for slot in slots})

    def expects(self, slot: Expected) -> bool:
        """Whether the value of `slot` has not been waited for yet."""
        return slot.key in self._pending

    def everything(self) -> None:
        """Wait for all that is on its way."""
        self._take(list(self._pending.values()))

    def before_saving(self, *_: object) -> None:
        """What a model calls before it returns its state."""
        self.everything()

    def timed(self, key: int, out: torch.Tensor) -> None:
        """Fill `out` with the latest value of `key`; the time it takes counts."""
        began = time.monotonic()
        self._exchange.pull(key, [out])
        self.seconds += time.monotonic() - began

    def learn(self) -> None:
        """Decide anew who waits for what, if modules have been called that never had been."""
        if len(self._called) == self._learned:
            return
        self._learned = len(self._called)
        self._before_all, self._before = [], {}
        for name, module in self._modules.items():
            own = [
                self._slots[id(parameter)]
                for parameter in module.parameters(recurse=False)
                if id(parameter) in self._slots
            ]
            around = self._around(name)
            held = self._before_all if around is None else self._before.setdefault(around, [])
            held.extend(own)

    def _around(self, name: str) -> torch.nn.Module | None:
        """The module `name`, or the innermost around it, that has been called."""
        while self._modules[name] not in self._called:
            if not name:
                return None
            name = name.rpartition(".")[0]
        return self._modules[name]

    def _called_next(self, module: torch.nn.Module, _: object) -> None:
        self._called.add(module)
        if self._pending:
            self._take([*self._before_all, *self._before.get(module, ())])

    def _take(self, slots: Iterable[Expected]) -> None:
        for slot in slots:
            if self._pending.pop(slot.key, None) is not None:
                self.timed(slot.key, slot.parameter)
