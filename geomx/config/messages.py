"""Conversion of Hydra's and OmegaConf's errors to one sentence with key, value and remedy.

Their exceptions carry what is needed (the override, the node in which a key was looked up, the
choices of a group), but their texts are several lines for authors of applications, not for users.
"""

from __future__ import annotations

import dataclasses
import re
import traceback
import typing
from collections.abc import Sequence
from importlib.resources import files

from hydra._internal import config_loader_impl
from hydra.core.config_store import ConfigStore
from hydra.errors import (
    ConfigCompositionException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    ConfigTypeError,
    InterpolationKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)
from yaml import MarkedYAMLError

from geomx.config.defaults import FORM, misfit, without_header
from geomx.config.groups import OF_FILES
from geomx.errors import ConfigError, near
from geomx.options.parsing import SEVERAL
from geomx.plugin.registration import KINDS, LISTS
from geomx.plugin.registry import Registry

# Endings of OmegaConf's "Value 'x' of type 'str' could not be converted to ...".
_TYPES = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false"}
_TABLE = "must be a table, {key: value}"
_OWN_FILES = "files of your own are chosen by --config-dir FOLDER experiment=NAME"
_CHOSEN = f"plugins are chosen in its list of defaults: {FORM}"
_OWN_EXPERIMENT = ", or NAME of FOLDER/experiment/NAME.yaml with --config-dir FOLDER"
_VALIDATION = {  # what OmegaConf's messages contain, and what to do; the first that is found counts
    "is not a valid bool": "must be true or false",
    "is not Optional": "must not be null",
    "NoneType is not a subclass of": "must not contain null",
    "is not a subclass of": SEVERAL,
    "Cannot convert 'list' to string": "must be one value, not a list",
    "Cannot convert 'dict' to string": "must be one value, not a table",
    "is not a ListConfig": "must be a list: {listed}",
    "Cannot assign": _TABLE,
}


def explain(error: Exception, overrides: Sequence[str], registry: Registry) -> ConfigError:
    """Return the error for an exception of Hydra.

    Args:
        error: Hydra's or OmegaConf's exception.
        overrides: Overrides of the command line.
        registry: The plugins that were found, and those that could not be loaded.
    """
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override, str(error))
    if isinstance(error, MissingConfigException) and "/" in (error.missing_cfg_file or ""):
        group, name = _choice(str(error.missing_cfg_file))
        # Hydra supplies no options if the name is in a list.
        options = error.options or [*ConfigStore.instance().repo.get(group, {}), *_shipped(group)]
        known = [
            option.removesuffix(".yaml") for option in options if not option.startswith(OF_FILES)
        ]
        if group not in KINDS:  # which no plugin can have failed to supply
            also = _OWN_EXPERIMENT if group == "experiment" else ""
            return ConfigError(group, name, f"no such {group}; {near(name, known)}{also}")
        also = ", or a file" if group == "network" else ""
        if also and "." in name:  # overrides name files by path; so this is in a list of defaults
            also += f", which lists of defaults find by {name.partition('.')[0]} in FOLDER/network"
        return ConfigError(group, name, registry.missing(name, group, known, also))
    if isinstance(error, MissingConfigException):  # of the configuration in which all others are
        flag = "--config-name" if error.missing_cfg_file else "--config-path"
        name = error.missing_cfg_file or str(error).partition("'")[2].partition("'")[0]
        return ConfigError(flag, name, f"there is none; {_OWN_FILES}")
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if isinstance(error, MarkedYAMLError) and mark is not None:
        where = f"{error.problem or error.context} at line {mark.line + 1}"
        return ConfigError("configuration", mark.name, f"is not YAML: {where}")
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__
    if isinstance(cause, OmegaConfBaseException):
        return _omegaconf(cause, error, overrides, registry)
    if isinstance(error, ConfigCompositionException) and (
        isinstance(error.__context__, OmegaConfBaseException)
    ):
        return _in_file(error.__context__, error, registry)
    if (misfitting := misfit(str(error))) is not None:
        return misfitting
    first = str(error).strip().split("\n", 1)[0] or type(error).__name__
    override = _override_in(str(error), overrides)
    key, _, value = override.partition("=")
    key = key.lstrip("+~")
    if override.startswith("~"):
        remedy = "there is no such key, or it has another value: nothing can be removed"
        return ConfigError("override", override, remedy)
    if "Ambiguous value" in first or "requires --multirun" in first:
        first = "several values are a sweep, which needs -m; a list is written [a,b]"
    elif twice := re.match(r"(\S+) appears more than once", first):
        first = f"{twice[1].rpartition('/')[2]} is chosen twice"
    elif "An item is already at" in first:
        return ConfigError(key, value, "it already exists; leave out the +")
    elif "No match in the defaults list" in first:
        first = "it has no default to replace; write it with a +"
    return ConfigError(key or "configuration", value, first)


