"""Builds instances of option dataclasses from plain dicts, with errors that name key and value.

Options come from the command line (where Hydra has already checked types), from Python and, in live
mode, from the scheduler; this module checks all of them in the same way. Errors contain the key as
on the command line (``accel.NAME.k``), the value, and what is allowed.
"""

from __future__ import annotations

import dataclasses
import enum
import shlex
import types
import typing
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, TypeVar

from geomx.errors import ConfigError, GeomxError, PluginError, near
from geomx.options.bounds import refusal

T = TypeVar("T")

SEVERAL = "holds several options; set one of them by its full name"


def option(default: Any, help: str) -> Any:
    """Return a dataclass field with its default and its text in ``--help``."""
    return dataclasses.field(default=default, metadata={"help": help})


def described(config: type, prefix: str) -> list[tuple[str, str]]:
    """Return (``KEY=DEFAULT``, help) of every option with a help text, in order."""
    told = []
    for field in dataclasses.fields(config):
        if "help" in field.metadata:
            default = field.default
            if default is None or isinstance(default, bool):  # as they are typed
                default = "null" if default is None else str(default).lower()
            told.append((f"{dotted(prefix, field.name)}={default}", field.metadata["help"]))
    return told


def build_options(config: type[T], options: Mapping[str, Any], prefix: str) -> T:
    """Return an instance of a dataclass of options.

    Args:
        config: The dataclass.
        options: Values by field name; other fields have their defaults.
        prefix: Prefix of the field names on the command line (``accel.NAME``).

    Returns:
        The instance.

    Raises:
        ConfigError: `options` is no mapping, an option is unknown or missing, or its value has a
            wrong type or is out of range.
        PluginError: The dataclass itself is invalid.
    """
    if not isinstance(options, Mapping):
        raise ConfigError(prefix, _typed(options), SEVERAL)
    fields = {field.name: field for field in dataclasses.fields(config) if field.init}  # type: ignore[arg-type]
    hints = typing.get_type_hints(config, include_extras=True)
    values = {}
    for name, value in options.items():
        if name not in fields:
            raise ConfigError(dotted(prefix, name), value, f"unknown option; {near(name, fields)}")
        values[name] = convert(value, hints[name], dotted(prefix, name))
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING
        if required and field.default_factory is dataclasses.MISSING and name not in values:
            raise ConfigError(dotted(prefix, name), "", f"must be given ({_text(hints[name])})")
    try:
        return config(**values)
    except ConfigError as error:
        raise prefixed(error, config, prefix) from error
    except GeomxError:
        raise
    except ValueError as error:
        # In "k must be between 0 and 1", the message names the invalid option.
        named = [word for word in str(error).replace(":", " ").split() if word in fields]
        if not named:
            raise ConfigError(prefix, dict(options), str(error)) from error
        remedy = str(error).removeprefix(named[0]).strip(" :") or "is not allowed"
        value = values.get(named[0], fields[named[0]].default)
        raise ConfigError(dotted(prefix, named[0]), value, remedy) from error
    except Exception as error:
        raise PluginError(f"{prefix}: {config.__name__} failed: {error!r}") from error


def dotted(prefix: str, name: str) -> str:
    """Return the key of option `name` with `prefix`, which may be empty."""
    return f"{prefix}.{name}" if prefix else name


