"""Hydra's composition, kept for further experiments with the same choices.

Composing takes Hydra about as long as a small simulation takes altogether, and plans, studies and
explanations compose hundreds of experiments that mostly differ in values. What it makes of the
choices alone (``sync=x``, ``network=y``) is therefore kept. In a copy, the options of the plugins
of a list (``accel=[x]``) are then entered, and last the values (``sync.k=2``), by the same function
as in Hydra. The one run of a command (`run_once`) is composed once, where ``hydra.main`` does so
twice.
"""

from __future__ import annotations

import copy
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO, cast

from hydra import compose, initialize_config_module, main
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType, ValueType
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from geomx.config.own_files import CONF, no_folder, searched
from geomx.config.sweeps import killed_told
from geomx.errors import ConfigError
from geomx.plugin.registration import LISTS

VERSION_BASE = "1.3"
KEPT = 32
"""Compositions, of about a megabyte each."""

LONGEST = 240
"""Bytes of the name of a choice, of 255 that file systems take."""

RUN_DIRECTORY = "hydra.run.dir"
SHELLS = ("bash", "fish", "zsh")
TASKS = ("install", "uninstall", "query")
"""What ``--shell-completion`` does."""


class Words(NamedTuple):
    """The words of a command line.

    Attributes:
        flags: Hydra's flags, with their values.
        plain: The overrides.
        prints: Whether a flag has something printed, such as ``--help``, and nothing run.
        searched: Overrides by which another run finds the user's files, those of ``--config-dir``
            too: without them, what this one chooses there would be unknown to it.
    """

    flags: list[str]
    plain: list[str]
    prints: bool
    searched: list[str]


def read_words(words: Sequence[str]) -> Words:
    """Separate flags from overrides, wherever the flags stand.

    Args:
        words: Overrides and flags.

    Raises:
        ConfigError: A flag is unknown, or Hydra would fail at it.
    """
    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise ConfigError("flags", " ".join(words), f"{message}; see --help")

    parser.error = refuse  # type: ignore[method-assign]
    given = parser.parse_intermixed_args(list(words))
    if (remedy := _refused(given)) is not None:
        refuse(remedy)
    left = list(given.overrides)
    flags = [word for word in words if not (left and word == left[0] and left.pop(0))]
    shown = given.help, given.hydra_help, given.cfg, given.info, given.shell_completion
    found = searched(given.config_dir, given.overrides)
    return Words(flags, list(given.overrides), any(shown), found)


def _refused(given: Namespace) -> str | None:
    """Return why Hydra would fail at flags; None if it would not."""
    modes = ("run", "multirun", "cfg", "info", "shell_completion")
    chosen = [f"--{mode.replace('_', '-')}" for mode in modes if getattr(given, mode)]
    if len(chosen) > 1:
        return f"{' and '.join(chosen)} exclude each other"
    if given.resolve and not (given.cfg or given.help):
        return "--resolve is for --cfg"
    if given.config_dir is not None and (remedy := no_folder(given.config_dir)) is not None:
        return remedy
    if given.experimental_rerun and not Path(given.experimental_rerun).is_file():
        return f"there is no file {given.experimental_rerun}"
    if not given.shell_completion:
        return None
    tasks = [word.split("=") for word in given.overrides if word.startswith(TASKS)]
    if len(tasks) != 1 or tasks[0] not in [[task, shell] for task in TASKS for shell in SHELLS]:
        return f"--shell-completion needs install=SHELL, and SHELL is {', '.join(SHELLS)}"
    if tasks[0][0] == "query" and "COMP_LINE" not in os.environ:
        return "query is called by shells, which set COMP_LINE"
    return None


def initialised() -> initialize_config_module:
    """Return a context in which Hydra composes geomx's configuration."""
    return initialize_config_module(CONF, job_name="geomx", version_base=VERSION_BASE)


def composed(overrides: Sequence[str], offered: Hashable) -> Any:
    """Return the configuration that `hydra.compose` makes of overrides, with Hydra's own node.

    Hydra must have been initialised, and no other thread may use it meanwhile.

    Args:
        overrides: Overrides in Hydra's syntax.
        offered: What else the choices of Hydra's store depend on.

    Raises:
        HydraException: The overrides do not fit.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    if not all(map(_is_plain, parsed)):
        return compose("config", overrides=list(overrides), return_hydra_config=True)
    values = [override for override in parsed if not _is_choice(override)]
    choices = [override for override in parsed if _is_choice(override)]
    lists = _lists(choices)
    others = tuple(str(each.input_line) for each in choices if each.key_or_group not in lists)
    config = copy.deepcopy(_chosen(others, offered))
    try:
        for group, names in lists.items():
            for name in names:
                node = ConfigStore.instance().load(f"{group}/{name}.yaml").node
                OmegaConf.update(config, f"{group}.{name}", node, merge=False, force_add=True)
        ConfigLoaderImpl._apply_overrides_to_config(values, config)
    except OmegaConfBaseException as error:
        raise ConfigCompositionException() from error
    _record(parsed, config.hydra)
    return config


def check_choice(group: str, override: str) -> None:
    """Refuse what is no name or list of names, and ``[x,x]``: Hydra's errors name no override.

    Args:
        group: Group of the choice.
        override: An override of it, in Hydra's syntax.

    Raises:
        ConfigError: It is refused.
        HydraException: It has another syntax.
    """
    parsed = OverridesParser.create().parse_override(override)
    if parsed.value_type == ValueType.GLOB_CHOICE_SWEEP:
        raise ConfigError(group, override.partition("=")[2], "list the names instead: a,b")
    values: Any = parsed.sweep_iterator() if parsed.is_sweep_override() else [parsed.value()]
    for value in values:
        if isinstance(value, dict):  # sets options
            continue
        names = value if isinstance(value, list) and group in LISTS else [value]
        shown = Override._get_value_element_as_str(value)
        if not all(isinstance(name, str) for name in names):
            wanted = "a list of names, [a,b]" if group in LISTS else "a name"
            raise ConfigError(group, shown, f"must be {wanted}")
        for name in names:
            if len(name.encode()) > LONGEST:  # Hydra looks for a file of this name
                raise ConfigError(group, shown, "is too long for a name")
            if names.count(name) > 1:
                raise ConfigError(group, shown, f"{name} is listed twice")


def each_preset(overrides: Sequence[str]) -> Iterator[list[str]]:
    """Yield overrides with one file of the group ``experiment`` each, of several that are swept.

    Other keys that are swept are left out. Nothing is yielded if no such file is swept.

    Args:
        overrides: Overrides of a sweep.

    Raises:
        ConfigError: What is swept is no name.
        HydraException: An override has another syntax.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    fixed = [str(each.input_line) for each in parsed if not each.is_sweep_override()]
    for override in parsed:
        if override.key_or_group == "experiment" and override.is_sweep_override():
            check_choice("experiment", str(override.input_line))
            for name in override.sweep_string_iterator():
                yield [*fixed, f"experiment={name}"]


