"""Conversion of the arguments of training scripts to the few forms that the store uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geomx.errors import ConfigError, GeomxError
from geomx.frameworks import tensors

Key = int | str

_MAX_KEY = 2**32 - 1
_WHOLE = 2**24  # float32 holds all integers up to this one

# The core's options by the attributes of MXNet's optimizers; None, and 0 for a bound, mean MXNet's
# default.
_COMMON = {"learning_rate": "lr", "wd": "wd", "rescale_grad": "rescale_grad"}
_COMMON |= {name: name for name in ("clip_gradient", "begin_num_update")}
_NUMBERS = {
    "sgd": ("momentum",),
    "nag": ("momentum",),
    "adam": ("beta1", "beta2", "epsilon"),
    "adamw": ("beta1", "beta2", "epsilon", "correct_bias"),
    "rmsprop": ("gamma1", "gamma2", "epsilon", "centered", "clip_weights"),
    "adagrad": ("eps",),
    "dcasgd": ("momentum", "lamda"),
}
_BOUNDS = ("clip_gradient", "clip_weights")
_FOR_EXAMPLE = "{'name': 'sgd', 'learning_rate': 0.1}"

# The same for MXNet's schedulers.
_WARMUP = ("warmup_steps", "warmup_begin_lr", "warmup_final_lr")
_SCHEDULES = {
    "factor": ("step", "factor", "stop_factor_lr"),
    "multifactor": ("factor",),
    "poly": ("max_update", "power", "final_lr"),
    "cosine": ("max_update", "final_lr"),
}
_RENAMED = {"eps": "float_stable_eps"}


def pairs(key: Any, value: Any) -> list[tuple[Key, Any]]:
    """Return keys with their values as a list.

    Args:
        key: A key, or a list of keys.
        value: Its value, or a list of values.

    Raises:
        GeomxError: A key is neither an integer nor a string, or the lists differ in length.
    """
    if not isinstance(key, list | tuple):
        return [(_key(key), value)]
    if not isinstance(value, list | tuple) or len(value) != len(key):
        raise GeomxError(f"{len(key)} keys need a list of {len(key)} values")
    return [(_key(each), given) for each, given in zip(key, value, strict=True)]


def _key(key: Any) -> Key:
    if isinstance(key, str) or (type(key) is int and 0 <= key <= _MAX_KEY):
        return key
    if isinstance(key, int | np.integer) and not isinstance(key, bool) and 0 <= key <= _MAX_KEY:
        return int(key)
    raise GeomxError(f"key {key!r} is neither text nor a whole number from 0 to {_MAX_KEY}")


def devices(value: Any) -> list[Any]:
    """Return a value as a list of arrays, one per device.

    Args:
        value: An array, or a list of arrays.

    Raises:
        GeomxError: The list is empty.
    """
    if isinstance(value, list | tuple) and all(hasattr(array, "shape") for array in value):
        if not value:
            raise GeomxError("an empty list is not a value")
        return list(value)
    return [value]


def to_float32(key: Key, value: Any) -> NDArray[np.float32]:
    """Return an array or a tensor as a float32 array on the host.

    Args:
        key: Key of the value, for error messages.
        value: The array or tensor; returned itself if it is a float32 array on the host.

    Raises:
        GeomxError: It is not numeric, a finite value exceeds the range of float32, or float32 would
            round an integer.
    """
    try:
        array = tensors.read(value) if tensors.is_tensor(value) else np.asarray(value)
    except ValueError as error:
        raise GeomxError(f"key {key!r}: {error}") from error
    if array.dtype == np.float32:
        return array
    if array.dtype.kind not in "fiub":
        raise GeomxError(f"key {key!r}: an array of {array.dtype} is not made of numbers")
    with np.errstate(over="ignore"):
        cast = array.astype(np.float32)
    if array.dtype.itemsize < 4:
        return cast  # float32 holds all of their values
    if array.dtype.kind == "f":
        if not np.array_equal(np.isfinite(cast), np.isfinite(array)):
            first = array[np.isfinite(cast) != np.isfinite(array)][0]
            raise GeomxError(
                f"key {key!r}: {first} is too large for float32, the type in which values are "
                "sent: push smaller values"
            )
    else:
        rounded = first_rounded(array)
        if rounded is not None:
            raise GeomxError(
                f"key {key!r}: {rounded} of {array.dtype} would be rounded to float32, the "
                "type in which values are sent: push array.astype(numpy.float32) if it may be"
            )
    return cast


def first_rounded(array: NDArray[Any]) -> Any:
    """Return the first integer of an array that float32 would round; None if there is none."""
    narrow = array.dtype == np.bool_ or not array.size
    if narrow or -_WHOLE <= int(array.min()) <= int(array.max()) <= _WHOLE:
        return None
    cast = array.astype(np.float32)
    inside = cast < 2.0 ** np.iinfo(array.dtype).max.bit_length()  # others cannot be cast back
    held = inside & (np.where(inside, cast, 0).astype(array.dtype) == array)
    return None if held.all() else array[~held][0]


def narrow(target: Any) -> str:
    """Return the type of an array on the host that cannot hold every float32, or "" otherwise.

    Args:
        target: An array or a tensor.
    """
    if tensors.on_device(target):
        return ""
    type_ = tensors.look_at(target).type if tensors.is_tensor(target) else np.asarray(target).dtype
    try:
        dtype = np.dtype(type_)
    except TypeError:
        return ""  # bfloat16, whose range is that of float32
    return dtype.name if dtype.kind in "iu" or dtype == np.float16 else ""


def check_fits(key: Key, value: NDArray[np.float32], type: str) -> None:
    """Check that the value of a key can be stored in a type; fractions may be cut off.

    Args:
        key: The key, for error messages.
        value: What is to be stored.
        type: See `narrow`.

    Raises:
        GeomxError: It would wrap around, or a finite value become infinite.
    """
    if type == "float16":
        with np.errstate(over="ignore"):
            fits = np.isfinite(value.astype(np.float16)) | ~np.isfinite(value)
    else:
        limits, whole = np.iinfo(type), np.trunc(value)
        fits = (whole >= float(limits.min)) & (whole < 2.0 ** limits.max.bit_length())
    if not fits.all():
        raise GeomxError(
            f"key {key!r}: its value {value[~fits].flat[0]:.10g} does not fit {type}, the type of "
            "the array to fill: pull into an array of float32"
        )


def optimizer_numbers(optimizer: Any, options: Mapping[str, float]) -> dict[str, Any]:
    """Return an optimizer as a name and numbers.

    Args:
        optimizer: A name, a dict with ``name``, or an optimizer object of MXNet.
        options: Options for a name or a dict.

    Raises:
        ConfigError: The core has no such optimizer or schedule, there is no name, or an option is
            not a number.
    """
    if isinstance(optimizer, str):
        return _checked({"name": optimizer, **options})
    if isinstance(optimizer, Mapping):
        return _checked({**optimizer, **options})
    name = type(optimizer).__name__.lower()
    if name == "test":  # used by MXNet's own tests: adds what is pushed
        numbers = {"learning_rate": 1.0, "rescale_grad": -optimizer.rescale_grad}
        return {"name": "sgd", **numbers}
    if name not in _NUMBERS:
        known = ", ".join(_NUMBERS)
        raise ConfigError(
            "optimizer",
            name,
            f"global servers run only {known}; use one of them, or update on the workers",
        )
    if not hasattr(optimizer, "param_dict"):
        raise ConfigError(
            "optimizer",
            f"{type(optimizer).__module__}.{type(optimizer).__name__}",
            f"no optimizer of MXNet; give a name and numbers, such as {_FOR_EXAMPLE}, or wrap an "
            "optimizer of PyTorch in geomx.torch.Optimizer",
        )
    numbers = {
        option: getattr(optimizer, attribute, None)
        for option, attribute in attributes_of(optimizer).items()
    }
    numbers |= _schedule(getattr(optimizer, "lr_scheduler", None), name)
    for option, value in list(numbers.items()):
        if value is None or (option in _BOUNDS and not value):
            del numbers[option]
    return {"name": name, **numbers, **_multipliers(optimizer)}


def _checked(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return a name and numbers, after checking that they are.

    Raises:
        ConfigError: They are not.
    """
    if not isinstance(numbers.get("name"), str):
        raise ConfigError("optimizer.name", numbers.get("name"), f"needed, as in {_FOR_EXAMPLE}")
    for option, value in numbers.items():
        try:
            if option != "name":
                float(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"optimizer.{option}", value, "must be a number") from error
    return numbers


