"""State of each parameter that `geomx.torch.Optimizer` trains."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from geomx.errors import GeomxError

OWN_CHANGED = (
    "gradients were changed between backward() and step(): this worker's own, before the mean over "
    "all workers is taken. Undoing a loss scale is right there; clipping wants the mean: "
    "geomx.torch.Optimizer(..., update='worker'), and optimizer.average() before clipping"
)
"""Warning for scripts that change gradients before they are sent; see `Slot.changed`."""


class Place(NamedTuple):
    """Where a parameter's values are, and how often PyTorch has seen them written."""

    version: int
    address: int
    kind: tuple[object, ...]


@dataclass(eq=False)
class Writes:
    """How often the servers' values were written, as PyTorch counts writes.

    It counts those of a tensor and of all its views together.
    """

    ours: int = 0


@dataclass(eq=False)
class Slot:
    """One trained parameter.

    Attributes:
        name: Name in the model.
        parameter: The tensor itself.
        key: Key in the exchange.
        backwards: Number of backward passes that reached it in this step.
        fresh: Version of its gradient after the last of them.
        sent: The gradient that was sent in this step.
        version: Its version when it was sent.
        kept: Where the parameter is since it has the value of the global servers that update it;
            None where none do, and the script may change it.
        writes: The writes of these values, shared with parameters that PyTorch counts with it.
    """

    name: str
    parameter: torch.Tensor
    key: int
    backwards: int = 0
    fresh: int = 0
    sent: torch.Tensor | None = None
    version: int = 0
    kept: Place | None = None
    writes: Writes = field(default_factory=Writes)

    def reached(self, averaged: bool) -> None:
        """Record that a backward pass has accumulated a gradient.

        Args:
            averaged: Whether gradients are the mean already.

        Raises:
            GeomxError: The one of earlier passes was sent in this step.
        """
        if averaged:
            raise GeomxError(
                f"{self.name} had another backward pass between optimizer.average() and "
                "optimizer.step(): call step() before, or optimizer.zero_grad() on all workers, "
                "which leaves the step out"
            )
        self.backwards += 1
        if self.sent is not None:
            raise GeomxError(
                f"{self.name} had another backward pass after its gradient was sent: "
                f"geomx.torch.Optimizer(..., passes={self.backwards}) adds gradients up, and with "
                "overlap=False zero_grad() drops those of a batch"
            )
        if self.parameter.grad is not None:
            self.fresh = self.parameter.grad._version

    def changed(self) -> bool:
        """Return whether the gradient was changed in place since the last backward pass."""
        gradient = self.parameter.grad
        return gradient is not None and self.backwards > 0 and gradient._version != self.fresh

    def rescale(self, factor: float) -> None:
        """Multiply the gradient, which is not a change by the script."""
        changed, gradient = self.changed(), self.parameter.grad
        if gradient is not None:
            with torch.no_grad():
                gradient.mul_(factor)
            self.fresh = self.fresh if changed else gradient._version

    def check_dense(self) -> None:
        """Check that the gradient can be sent.

        Raises:
            GeomxError: It is sparse.
        """
        gradient = self.parameter.grad
        if gradient is not None and gradient.layout != torch.strided:
            raise GeomxError(
                f"the gradient of {self.name} is sparse, and only dense ones are exchanged: create "
                "its module with sparse=False, or use a sync policy that exchanges parameters"
            )

    def check_untouched(self) -> None:
        """Check that the gradient, or its absence, is unchanged since it was sent.

        Raises:
            GeomxError: It has changed.
        """
        sent = self.sent
        if self.parameter.grad is not sent or (sent is not None and sent._version != self.version):
            raise GeomxError(
                f"the gradient of {self.name} was changed after it was sent: "
                "geomx.torch.Optimizer(..., overlap=False) sends gradients in step()"
            )

    def withdraw(self) -> None:
        """Do not count backward passes whose gradients were dropped before they were sent."""
        if self.sent is None:
            self.backwards = 0

    def forget(self) -> None:
        """Reset at the end of a step."""
        self.backwards, self.sent = 0, None

    # ---- changes of the parameter itself ----

    def keep(self) -> None:
        """Record that the parameter has the servers' value from now on."""
        parameter = self.parameter
        kind = (parameter.device, parameter.dtype, parameter.stride())
        self.kept = Place(self._writes_of_others, parameter.data_ptr(), kind)

    @property
    def _writes_of_others(self) -> int:
        return int(self.parameter._version) - self.writes.ours

    def received(self) -> None:
        """Record that the servers' value was written to the parameter, after `check_unwritten`."""
        if self.kept is not None:
            self.writes.ours += self._writes_of_others - self.kept.version
            self.keep()

    def check_kept(self, fetch: Callable[[int, torch.Tensor], None]) -> None:
        """Check that the parameter has the servers' value, of which a gradient is to be sent.

        PyTorch's counters tell for free whether it was written or has moved; only if so, values are
        compared, because models are moved to other devices and back, and evaluated with weights
        that are exchanged for a while.

        Args:
            fetch: Fills a tensor with the servers' value of a key.

        Raises:
            GeomxError: It has another value.
        """
        kept, parameter = self.kept, self.parameter
        if kept is None or (self._writes_of_others, parameter.data_ptr()) == kept[:2]:
            return
        value = torch.empty_like(parameter)
        fetch(self.key, value)
        if not torch.equal(value, parameter):
            self._refuse()
        self.keep()

    def check_unwritten(self) -> None:
        """Check that the script has not written to the parameter whose value is about to arrive.

        Raises:
            GeomxError: It has, and the value would replace what it wrote.
        """
        kept, parameter = self.kept, self.parameter
        if kept is None:
            return
        here = parameter.data_ptr() == kept.address
        converted = (parameter.device, parameter.dtype, parameter.stride()) != kept.kind
        if self._writes_of_others != kept.version or not (here or converted):
            self._refuse()

    def _refuse(self) -> None:
        raise GeomxError(
            f"{self.name} was changed after its optimizer was wrapped, which global servers do not "
            "notice: geomx.torch.Optimizer(..., update='worker') updates the changed values here"
        )


