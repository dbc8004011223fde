"""Loss scales of `torch.amp.GradScaler`.

A scaler leaves out a step whose gradients have overflowed, and only the worker knows whose
gradients they are: the others would wait for them. So `geomx.torch.Optimizer` asks to be called in
every step, as fused optimizers do (``_step_supports_amp_scaling``). It is then told the scale and
whether a gradient has overflowed, by attributes that it has during the call.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from geomx.torch.slots import Slot


def undo_scale(optimizer: torch.optim.Optimizer, slots: Iterable[Slot]) -> bool:
    """Undo the scale of the gradients, unless the script has (`GradScaler.unscale_`).

    Args:
        optimizer: The optimizer whose `step` was called, by a scaler or by the script.
        slots: The parameters that it trains.

    Returns:
        Whether the gradients may be used. They stay as they are if the scaler has found infinities
        or NaN.
    """
    if float(getattr(optimizer, "found_inf", 0.0)):
        return False
    scale = getattr(optimizer, "grad_scale", None)
    if scale is not None:
        factor = float(scale.double().reciprocal())
        for slot in slots:
            slot.rescale(factor)
    return True