def attributes_of(optimizer: Any) -> dict[str, str]:
    """Return the attributes of an optimizer of MXNet that global servers are told, by option."""
    own = _NUMBERS.get(type(optimizer).__name__.lower(), ())
    return _COMMON | {option: _RENAMED.get(option, option) for option in own}


def _schedule(scheduler: Any, name: str) -> dict[str, float]:
    """Return a scheduler of MXNet as options of the optimizer called `name`.

    Raises:
        ConfigError: The core has no such scheduler, or it has been used before.
    """
    if scheduler is None:
        return {}
    kind = type(scheduler).__name__.lower().removesuffix("scheduler")
    if kind not in _SCHEDULES:
        known = ", ".join(_SCHEDULES)
        raise ConfigError("optimizer", name, f"its schedule {kind} is not one of {known}")
    if getattr(scheduler, "count", 0):
        raise ConfigError("optimizer", name, "its schedule has been used before: make a new one")
    options = {option: getattr(scheduler, option) for option in (*_SCHEDULES[kind], *_WARMUP)}
    options["warmup_constant"] = scheduler.warmup_mode == "constant"
    if kind == "multifactor":
        options |= {f"step.{index}": step for index, step in enumerate(scheduler.step)}
    if "power" in options:
        options["pwr"] = options.pop("power")
    numbers = {f"schedule.{kind}.{option}": float(value) for option, value in options.items()}
    return {"learning_rate": getattr(scheduler, "base_lr_orig", scheduler.base_lr), **numbers}


