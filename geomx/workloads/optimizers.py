"""From a workload's options to the optimizer that it trains with, checked by the core itself.

Which optimizers there are and what each takes is written down once, in the core; here options only
become a name and numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from geomx import _core
from geomx.errors import ConfigError
from geomx.plugin.parts import optimizer_text

_ELSEWHERE = {
    "name": "optimizer",
    "learning_rate": "learning_rate",
    "momentum": "momentum",
    "wd": "wd",
}
_OF_THE_SYNC = ("average", "begin_num_update", "rescale_grad", "sources")


class Training(Protocol):
    """The options that say how a workload trains.

    Attributes:
        optimizer: A name.
        learning_rate: More than 0.
        momentum: For optimizers that have one.
        wd: Weight decay.
        optimizer_options: Everything else, as the core spells it; a group of options with a common
            first part may be a dict (``{"schedule": {"cosine": {"max_update": 500}}}``), and
            numbered ones a list (``{"schedule": {"multifactor": {"step": [100, 200]}}}``).
    """

    optimizer: str
    learning_rate: float
    momentum: float | None
    wd: float | None
    optimizer_options: dict[str, Any]


def optimizer_of(options: Training) -> dict[str, Any]:
    """The optimizer as a name and numbers, as `geomx.workload.Workload.optimizer` holds it.

    Raises:
        ConfigError: There is no such optimizer, it does not take such an option, or a number is out
            of range.
    """
    if options.optimizer not in _core.optimizers():
        remedy = f"must be one of {', '.join(_core.optimizers())}"
        raise ConfigError("workload.optimizer", options.optimizer, remedy)
    rate = options.learning_rate
    if not (math.isfinite(rate) and rate > 0):
        raise ConfigError("workload.learning_rate", rate, "must be a number greater than 0")
    made: dict[str, Any] = {"name": options.optimizer, "learning_rate": rate}
    for option in ("momentum", "wd"):
        value = getattr(options, option)
        if value is not None:
            _add(made, option, value, f"workload.{option}")
    for option, value in _flat(options.optimizer_options):
        key = f"workload.optimizer_options.{option}"
        if option in _OF_THE_SYNC:
            raise ConfigError(key, value, "the synchronisation sets this itself")
        if option in _ELSEWHERE:
            raise ConfigError(key, value, f"is workload.{_ELSEWHERE[option]}")
        if not isinstance(value, int | float):
            raise ConfigError(key, value, "must be a number")
        _add(made, option, float(value), key)
    _check(made, "workload.optimizer_options", options.optimizer_options)
    return made


def _flat(options: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of everything inside nested dicts and lists."""
    for name, value in options.items():
        inside = dict(enumerate(value)) if isinstance(value, list | tuple) else value
        if isinstance(inside, Mapping):
            yield from _flat(inside, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _add(made: dict[str, Any], option: str, value: float, key: str) -> None:
    """Put `option` into `made` if the optimizer takes it by itself.

    Options of a schedule need each other and are checked when all are there.
    """
    made[option] = value
    if not option.startswith("schedule."):
        _check({"name": made["name"], option: value}, key, value)


def _check(optimizer: dict[str, Any], key: str, value: object) -> None:
    try:
        _core.Optimizer(optimizer_text(optimizer), 0)
    except ValueError as error:
        raise ConfigError(key, value, str(error)) from error