def trained(optimizer: torch.optim.Optimizer, named: Mapping[str, torch.Tensor]) -> list[Slot]:
    """Return the parameters of a model that an optimizer trains.

    Args:
        optimizer: An optimizer of PyTorch.
        named: The model's parameters by name.

    Raises:
        GeomxError: The optimizer has tensors that are no parameters of the model.
    """
    names = {id(parameter): name for name, parameter in named.items()}
    given = [each for group in optimizer.param_groups for each in group["params"]]
    for parameter in given:
        if id(parameter) not in names:
            shape = tuple(parameter.shape)
            raise GeomxError(f"the optimizer holds a tensor {shape} that is not the model's")
    held = {id(parameter) for parameter in given}
    slots = [
        Slot(name, parameter, key)
        for key, (name, parameter) in enumerate(named.items())
        if id(parameter) in held and parameter.requires_grad
    ]
    _share_writes(slots)
    return slots


def _share_writes(slots: Iterable[Slot]) -> None:
    """Let parameters share their `Writes` that PyTorch counts together: views of one tensor."""
    by_memory: defaultdict[int, list[Slot]] = defaultdict(list)
    for slot in slots:
        by_memory[slot.parameter.untyped_storage().data_ptr()].append(slot)
    for here in by_memory.values():
        others = here
        while len(others) > 1:
            first, before = others[0], [slot.parameter._version for slot in others]
            torch.autograd.graph.increment_version(first.parameter)
            counted = [slot.parameter._version for slot in others]
            for slot, was, now in zip(others, before, counted, strict=True):
                slot.writes = first.writes if now != was else slot.writes
            others = [slot for slot in others if slot.writes is not first.writes]


def frozen(
    optimizer: torch.optim.Optimizer, named: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return, by name, the parameters of a model that an optimizer holds, but that are frozen.

    Nothing of them is exchanged; see `check_unchanged`.

    Args:
        optimizer: An optimizer of PyTorch.
        named: The model's parameters by name.
    """
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return {
        name: parameter
        for name, parameter in named.items()
        if id(parameter) in held and not parameter.requires_grad
    }


def check_unchanged(
    optimizer: torch.optim.Optimizer,
    slots: Iterable[Slot],
    frozen_ones: Mapping[str, torch.Tensor],
) -> None:
    """Check that an optimizer trains the parameters that it had when it was wrapped.

    Workers do not exchange others, so each would train its own.

    Args:
        optimizer: The wrapped optimizer.
        slots: The parameters that are exchanged.
        frozen_ones: By name, those that it held and that were frozen.

    Raises:
        GeomxError: A frozen one has a gradient, or the optimizer has another tensor.
    """
    for name, parameter in frozen_ones.items():
        if parameter.grad is not None:
            raise GeomxError(
                f"{name} has a gradient, but was frozen when geomx.torch.Optimizer wrapped its "
                "optimizer, so workers do not exchange it: wrap the optimizer while the parameter "
                "requires gradients, and freeze it afterwards"
            )
    known = {id(slot.parameter) for slot in slots} | set(map(id, frozen_ones.values()))
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in known:
                raise GeomxError(
                    f"a tensor {tuple(parameter.shape)} was added to the optimizer after "
                    "geomx.torch.Optimizer wrapped it, so workers do not exchange it: create all "
                    "parameters, and add them to the optimizer, before wrapping; freeze those "
                    "that are trained later"
                )


def weakly(method: Callable[..., None], *given: Any) -> Callable[..., None]:
    """Return a function that calls a method, and does not keep the method's object alive.

    An optimizer holds its parameters, and Python's garbage collector does not see tensors' hooks,
    so that it could not free an optimizer that one of them holds.

    Args:
        method: The bound method.
        given: Its first arguments.
    """
    reference = weakref.WeakMethod(method)

    def call(*more: Any) -> None:
        found = reference()
        if found is not None:
            found(*given, *more)

    return call