def below_nothing(error: Exception) -> ConfigError | None:
    """Return the error for an override of a key below a list or null; None if that is not why.

    OmegaConf asserts that there are none, or takes a key of a list for its number. It also asserts
    that a table takes the place of no null.

    Args:
        error: An `AssertionError`, `AttributeError` or `ValueError`.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not any(frame.f_globals is vars(config_loader_impl) for frame in frames):
        return None
    for frame in frames:
        if frame.f_code is OmegaConf.update.__code__:
            key, value = frame.f_locals["key"], frame.f_locals["value"]
            if key.startswith("hydra.sweeper."):
                remedy = "can be set by files only; with -m, KEY=A,B sweeps values"
                return ConfigError(key, str(value), remedy)
            above = key.rpartition(".")[0]
            remedy = f"{key} was set to null before, by another override or a file: leave that out"
            if above:
                none = f"{above} has no keys of its own: it is a list, or null"
                remedy = f"{none}; set {above} as a whole"
            return ConfigError(key, str(value), remedy)
    return None


def _shipped(group: str) -> list[str]:
    """Return the files of a group that come with geomx."""
    folder = files("geomx.conf") / group
    return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []


def _choice(file: str) -> tuple[str, str]:
    """Return group and name of the choice that Hydra looks for in a file, which may be a path."""
    own = file.startswith("hydra/")  # whose groups are nested
    group, _, name = file.rpartition("/") if own else file.partition("/")
    return group, name


def _in_file(cause: OmegaConfBaseException, error: Exception, registry: Registry) -> ConfigError:
    """Return the error for a file whose values Hydra could not enter in the configuration."""
    group, name = _choice(str(error).partition("'")[2].partition("'")[0])
    full_key = str(cause.full_key or "")
    if isinstance(cause, ConfigAttributeError | ConfigKeyError):
        unknown = f"{full_key}: {_unknown(cause, full_key, '', registry)}"
        remedy = without_header(group, full_key) or unknown
    elif full_key:
        remedy = f"{full_key} {_remedy(cause, f'[{_show(cause)}]')}"
    else:  # the name of a plugin in the place of its options
        remedy = f"it sets a plugin as an option; {_CHOSEN}"
    return ConfigError(group, name, f"in its file, {remedy}")


def _omegaconf(
    cause: OmegaConfBaseException,
    error: Exception,
    overrides: Sequence[str],
    registry: Registry,
) -> ConfigError:
    full_key = str(cause.full_key or cause.key or "")
    override = _override_in(str(error), overrides) or _override_of(full_key, overrides)
    key, _, value = override.partition("=")
    key = key.lstrip("+~") or full_key or "configuration"
    if isinstance(cause, ConfigAttributeError | ConfigKeyError):
        return ConfigError(key, value, _unknown(cause, full_key, override, registry))
    if isinstance(cause, MissingMandatoryValue):
        return ConfigError(full_key, "", "must be given")
    if full_key and key.startswith(f"{full_key}."):
        return ConfigError(key, value, f"{full_key} is one value, which has no keys of its own")
    value = value or _show(cause)
    return ConfigError(key, value, _remedy(cause, f"{key}=[{value}]"))


def _unknown(
    cause: OmegaConfBaseException, full_key: str, override: str, registry: Registry
) -> str:
    """Return what to do about a key that does not exist."""
    parts = full_key.split(".")
    if parts[0] in LISTS and len(parts) == 2:
        chosen = ",".join([*map(str, cause.parent_node or {}), parts[1]])
        return f"{parts[1]} is not chosen; add '+{parts[0]}=[{chosen}]'"
    kinds = typing.get_args(cause.ref_type)
    if override and len(kinds) == 2 and dataclasses.is_dataclass(kinds[1]):
        return f"{parts[-1]} is not there yet; add it with a +: '+{override}'"
    known = list(cause.parent_node) if cause.parent_node is not None else []
    told = near(str(cause.key), known)
    owners = _owners(parts[0], parts[1], registry) if len(parts) == 2 else ""
    if owners and not told.startswith("did you mean"):
        remedy = told if known else f"choose it (+{parts[0]}=NAME), or leave this out"
        return f"is an option of {owners}; {remedy}"
    if override and parts[0] == "network" and not told.startswith("did you mean"):
        there = ", ".join(sorted(map(str, known)))
        return f"the network's file has only {there} there; add another with a +: '+{override}'"
    return f"unknown key; {told}"


def _owners(kind: str, option: str, registry: Registry) -> str:
    """Return the plugins of a kind that have an option: ``sync=NAME, which is not chosen``."""
    found = [
        f"{kind}={plugin.name}"
        for plugin in registry.plugins()
        if plugin.kind == kind
        and any(field.name == option for field in dataclasses.fields(plugin.config))
    ]
    ending = "which is not chosen" if len(found) == 1 else "none of which is chosen"
    return f"{', '.join(found)}, {ending}" if found else ""


def _remedy(cause: OmegaConfBaseException, listed: str) -> str:
    """Return what to do about a value of a wrong type, or one that cannot be had.

    Args:
        cause: OmegaConf's exception.
        listed: The override, with its value as a list of one.
    """
    message = str(cause).split("\n", 1)[0]
    if isinstance(cause, InterpolationKeyError):
        name = message.partition("'")[2].rpartition("'")[0]
        return f"refers to {name}, which is not an option"
    if isinstance(cause, InterpolationResolutionError):
        return f"cannot be resolved: {message.partition('interpolation: ')[2] or message}"
    if isinstance(cause, ConfigTypeError) and "Cannot merge" in message:
        wanted = cause.object_type
        table = SEVERAL if dataclasses.is_dataclass(wanted) else _TABLE
        return f"must be a list: {listed}" if wanted is list else table
    if not isinstance(cause, ValidationError):
        return message
    name = message.rpartition("could not be converted to ")[2]
    if name in _TYPES:
        return f"must be {_TYPES[name]}"
    found = (remedy for phrase, remedy in _VALIDATION.items() if phrase in message)
    return next(found, message).replace("{listed}", listed)


def _show(cause: OmegaConfBaseException) -> str:
    return "" if cause.value is None else str(cause.value)


def _unreadable(override: str, message: str) -> ConfigError:
    key, equals, value = override.partition("=")
    if not equals or not key:
        return ConfigError("override", override, "must be of the form key=value")
    if not value.isascii():
        remedy = f"has characters that must be quoted: '{key}=\"{value}\"'"
        return ConfigError(key, value, remedy)
    first = message.split("\n", 1)[0].rstrip(".")
    return ConfigError(key, value, f"cannot be read: {first}")


def _override_in(message: str, overrides: Sequence[str]) -> str:
    """Return the longest of `overrides` that the message quotes, or whose key it quotes."""
    found = [w for w in overrides if w in message or w.lstrip("+") in message]
    found = found or [w for w in overrides if f"'{w.partition('=')[0].lstrip('+~')}'" in message]
    return max(found, key=len, default=overrides[0] if len(overrides) == 1 else "")


def _override_of(full_key: str, overrides: Sequence[str]) -> str:
    """Return the last of `overrides` that sets `full_key`."""
    found = [w for w in overrides if w.partition("=")[0].lstrip("+") == full_key]
    return found[-1] if found else ""
