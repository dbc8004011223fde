"""Which forward pass waits for which parameters.

A module's own parameters are waited for right before it is called, so that the first layers compute
while the last ones' values are still on their way. Some modules are never called: their parameters
are used by the module around them (the output projection of ``torch.nn.MultiheadAttention``).
Which these are is seen in the passes that were made; until a module has been called once, the next
one around it that has been waits in its place, and before the first pass whoever comes first.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch

from geomx.errors import GeomxError
from geomx.torch.exchange import TensorExchange


class Expected(Protocol):
    """A parameter whose value can be on its way."""

    parameter: torch.Tensor
    key: int


def watching(
    model: torch.nn.Module, slots: Iterable[Expected], exchange: TensorExchange
) -> Waiting:
    """Hooks on every module of `model`.

    Args:
        model: What is trained.
        slots: Its trained parameters.
        exchange: Where values come from.
    """
    trained = {id(slot.parameter): slot for slot in slots}
    own = {}
    for name, module in model.named_modules():
        held = [id(parameter) for parameter in module.parameters(recurse=False)]
        own[name] = [trained[each] for each in held if each in trained]
    waiting = Waiting(own, exchange)
    for name, module in model.named_modules():
        module.register_forward_pre_hook(functools.partial(waiting.before_calling, name))
        module.register_state_dict_pre_hook(waiting.before_saving)
        module.register_load_state_dict_post_hook(waiting.after_loading)
    return waiting


class Waiting:
    """What is on its way, and who waits for it.

    A model's hooks hold it, and it does not hold the model, nor does the optimizer's part of it: a
    model and its gradients go with the last reference to them, and not when Python next looks for
    circles, in the middle of a step. A copy of the model waits for nothing.

    Args:
        own: Trained parameters of each module, by the module's name.
        exchange: Where values come from; a copy of the model has none.

    Attributes:
        seconds: Spent waiting; whoever reads it sets it back.
    """

    def __init__(
        self, own: Mapping[str, Sequence[Expected]], exchange: TensorExchange | None
    ) -> None:
        self.seconds = 0.0
        self._own = own
        self._exchange = exchange
        self._training = exchange is not None
        self._pending: dict[int, Expected] = {}  # by key
        self._called: set[str] = set()
        self._learned = 0
        self._before_all: list[Expected] = [slot for slots in own.values() for slot in slots]
        self._before: dict[str, list[Expected]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """How a model with these hooks is copied, or stored as a whole."""
        if self._pending:
            raise GeomxError("values are on their way: call optimizer.wait() before copying models")
        return Waiting, ({}, None)

    def expect(self, slots: Iterable[Expected]) -> None:
        """New values of `slots` are on their way."""
        self._pending.update({slot.key: slot for slot in slots})

    def expects(self, slot: Expected) -> bool:
        """Whether the value of `slot` has not been waited for yet."""
        return slot.key in self._pending

    def everything(self) -> None:
        """Wait for all that is on its way."""
        self._take(list(self._pending.values()))

    def end(self) -> None:
        """Training is over: the model may be loaded into again."""
        self._training = False

    def timed(self, key: int, out: torch.Tensor) -> None:
        """Fill `out` with the latest value of `key`; the time it takes counts."""
        if self._exchange is not None:
            began = time.monotonic()
            self._exchange.pull(key, [out])
            self.seconds += time.monotonic() - began

    def learn(self) -> None:
        """Decide anew who waits for what, if modules have been called that never had been."""
        if len(self._called) == self._learned:
            return
        self._learned = len(self._called)
        self._before_all, self._before = [], {}
        for name, slots in self._own.items():
            around = self._around(name)
            held = self._before_all if around is None else self._before.setdefault(around, [])
            held.extend(slots)

    def _around(self, name: str) -> str | None:
        """The module `name`, or the innermost around it, that has been called."""
        while name not in self._called:
            if not name:
                return None
            name = name.rpartition(".")[0]
        return name

    def _take(self, slots: Iterable[Expected]) -> None:
        for slot in slots:
            if self._pending.pop(slot.key, None) is not None:
                self.timed(slot.key, slot.parameter)

    # ---- hooks ----

    def before_calling(self, name: str, *_: object) -> None:
        """The module `name` is called next."""
        self._called.add(name)
        if self._pending:
            self._take([*self._before_all, *self._before.get(name, ())])

    def before_saving(self, *_: object) -> None:
        """A module is about to return its state."""
        self.everything()

    def after_loading(self, *_: object) -> None:
        """A module was given other values, of which nobody else knows."""
        if self._training:
            raise GeomxError("load the model before geomx.torch.Optimizer wraps its optimizer")
