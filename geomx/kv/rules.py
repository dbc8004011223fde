"""What global servers do with pushed parameters, where the sync algorithm exchanges those."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from geomx.experiment.native_parts import OF_SCRIPT, check_optimizer, chosen_optimizers
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
