"""What global servers were told of an optimizer of MXNet: they are told once."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from geomx.errors import GeomxError
from geomx.kv.values import attributes_of, multiplier

_OF_KEYS = ("lr_mult", "wd_mult")
_SCHEDULE = "lr_scheduler"


class Told:
    """An optimizer as the global servers know it.

    MXNet's scripts change options of a local optimizer while they train. Servers would not notice,
    as under MXNet's own distributed store, and go on with the old ones: so a change is an error.

    Args:
        optimizer: The optimizer, as they are told it now.
        type: Type of the store, by MXNet's name.
    """

    def __init__(self, optimizer: Any, type: str) -> None:
        self._optimizer = optimizer
        self._type = type
        options = attributes_of(optimizer) | {_SCHEDULE: _SCHEDULE}
        if getattr(optimizer, _SCHEDULE, None) is not None:
            del options["learning_rate"]  # the schedule has it
        options = {name: which for name, which in options.items() if hasattr(optimizer, which)}
        self._options = tuple(options)
        self._read: Callable[[Any], tuple[Any, ...]] = attrgetter(*options.values())
        self._values = self._read(optimizer)
        keys = (*optimizer.param_dict, *optimizer.idx2name, *optimizer.lr_mult, *optimizer.wd_mult)
        self._factors = {key: self._of_key(key) for key in keys}

    def check(self, key: int) -> None:
        """Check that options which concern a key are those that the servers were told.

        Args:
            key: The key, by its number. Called for every push, so it takes a microsecond or two.

        Raises:
            GeomxError: They have changed; names the first.
        """
        if (values := self._read(self._optimizer)) != self._values:
            told = zip(self._options, self._values, values, strict=True)
            option, before, now = next(each for each in told if each[1] != each[2])
            self._refuse(f"{option} of the optimizer", option, before, now)
        known = self._factors.get(key, (1.0, 1.0))
        if (factors := self._of_key(key)) != known:
            for option, before, now in zip(_OF_KEYS, known, factors, strict=True):
                if before != now:
                    self._refuse(f"{option} of {self._name(key)}", option, before, now)

    def _of_key(self, key: int) -> tuple[float, float]:
        one, other = _OF_KEYS
        return multiplier(self._optimizer, one, key), multiplier(self._optimizer, other, key)

    def _name(self, key: int) -> str:
        parameter = self._optimizer.param_dict.get(key)
        name = self._optimizer.idx2name.get(key) if parameter is None else parameter.name
        return name or f"key {key}"

    def _refuse(self, what: str, option: str, before: Any, now: Any) -> None:
        rate = option in ("learning_rate", _SCHEDULE)
        remedy = "give it a schedule (lr_scheduler) at the start" if rate else "set it at the start"
        if "async" not in self._type:  # there, MXNet's Trainer insists on servers that update
            remedy += ", or update on the workers: gluon.Trainer(..., update_on_kvstore=False)"
        raise GeomxError(
            f"{what} was changed from {_shown(before)} to {_shown(now)} after the first step, "
            f"which global servers do not notice: {remedy}"
        )


def _shown(value: Any) -> str:
    number = isinstance(value, int | float) or value is None
    return f"{value}" if number else type(value).__name__
