"""Waits of forward passes for parameters.

A module waits for its own parameters right before it is called, so that the first layers compute
while the values of the last ones are still under way. Some modules are never called: their
parameters are used by an enclosing module (the output projection of
``torch.nn.MultiheadAttention``). These are detected from the passes made so far; as long as a
module has not been called, the innermost enclosing module that has been waits in its place, and
before the first pass the first module that is called.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch

from geomx.errors import GeomxError
from geomx.live.torch_exchange import TensorExchange

Merge = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Expected(Protocol):
    """A parameter whose value can be under way."""

    parameter: torch.Tensor
    key: int

    def check_unwritten(self) -> None:
        """Check that the value does not replace one that the script wrote."""
        ...

    def received(self) -> None:
        """Take note that the parameter has the value."""
        ...


def watching(
    model: torch.nn.Module,
    slots: Iterable[Expected],
    exchange: TensorExchange,
    clock: Callable[[], float],
) -> Waiting:
    """Add hooks to every module of a model.

    Args:
        model: The model to train.
        slots: Its trained parameters.
        exchange: Source of the values.
        clock: The run's clock, in seconds.

    Returns:
        The state of the hooks.
    """
    trained = {id(slot.parameter): slot for slot in slots}
    own = {}
    for name, module in model.named_modules():
        held = [id(parameter) for parameter in module.parameters(recurse=False)]
        own[name] = [trained[each] for each in held if each in trained]
    waiting = Waiting(own, exchange, clock)
    for name, module in model.named_modules():
        # Before the hooks that the module has: some compute from parameters (pruning, weight_norm).
        hook = functools.partial(waiting.before_calling, name)
        module.register_forward_pre_hook(hook, prepend=True)
        module.register_state_dict_pre_hook(waiting.before_saving)
        module.register_load_state_dict_post_hook(waiting.after_loading)
    return waiting


class Waiting:
    """Values under way, and the modules that wait for them.

    The model's hooks refer to it; neither it nor the optimizer's part refers to the model, so that
    a model and its gradients are freed with the last reference and not by a later garbage
    collection in the middle of a step. A copy of the model does not wait.

    Args:
        own: Trained parameters of each module, by the module's name.
        exchange: Source of the values; None in a copy of the model.
        clock: See `watching`.

    Attributes:
        seconds: Time spent waiting; reset by its reader.
    """

    def __init__(
        self,
        own: Mapping[str, Sequence[Expected]],
        exchange: TensorExchange | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = 0.0
        self._clock = clock
        self._own = own
        self._exchange = exchange
        self._training = exchange is not None
        self._pending: dict[int, tuple[Expected, Merge | None]] = {}  # by key
        self._called: set[str] = set()
        self._learned = 0
        self._before_all: list[Expected] = [slot for slots in own.values() for slot in slots]
        self._before: dict[str, list[Expected]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy or pickle the hooks of a model without their state."""
        if self._pending:
            raise GeomxError("values are under way: call optimizer.wait() before copying models")
        return Waiting, ({}, None)

    def expect(self, slots: Iterable[Expected], merge: Merge | None = None) -> None:
        """Record that new values of `slots` are under way.

        Args:
            slots: Parameters.
            merge: Returns what a parameter becomes, given itself and the value; None: the value.
        """
        self._pending.update({slot.key: (slot, merge) for slot in slots})

    def expects(self, slot: Expected) -> bool:
        """Return whether the value of `slot` has not been awaited yet."""
        return slot.key in self._pending

    def everything(self) -> None:
        """Wait for all values under way."""
        self._take([slot for slot, _ in self._pending.values()])

    def end(self) -> None:
        """End training, so that the model may be loaded into again."""
        self._training = False

    def timed(self, key: int, out: torch.Tensor) -> None:
        """Fill `out` with the latest value of `key`, and add the time to `seconds`."""
        if self._exchange is not None:
            began = self._clock()
            self._exchange.pull(key, [out])
            self.seconds += self._clock() - began

    def learn(self) -> None:
        """Reassign parameters to waiting modules if further modules have been called."""
        if len(self._called) == self._learned:
            return
        self._learned = len(self._called)
        self._before_all, self._before = [], {}
        for name, slots in self._own.items():
            around = self._around(name)
            held = self._before_all if around is None else self._before.setdefault(around, [])
            held.extend(slots)

    def _around(self, name: str) -> str | None:
        """Return the module `name` or the innermost enclosing one that has been called."""
        while name not in self._called:
            if not name:
                return None
            name = name.rpartition(".")[0]
        return name

    def _take(self, slots: Iterable[Expected]) -> None:
        for slot in slots:
            _, merge = found = self._pending.pop(slot.key, (None, None))
            if merge is not None:
                value = torch.empty_like(slot.parameter)
                self.timed(slot.key, value)
                with torch.no_grad():
                    slot.parameter.copy_(merge(slot.parameter.detach(), value))
                slot.received()
            elif found[0] is not None:
                slot.check_unwritten()
                self.timed(slot.key, slot.parameter)
                slot.received()

    # ---- hooks ----

    def before_calling(self, name: str, *_: object) -> None:
        """Wait for the parameters that module `name` needs before its call."""
        self._called.add(name)
        if self._pending:
            self._take([*self._before_all, *self._before.get(name, ())])

    def before_saving(self, *_: object) -> None:
        """Wait for all values before a module returns its state."""
        self.everything()

    def after_loading(self, *_: object) -> None:
        """Refuse to load values during training, since other workers would not get them."""
        if self._training:
            raise GeomxError("load the model before geomx.torch.Optimizer wraps its optimizer")
