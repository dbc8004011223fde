"""Checks of what a script gives to `geomx.torch.Optimizer`, before its worker has keys."""

from __future__ import annotations

from typing import Any

import torch

from geomx.errors import ConfigError


def check_kinds(optimizer: Any, model: Any) -> None:
    """Check that an optimizer and a model were given, in this order.

    Args:
        optimizer: What the script gave as its optimizer.
        model: What it gave as its model.

    Raises:
        ConfigError: One is something else.
    """
    order = "geomx.torch.Optimizer(optimizer, model)"
    if not isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer).__name__
        raise ConfigError("optimizer", kind, f"must be a torch.optim.Optimizer: {order}")
    if not isinstance(model, torch.nn.Module):
        kind = type(model).__name__
        raise ConfigError("model", kind, f"must be a torch.nn.Module: {order}")


def checked_update(update: str) -> str:
    """Return `update` if it is one of the words of `geomx.torch.Optimizer`.

    Raises:
        ConfigError: It is not.
    """
    if update not in ("servers", "worker"):
        raise ConfigError("update", update, "must be servers or worker")
    return update
