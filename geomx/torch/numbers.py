"""Conversion of PyTorch's optimizers to names and numbers for the global servers.

Only optimizers with identical steps in the core are converted: SGD, with either kind of momentum,
Adam and AdamW. All others can update on the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from geomx.errors import ConfigError, GeomxError

_ELSEWHERE = "let every worker update instead: geomx.torch.Optimizer(..., update='worker')"
_BY_GROUP = ("lr", "weight_decay", "params")  # may differ between parameter groups
_HOW = ("foreach", "fused", "capturable", "differentiable")  # do not change the result


def translated(optimizer: torch.optim.Optimizer, keys: Mapping[int, int]) -> dict[str, Any]:
    """Convert an optimizer to the core's names.

    Args:
        optimizer: An optimizer of PyTorch.
        keys: The keys of its parameters, by ``id``.

    Returns:
        ``name`` and numbers; different learning rates or weight decays of groups become multipliers
        of keys. Groups without any of these parameters (frozen ones) do not count.

    Raises:
        ConfigError: Global servers lack that optimizer, or that option of it.
    """
    name = type(optimizer).__name__
    translate = _TRANSLATORS.get(type(optimizer))
    if translate is None:
        known = ", ".join(each.__name__ for each in _TRANSLATORS)
        raise ConfigError("optimizer", name, f"global servers have {known}; {_ELSEWHERE}")
    given = groups(optimizer)
    first, *others = [each for each in given if _keys(each, keys)] or given
    for group in others:
        for option, value in group.items():
            if option not in _BY_GROUP and value != first[option]:
                _refuse(name, option, value)
    if first.get("maximize"):
        _refuse(name, "maximize", True)
    rate, decay = float(first["lr"]), float(first["weight_decay"])
    made = {"learning_rate": rate, "wd": decay, **translate(name, first)}
    for group in others:
        multipliers = {
            "lr_mult": _ratio(name, "lr", group["lr"], rate),
            "wd_mult": _ratio(name, "weight_decay", group["weight_decay"], decay),
        }
        for option, factor in multipliers.items():
            if factor != 1.0:
                made |= {f"{option}.{key}": factor for key in _keys(group, keys)}
    return made


def keeps_state(numbers: Mapping[str, Any]) -> bool:
    """Return whether the optimizer's next step depends on more than weights and gradients."""
    return numbers["name"] != "sgd" or bool(numbers.get("momentum"))


def groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return the parameter groups of `optimizer` as they are now.

    They have the options on which its result depends, and no notes of scripts or schedulers. Later
    changes do not show, also those of tensors that hold options.
    """
    kept = [option for option in optimizer.defaults if option not in _HOW]
    return [
        {"params": group["params"], **{option: _plain(group.get(option)) for option in kept}}
        for group in optimizer.param_groups
    ]


def check_told(optimizer: torch.optim.Optimizer, told: list[dict[str, Any]] | None) -> None:
    """Check that an optimizer's options are those that the global servers were told.

    Args:
        optimizer: The optimizer.
        told: Its `groups` then; None if they were told nothing.

    Raises:
        GeomxError: They have changed.
    """
    if told is None:
        return
    now = groups(optimizer)
    if now == told:
        return
    changes = [
        f"{option} of group {number} from {before[option]} to {value}"
        for number, (before, group) in enumerate(zip(told, now, strict=False))
        for option, value in group.items()
        if option != "params" and value != before[option]
    ]
    raise GeomxError(
        f"the optimizer's options were changed ({', '.join(changes) or 'its groups'}), which "
        "global servers do not notice: geomx.torch.Optimizer(..., update='worker') steps here, "
        "for example with a learning-rate schedule"
    )


def _keys(group: Mapping[str, Any], keys: Mapping[int, int]) -> list[int]:
    return [keys[id(each)] for each in group["params"] if id(each) in keys]


def _plain(value: Any) -> Any:
    """Return an option, with numbers in place of tensors."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _sgd(name: str, group: Mapping[str, Any]) -> dict[str, Any]:
    if group["dampening"]:
        _refuse(name, "dampening", group["dampening"])
    if not group["momentum"]:
        return {"name": "sgd"}
    if group["nesterov"] and group["weight_decay"]:
        _refuse(name, "weight_decay", f"{group['weight_decay']} with nesterov")
    kind = "nag" if group["nesterov"] else "sgd"
    return {"name": kind, "momentum": float(group["momentum"])}


def _adam(name: str, group: Mapping[str, Any]) -> dict[str, Any]:
    if group["amsgrad"]:
        _refuse(name, "amsgrad", True)
    beta1, beta2 = group["betas"]
    numbers = {"beta1": float(beta1), "beta2": float(beta2)}
    numbers |= {"epsilon": float(group["eps"]), "late_epsilon": 1.0}
    decoupled = name == "AdamW" or group.get("decoupled_weight_decay", False)
    return {"name": "adamw" if decoupled else "adam", **numbers}


_TRANSLATORS: dict[type, Callable[[str, Mapping[str, Any]], dict[str, Any]]] = {
    torch.optim.SGD: _sgd,
    torch.optim.Adam: _adam,
    torch.optim.AdamW: _adam,
}


def _ratio(name: str, option: str, value: Any, base: float) -> float:
    if base == 0.0 and value != 0.0:
        _refuse(name, option, f"{value} in one group and 0 in the first")
    return float(value) / base if base else 1.0


def _refuse(name: str, option: str, value: Any) -> None:
    raise ConfigError(f"optimizer.{name}.{option}", value, f"not on global servers; {_ELSEWHERE}")
