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
    """Return the optimizer with which global servers average the pushed parameters, as text.

    Args:
        member: A member of the job.

    Returns:
        The optimizer; None if gradients are exchanged, where the training script decides.
    """
    if member.policy.exchange != "parameters":
        return None
    rule, _ = chosen_optimizers(member.spec.cluster, member.selection, OF_SCRIPT)
    check_optimizer(member.selection, rule)
    return None if rule is None else optimizer_text(rule)


def named(optimizer: Any) -> str:
    """Return the name of an optimizer for error messages."""
    given = optimizer.get("name") if isinstance(optimizer, Mapping) else optimizer
    return given if isinstance(given, str) else type(given).__name__.lower()


_OF_SUMS = ("rescale_grad", "average")  # scripts scale their gradients by themselves


def checked_optimizer(member: Member, optimizer: Any, options: Mapping[str, float]) -> str:
    """Return an optimizer as global servers take it; see `geomx.kv.KVStore.set_optimizer`.

    Raises:
        ConfigError: They lack that optimizer or option; or the sync algorithm has workers update by
            themselves, or chooses another optimizer.
    """
    sync, _ = member.spec.sync
    if member.policy.exchange == "parameters":
        remedy = "every worker runs its own optimizer: see store.rhythm in docs/moving.md"
        raise ConfigError("optimizer", named(optimizer), f"under sync={sync} {remedy}")
    numbers = optimizer_numbers(optimizer, options)
    text = optimizer_text(numbers)
    try:
        _core.Optimizer(text, 0)
    except ValueError as error:
        known = ", ".join(_core.optimizers())
        name = text.split("\n", 1)[0]
        raise ConfigError("optimizer", name, f"{error}; available: {known}") from error
    chosen = member.policy.global_optimizer(numbers, len(member.spec.cluster.workers)) or {}
    other = [
        str(value) if option == "name" else f"{option}={value}"
        for option, value in chosen.items()
        if option not in _OF_SUMS and numbers.get(option) != value
    ]
    if other:
        remedy = (
            f"the job's sync={sync} chooses {' '.join(other)}, and servers run what a script sets: "
            f"set that in the script, or launch it without these options of sync={sync}"
        )
        raise ConfigError("optimizer", numbers["name"], remedy)
    return text


def check_later(member: Member, optimizer: Any) -> None:
    """Check that servers may be told of another optimizer when training has begun.

    Raises:
        ConfigError: It may reach some servers after pushes that were made later: where the parties
            run it, or members of an overlay pass on what others push.
    """
    cluster, selection = member.spec.cluster, member.selection
    overlays = (group.root for group, overlay in selection.overlays(cluster) if overlay.push)
    labels = [selection.overlay_label(root) for root in overlays]
    if selection.update_at_party(cluster):
        labels += [label for label, _ in selection.labelled("geomx_update", cluster=cluster)]
    if labels:
        remedy = (
            f"another one was set before, and under {labels[0].split(':')[0]} servers would take "
            "this one over in different rounds: set one before the first push, with a schedule "
            "(lr_scheduler) if its learning rate is to change, or let the workers update"
        )
        raise ConfigError("optimizer", named(optimizer), remedy)
