"""What global servers do with pushed parameters, where the sync algorithm exchanges those."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geomx import _core
from geomx.errors import ConfigError
from geomx.experiment.native_parts import OF_SCRIPT, check_optimizer, chosen_optimizers
from geomx.kv.values import optimizer_numbers
from geomx.live.member import Member
from geomx.plugin.parts import optimizer_text


def global_rule(member: Member) -> str | None:
    """Return the instruction that makes global servers average the pushed parameters.

    Args:
        member: A member of the job.

    Returns:
        The instruction; None if gradients are exchanged, where the training script decides.
    """
    if member.policy.exchange != "parameters":
        return None
    rule, _ = chosen_optimizers(member.spec.cluster, member.selection, OF_SCRIPT)
    check_optimizer(member.selection, rule)
    return None if rule is None else "optimizer\n" + optimizer_text(rule)


def named(optimizer: Any) -> str:
    """Return the name of an optimizer for error messages."""
    given = optimizer.get("name") if isinstance(optimizer, Mapping) else optimizer
    return given if isinstance(given, str) else type(given).__name__.lower()


def checked_optimizer(optimizer: Any, options: Mapping[str, float]) -> str:
    """Return an optimizer as global servers take it; see `geomx.kv.KVStore.set_optimizer`.

    Raises:
        ConfigError: They lack that optimizer or option.
    """
    text = optimizer_text(optimizer_numbers(optimizer, options))
    try:
        _core.Optimizer(text, 0)
    except ValueError as error:
        known = ", ".join(_core.optimizers())
        name = text.split("\n", 1)[0]
        raise ConfigError("optimizer", name, f"{error}; available: {known}") from error
    return text