def schedule_attributes(scheduler: Any) -> list[str]:
    """Return the attributes of a scheduler of MXNet that servers are told and calls leave alone."""
    kind = type(scheduler).__name__.lower().removesuffix("scheduler")
    names = ("base_lr_orig", "step", *_SCHEDULES[kind], *_WARMUP, "warmup_mode")
    return [name for name in dict.fromkeys(names) if hasattr(scheduler, name)]


def _multipliers(optimizer: Any) -> dict[str, float]:
    """Return MXNet's multipliers of single keys, where they are not 1."""
    found = {}
    keys = {*optimizer.param_dict, *optimizer.idx2name, *optimizer.lr_mult, *optimizer.wd_mult}
    for key in sorted(key for key in keys if isinstance(key, int)):
        for option in ("lr_mult", "wd_mult"):
            factor = multiplier(optimizer, option, key)
            if factor != 1.0:
                found[f"{option}.{key}"] = factor
    return found


def multiplier(optimizer: Any, option: str, key: int) -> float:
    """Return a multiplier of a key, as MXNet's own optimizers look it up.

    Args:
        optimizer: An optimizer of MXNet.
        option: ``lr_mult`` or ``wd_mult``.
        key: The key.
    """
    if (parameter := optimizer.param_dict.get(key)) is not None:
        factor: float = getattr(parameter, option)
        return factor
    given: Mapping[Any, float] = getattr(optimizer, option)
    return given.get(key, given.get(optimizer.idx2name.get(key), 1.0))
