"""Conversion of a workload's options to its optimizer, checked by the core.

The optimizers and their options are defined once, in the core; here options only become a name and
parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from geomx import _core
from geomx.errors import ConfigError
from geomx.plugin.parts import optimizer_text
from geomx.workloads.options import Updates

_ELSEWHERE = {
    "name": "optimizer",
    "learning_rate": "learning_rate",
    "momentum": "momentum",
    "wd": "wd",
}
_OF_THE_SYNC = ("average", "begin_num_update", "rescale_grad", "sources")


def optimizer_of(options: Updates) -> dict[str, Any]:
    """Return the optimizer of a workload, as in `geomx.workload.Workload.optimizer`.

    Args:
        options: Options of the workload.

    Returns:
        ``name`` and parameters.

    Raises:
        ConfigError: The optimizer or an option is unknown, or a value is out of range.
    """
    if options.optimizer not in _core.optimizers():
        remedy = f"must be one of {', '.join(_core.optimizers())}"
        raise ConfigError("workload.optimizer", options.optimizer, remedy)
    made: dict[str, Any] = {"name": options.optimizer, "learning_rate": options.learning_rate}
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
    """Yield (dotted name, value) for everything inside nested dicts and lists."""
    for name, value in options.items():
        inside = dict(enumerate(value)) if isinstance(value, list | tuple) else value
        if isinstance(inside, Mapping):
            yield from _flat(inside, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _add(made: dict[str, Any], option: str, value: float, key: str) -> None:
    """Add `option` to `made`, and check it by itself.

    Options of a schedule depend on each other and are checked together, at the end.
    """
    made[option] = value
    if not option.startswith("schedule."):
        _check({"name": made["name"], option: value}, key, value)


def _check(optimizer: dict[str, Any], key: str, value: object) -> None:
    try:
        _core.Optimizer(optimizer_text(optimizer), 0)
    except ValueError as error:
        raise ConfigError(key, value, str(error)) from error
