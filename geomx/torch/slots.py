"""What `geomx.torch.Optimizer` knows of each parameter that it trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from geomx.errors import GeomxError

OWN_CHANGED = (
    "gradients were changed between backward() and step(): this worker's own, before the mean over "
    "all workers is taken. Undoing a loss scale is right there; clipping wants the mean: "
    "geomx.torch.Optimizer(..., update='worker'), and optimizer.average() before clipping"
)
"""What a script is told that changes gradients before they leave; see `Slot.changed`."""


@dataclass(eq=False)
class Slot:
    """One trained parameter.

    Attributes:
        name: As the model calls it.
        parameter: The tensor itself.
        key: What the exchange knows it by.
        backwards: Backward passes that reached it in this step.
        fresh: How often its gradient had been changed in place when the last of them was done.
        sent: The gradient that has left in this step.
        version: How often that had been changed in place when it left.
    """

    name: str
    parameter: torch.Tensor
    key: int
    backwards: int = 0
    fresh: int = 0
    sent: torch.Tensor | None = None
    version: int = 0

    def reached(self) -> None:
        """A backward pass has accumulated a gradient."""
        self.backwards += 1
        if self.parameter.grad is not None:
            self.fresh = self.parameter.grad._version

    def changed(self) -> bool:
        """Whether the script has changed the gradient in place since the last backward pass."""
        gradient = self.parameter.grad
        return gradient is not None and self.backwards > 0 and gradient._version != self.fresh

    def check_untouched(self) -> None:
        """Refuse that the gradient that has left, or its absence, is no longer what it was.

        Raises:
            GeomxError: It is not.
        """
        sent = self.sent
        if self.parameter.grad is not sent or (sent is not None and sent._version != self.version):
            raise GeomxError(
                f"the gradient of {self.name} was changed after it had left: "
                "geomx.torch.Optimizer(..., overlap=False) sends gradients in step()"
            )

    def forget(self) -> None:
        """The step is over."""
        self.backwards, self.sent = 0, None


def trained(optimizer: torch.optim.Optimizer, named: Mapping[str, torch.Tensor]) -> list[Slot]:
    """The parameters that `optimizer` holds, of the model whose parameters are `named`.

    Raises:
        GeomxError: It holds what is not the model's.
    """
    names = {id(parameter): name for name, parameter in named.items()}
    given = [each for group in optimizer.param_groups for each in group["params"]]
    for parameter in given:
        if id(parameter) not in names:
            shape = tuple(parameter.shape)
            raise GeomxError(f"the optimizer holds a tensor {shape} that is not the model's")
    held = {id(parameter) for parameter in given}
    return [
        Slot(name, parameter, key)
        for key, (name, parameter) in enumerate(named.items())
        if id(parameter) in held and parameter.requires_grad
    ]