def is_one_run(overrides: Sequence[str]) -> bool:
    """Return whether overrides are certain to describe a single run.

    Without flags, a sweep can still be requested by a file of the group ``experiment`` and by
    settings of ``hydra``. With either of them the answer is False.

    Args:
        overrides: Overrides in Hydra's syntax, without flags.

    Raises:
        HydraException: An override has another syntax.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    return all(
        override.key_or_group == RUN_DIRECTORY
        or not override.key_or_group.startswith(("hydra", "experiment"))
        for override in parsed
    )


def run_all(flags: Sequence[str], overrides: Sequence[str], job: Callable[[Any], None]) -> None:
    """Run `job` on one configuration, or on each of a sweep.

    Args:
        flags: Flags of Hydra's command line.
        overrides: Overrides in Hydra's syntax. `sys.argv` has both, for ``hydra.main``.
        job: Called with a configuration.

    Raises:
        GeomxError: A process of joblib's was killed.
        HydraException: The overrides do not fit.
        Exception: Raised by `job`.
    """
    if not flags and is_one_run(overrides):
        run_once(overrides, job)
    else:
        with killed_told():
            main(f"pkg://{CONF}", "config", VERSION_BASE)(job)()


def run_once(overrides: Sequence[str], job: Callable[[Any], None]) -> None:
    """Compose one configuration and run `job` on it, in a run directory as ``hydra.main`` makes it.

    ``hydra.main`` composes the configuration twice: the first time only to read ``hydra.mode``.

    Args:
        overrides: Overrides of one run (see `is_one_run`).
        job: Called with the configuration.

    Raises:
        HydraException: The overrides do not fit.
        Exception: Raised by `job`.
    """
    with initialised():
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        hydra.run("config", job, [*overrides, f"hydra.mode={RunMode.RUN.name}"])


@lru_cache(KEPT)
def _chosen(choices: tuple[str, ...], offered: Hashable) -> Any:
    return compose("config", overrides=list(choices), return_hydra_config=True)


def _lists(choices: Sequence[Override]) -> dict[str, list[str]]:
    """Return the chosen lists of plugins that need not be composed by Hydra, by group.

    These are all lists of known plugins, unless an ``experiment`` is chosen, whose file may choose
    plugins and set their options, too. Plans try many lists, so each would need a composition.
    """
    if any(choice.key_or_group == "experiment" for choice in choices):
        return {}
    found: dict[str, Any] = {
        choice.key_or_group: choice.value()
        for choice in choices
        if choice.key_or_group in LISTS and choice.type == OverrideType.CHANGE
    }
    there = {group: ConfigStore.instance().repo.get(group, {}) for group in found}
    return {
        group: names
        for group, names in found.items()
        if isinstance(names, list) and all(f"{name}.yaml" in there[group] for name in names)
    }


def _is_plain(override: Override) -> bool:
    """Whether an override does nothing but choose, or set a value after that."""
    key = override.key_or_group
    own = key.startswith("hydra") and key != RUN_DIRECTORY
    if own or override.package is not None or override.is_sweep_override():
        return False
    return not (_is_choice(override) and isinstance(override.value(), dict))


def _is_choice(override: Override) -> bool:
    """Whether an override is of a group of choices."""
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    loader = hydra.config_loader
    assert isinstance(loader, ConfigLoaderImpl)
    return loader.repository.group_exists(override.key_or_group)


def _record(parsed: Sequence[Override], hydra: Any) -> None:
    """Enter in Hydra's node what it records of a composition."""
    lines = [(override.is_hydra_override(), override.input_line) for override in parsed]
    hydra.overrides.hydra = [line for own, line in lines if own]
    hydra.overrides.task = [line for own, line in lines if not own]
    hydra.runtime.cwd = os.getcwd()
    form = hydra.job.config.override_dirname
    hydra.job.override_dirname = get_overrides_dirname(
        overrides=[override for override in parsed if not override.is_hydra_override()],
        kv_sep=form.kv_sep,
        item_sep=form.item_sep,
        exclude_keys=form.exclude_keys,
    )


class _WithoutJobLine:
    """A stream that drops Hydra's announcement of a failing job; the failure itself is reported."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Pass `text` on, unless it is the announcement."""
        if text.startswith("Error executing job with overrides"):
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def hydra_raises() -> Iterator[None]:
    """Make Hydra raise its exceptions instead of printing them and exiting."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        with redirect_stderr(cast(TextIO, _WithoutJobLine(sys.stderr))):
            yield
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before