def words_of(text: str, key: str) -> list[str]:
    """Return the words of an option's text, with the quotes and backslashes of a shell resolved.

    Args:
        text: The text.
        key: The option's key, for errors.

    Raises:
        ConfigError: A quote is not closed, or nothing follows a backslash.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        remedy = (
            f"cannot be divided into words ({error}); put a \\ before ' and \" that are letters"
        )
        raise ConfigError(key, text, remedy) from error


def prefixed(error: ConfigError, config: type, prefix: str) -> ConfigError:
    """Return `error` with its key under `prefix`, if a plugin named its option without it."""
    name, _, inside = error.key.partition(".")
    for field in dataclasses.fields(config):
        if field.name == name and (not inside or dataclasses.is_dataclass(field.default)):
            return ConfigError(dotted(prefix, error.key), error.value, error.remedy)
    return error


def convert(value: Any, hint: Any, key: str) -> Any:
    """Convert a value to the type of an annotation.

    Args:
        value: The value. Whole numbers are accepted as floats, and lists as tuples.
        hint: The annotation.
        key: The option's key, for errors.

    Returns:
        The converted value.

    Raises:
        ConfigError: The value does not have that type.
    """
    try:
        return _convert(value, hint, key)
    except (TypeError, ValueError) as error:
        wanted = _text(hint)
        one = value is not None and not isinstance(value, Mapping | list | tuple)
        quotes = "; put it in quotes" if one and wanted == "text" else ""
        raise ConfigError(key, _typed(value), f"must be {wanted}{quotes}") from error


def _convert(value: Any, hint: Any, key: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin is typing.Annotated:
        made = _convert(value, arguments[0], key)
        if (remedy := refusal(made, hint)) is not None:
            raise ConfigError(key, _typed(made), remedy)
        return made
    if hint is None or hint is types.NoneType:
        return _require(value, value is None)
    if origin in (typing.Union, types.UnionType):
        for option in arguments:
            try:
                return _convert(value, option, key)
            except (TypeError, ValueError):
                continue
        raise TypeError(key)
    if origin is typing.Literal:
        return _require(value, value in arguments)
    if origin in (list, tuple) or hint in (list, tuple):
        return _sequence(value, origin or hint, arguments, key)
    if origin is dict or hint is dict:
        _require(value, isinstance(value, Mapping))
        kinds = arguments or (Any, Any)
        return {
            _convert(name, kinds[0], key): convert(item, kinds[1], f"{key}.{name}")
            for name, item in value.items()
        }
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        if isinstance(value, hint):
            return value
        return hint[_require(str(value), str(value) in hint.__members__)]
    if isinstance(hint, type) and issubclass(hint, PurePath):
        return hint(_require(value, isinstance(value, str | PurePath)))
    if dataclasses.is_dataclass(hint):
        if isinstance(value, Mapping):
            return build_options(typing.cast(type, hint), value, key)
        return _require(value, isinstance(value, typing.cast(type, hint)))
    if hint is float:
        return float(_require(value, isinstance(value, int | float) and not _is_bool(value)))
    if hint is int:
        return _require(value, isinstance(value, int) and not _is_bool(value))
    return _require(value, not isinstance(hint, type) or isinstance(value, hint))


def _sequence(value: Any, kind: type, arguments: tuple[Any, ...], key: str) -> Any:
    _require(value, isinstance(value, list | tuple))
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        _require(value, len(value) == len(arguments))
        kinds = list(arguments)
    else:
        kinds = [arguments[0] if arguments else Any] * len(value)
    return kind(
        convert(item, hint, f"{key}[{index}]")
        for index, (item, hint) in enumerate(zip(value, kinds, strict=True))
    )


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _require(value: Any, holds: bool) -> Any:
    if not holds:
        raise TypeError(value)
    return value


def _typed(value: Any) -> str:
    """Return a value in the syntax of the command line."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(hint: Any) -> str:
    """Return a description of an annotation for users of the command line."""
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if hint in words:
        return words[hint]
    if hint is types.NoneType:
        return "null"
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Annotated:
        return _text(arguments[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_text(option) for option in arguments)
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(map(str, arguments))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "one of " + ", ".join(member.name for member in hint)
    if isinstance(hint, type) and issubclass(hint, PurePath):
        return "a path"
    if dataclasses.is_dataclass(hint):
        return "a table, {OPTION: VALUE}"
    if dict in (hint, typing.get_origin(hint)):
        return "a table, {NAME: VALUE}"
    if typing.get_origin(hint) is tuple and arguments[-1] is not Ellipsis:
        return f"a list of {len(arguments)}: {', '.join(map(_text, arguments))}"
    if typing.get_origin(hint) in (list, tuple):
        return "a list of " + _text(arguments[0]).removeprefix("a ").removeprefix("an ") + "s"
    return getattr(hint, "__name__", str(hint))
