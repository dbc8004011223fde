"""What global servers were told of an optimizer of MXNet: they are told once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from geomx.errors import GeomxError
from geomx.kv.values import attributes_of, multiplier, schedule_attributes

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
        schedule = getattr(optimizer, _SCHEDULE, None)
        self._schedule = None if schedule is None else _Schedule(schedule)
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
        if self._schedule is not None and (change := self._schedule.change()) is not None:
            option, before, now = change
            self._refuse(f"{option} of the optimizer's {_SCHEDULE}", option, before, now)
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


class _Schedule:
    """A scheduler of MXNet as the global servers know it.

    Scripts may call theirs, which lowers the rate of some kinds; every other change is one.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._names = schedule_attributes(scheduler)
        self._read: Callable[[Any], tuple[Any, ...]] = attrgetter(*self._names)
        self._values = copy.deepcopy(self._read(scheduler))
        self._decays = hasattr(scheduler, "factor")  # other kinds compute it from base_lr_orig
        self._state = self._rate_and_decays()

    def _rate_and_decays(self) -> tuple[float, int]:
        given = self._scheduler
        if not self._decays:
            return 0.0, 0
        several = getattr(given, "cur_step_ind", None)
        return given.base_lr, given.count // given.step if several is None else several

    def change(self) -> tuple[str, Any, Any] | None:
        """Return an attribute that was changed, with its value before and now; None if none was."""
        if (values := self._read(self._scheduler)) != self._values:
            told = zip(self._names, self._values, values, strict=True)
            return next(each for each in told if each[1] != each[2])
        if (state := self._rate_and_decays()) != self._state:
            expected, decays = self._state
            floor = getattr(self._scheduler, "stop_factor_lr", 0.0)
            for _ in range(state[1] - decays):
                expected = max(expected * self._scheduler.factor, floor)
            if state[0] != expected:
                return "base_lr", expected, state[0]
            self._state = state
        return None


def _shown(value: Any) -> str:
    number = isinstance(value, int | float | list) or value is None
    return f"{value}" if number else type(value).__name__
