"""The interface to Hydra: overrides become an `Experiment`, or an error of one sentence.

Hydra and OmegaConf are used only in this package. This module does four things. It offers every
plugin of the registry as a choice of its group, so that ``--help`` lists external plugins beside
built-in ones. It accepts overrides that Hydra alone would not: ``+sync=x`` and ``sync=x`` mean the
same, and ``network=FILE`` and ``costs=FILE`` name files. It composes (`compose`), or runs Hydra
with its run directories, sweeps and flags (`main`). And it converts Hydra's errors to a
`ConfigError` with the key, the value and what is allowed.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import (
    GrammarParseError,
    InterpolationResolutionError,
    OmegaConfBaseException,
)
from yaml import YAMLError

from geomx.config.composition import (
    check_choice,
    composed,
    each_preset,
    hydra_raises,
    initialised,
    read_words,
    run_all,
)
from geomx.config.defaults import circle
from geomx.config.directories import (
    new_directory,
    no_directory,
    refuse_used,
    refuse_used_sweep,
    removed,
)
from geomx.config.groups import as_typed, network_choice, offer, store_file
from geomx.config.messages import below_nothing, explain
from geomx.config.own_files import check_own_files, check_places
from geomx.config.sweeps import noted, on_all_cores, one_at_a_time, parallel_jobs, reported
from geomx.errors import ConfigError, GeomxError
from geomx.experiment.build import build_experiment
from geomx.experiment.costs import read_costs
from geomx.experiment.experiment import Experiment
from geomx.options.named_costs import named_costs
from geomx.options.schema import Root
from geomx.plugin.registration import LISTS
from geomx.plugin.registry import Registry
from geomx.results.words import SEARCHED, key_of
from geomx.terminal.output import printed_at_once

CHOSEN = ("sync", "workload", "network")
GROUPS = (*CHOSEN, "accel", "track", "experiment")
SWEEP = {"-m", "--multirun"}
STARTED = "started"  # attribute of an error, maybe of another process: the job had begun
Job = Callable[[Experiment, Path], None]
Swept = Callable[[Path, Sequence[str]], None]


def compose(
    overrides: Sequence[str],
    registry: Registry | None = None,
    directory: Path | None = None,
    plans: bool = False,
    begins: bool = False,
) -> tuple[Experiment, Path]:
    """Compose an experiment.

    Args:
        overrides: Overrides of the command line.
        registry: The installed plugins; None: discover them.
        directory: Directory of the run; None: a new one as configured by Hydra.
        plans: Whether it is the base of a plan, which may be continued in its directory.
        begins: Whether ``resume=DIR`` begins a new run also without a network.

    Returns:
        The experiment, and the directory of its run.

    Raises:
        ConfigError: The overrides do not describe an experiment.
        GeomxError: The directory cannot be made.
        PluginError: A plugin violates its contract.
    """
    registry = registry or Registry.discover()
    with _explained(overrides, registry):
        translated, config = _composed(overrides, registry)
        experiment = _experiment(config, config.hydra.runtime, overrides, registry, begins)
        if directory is None:
            directory = _run_directory(config)
            refuse_used(directory, "hydra.run.dir", experiment, plans)
        try:
            (directory / ".hydra").mkdir(parents=True, exist_ok=True)
            OmegaConf.save(OmegaConf.create(list(translated)), directory / ".hydra/overrides.yaml")
        except OSError as error:
            raise no_directory(error) from error
        return experiment, directory


def configuration(overrides: Sequence[str]) -> dict[str, Any]:
    """Return the values that overrides come to, by key; no experiment is built of them.

    Args:
        overrides: Overrides of the command line.

    Raises:
        ConfigError: They are refused.
    """
    registry = Registry.discover()
    with _explained(overrides, registry):
        _, config = _composed(overrides, registry)
        return cast(dict[str, Any], OmegaConf.to_container(config))


# Hydra's state is global to the process, but experiments may be composed in any thread. A child
# process must not inherit the lock while a thread that it does not have holds it.
_one_thread = threading.RLock()
os.register_at_fork(
    before=_one_thread.acquire,
    after_in_parent=_one_thread.release,
    after_in_child=_one_thread.release,
)


def _composed(overrides: Sequence[str], registry: Registry) -> tuple[list[str], Any]:
    """Return the overrides in Hydra's syntax, and the configuration that Hydra makes of them."""
    with (
        _one_thread,
        _set_aside(),
        initialised(),
    ):
        translated = prepare(overrides, registry)
        offered = tuple(
            (each.kind, each.name, each.config) for each in registry.plugins(variants=True)
        )
        return translated, composed(translated, offered)


@contextmanager
def _set_aside() -> Iterator[None]:
    """Put the global Hydra instance aside, so that a running job can compose as well."""
    door = GlobalHydra.instance()
    hydra, door.hydra = door.hydra, None
    try:
        yield
    finally:
        door.hydra = hydra


def _run_directory(config: Any) -> Path:
    with _one_thread:
        before = HydraConfig.instance().cfg
        HydraConfig.instance().set_config(config)
        try:
            return Path(config.hydra.run.dir).absolute()
        finally:
            HydraConfig.instance().cfg = before


_sweep: ContextVar[Path | None] = ContextVar("sweep", default=None)


class _Refusal(BaseException):
    """Carries an error out of a callback; Hydra makes a warning of any `Exception`."""


class SweepWatch(Callback):
    """Hydra callback that refuses or records the directory of a sweep before its first job."""

    def on_multirun_start(self, config: Any, **kwargs: Any) -> None:
        """See `Callback.on_multirun_start`."""
        try:
            directory = Path(config.hydra.sweep.dir).absolute()
        except InterpolationResolutionError as error:
            unmade = _unmade(error)
            raise _Refusal(no_directory(unmade, "hydra.sweep.dir") if unmade else error) from None
        subdirectory = cast(dict[str, Any], OmegaConf.to_container(config.hydra.sweep))["subdir"]
        try:
            refuse_used_sweep(directory, str(subdirectory))
        except ConfigError as error:
            raise _Refusal(error) from None
        _sweep.set(directory)


def main(
    overrides: Sequence[str], job: Job, swept: Swept = lambda directory, overrides: None
) -> Path | None:
    """Run `job` on an experiment, or on each of a sweep, under Hydra.

    Args:
        overrides: Overrides and flags of the command line.
        job: Called with an experiment and its directory.
        swept: Called after a sweep with its directory and `overrides`, flags first, even if some
            of its jobs failed.

    Returns:
        The directory of the sweep, None for a single run.

    Raises:
        ConfigError: An override is invalid, or the directory contains a run.
        SystemExit: A flag such as ``--help`` was handled.
        Exception: Raised by `job`.
    """
    registry = Registry.discover()
    flags, plain, prints, searched = read_words(overrides)

    def task(config: Any) -> None:
        run = HydraConfig.get()
        sweep = run.mode == RunMode.MULTIRUN
        typed = [as_typed(word) for word in run.overrides.task] if sweep else plain
        typed = [*(word for word in typed if key_of(word) != SEARCHED), *searched]
        directory = Path(run.runtime.output_dir)
        chosen: Any = run.runtime.choices
        plugins = [str(chosen.sync), *map(str, config.accel)]
        try:
            with reported(typed) if sweep else nullcontext():
                kept = noted(directory, typed, plugins) if sweep else removed(directory)
                with kept, _explained(typed, registry):
                    experiment = _experiment(config, run.runtime, typed, registry)
                refuse_used(directory, "hydra.sweep.dir" if sweep else "hydra.run.dir", experiment)
                with noted(directory, typed, plugins) if sweep else nullcontext():
                    job(experiment, directory)
        except OSError as error:
            vars(error)[STARTED] = True
            raise

    arguments, token = sys.argv, _sweep.set(None)
    with _explained(plain, registry), hydra_raises():
        side_by_side = on_all_cores(plain) if SWEEP.intersection(flags) else []
        if side_by_side and any(
            _runs_alone(words, registry) for words in each_preset([*plain, *searched])
        ):
            side_by_side = one_at_a_time(side_by_side)
        words = [*prepare(plain, registry), *side_by_side]
        sys.argv = ["geomx", *words, *flags]  # --info takes a word that follows it
        try:
            with printed_at_once() if prints else nullcontext():
                run_all(flags, words, task)
        except _Refusal as refusal:
            raise refusal.args[0] from None
        except OSError as error:
            if prints or STARTED in vars(error) or isinstance(error, HydraException):
                raise
            key = "hydra.sweep.dir" if SWEEP.intersection(flags) else "hydra.run.dir"
            raise no_directory(error, key) from error
        finally:
            sys.argv = arguments
            sweep_directory = _sweep.get()
            _sweep.reset(token)
            if sweep_directory is not None:
                swept(sweep_directory, [*flags, *plain])
    return sweep_directory


def _runs_alone(overrides: Sequence[str], registry: Registry) -> bool:
    """Return whether jobs of these overrides are to run one at a time; False if they fail."""
    try:
        _, config = _composed(overrides, registry)
    except (GeomxError, HydraException, OmegaConfBaseException):
        return False
    return parallel_jobs(_root_=config) == 1


def prepare(overrides: Sequence[str], registry: Registry) -> list[str]:
    """Register the plugins with Hydra, and translate overrides to its syntax.

    Args:
        overrides: Overrides of the command line.
        registry: The installed plugins.

    Returns:
        Overrides for Hydra.

    Raises:
        ConfigError: A word is not ``key=value``, or lists an accelerator twice.
        GeomxError: The working directory was deleted.
    """
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise GeomxError("the working directory is gone; change to another folder") from error
    _offer(registry)
    translated = []
    for override in overrides:
        group, equals, value = override.partition("=")
        group = group.lstrip("+")
        _check_key(override, group)
        if group == SEARCHED:
            check_places(override)
        if group == "costs" and equals:
            translated.append(f"+costs={','.join(map(_costs_choice, value.split(',')))}")
            continue
        if group not in GROUPS or not equals:
            translated.append(override)
            continue
        if value in ("", "null"):
            none = f"must be []; this is how to choose no {LISTS.get(group)}"
            raise ConfigError(group, value, none if group in LISTS else "must be a name")
        if group == "network":
            value = network_choice(value, registry, overrides)
        translated.append(f"{group}={value}")
        with _explained([override], registry):
            check_choice(group, translated[-1])
    return translated


def _check_key(override: str, key: str) -> None:
    """Refuse what Hydra fails at or takes for something else.

    These are keys, the removal of choices that every experiment has, and folders without a name,
    which to Hydra are the present one: its files would be among those of the user.
    """
    if key.partition("@")[0] in ("", "hydra"):
        raise ConfigError("override", override, "must be of the form key=value")
    if key.startswith("~") and key[1:] in CHOSEN:
        remedy = f"cannot be removed; choose another one: {key[1:]}=NAME"
        raise ConfigError("override", override, remedy)
    _, equals, value = override.partition("=")
    folder = key in ("hydra.run.dir", "hydra.sweep.dir")
    if folder and equals and value.strip() in ("", '""', "''"):  # as an unset variable leaves it
        raise ConfigError(key, "", "must be a folder; the present one is .")


def _costs_choice(value: str) -> str:
    """Return the choice for ``costs=VALUE``, a name or a file."""
    if value in named_costs():
        return value
    return store_file("costs", Path(value), read_costs(Path(value)))


def _experiment(
    config: Any,
    runtime: Any,
    overrides: Sequence[str],
    registry: Registry,
    begins: bool = False,
) -> Experiment:
    content = {
        key: OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
        if OmegaConf.is_config(node)
        else node
        for key, node in config.items()
        if key != "hydra"
    }
    check_own_files(runtime, content, registry)
    chosen, network = runtime.choices, content["network"]
    if isinstance(network, dict) and "plugin" not in network:
        network.setdefault("name", chosen.network)  # that of a file in a folder of the user's
    return build_experiment(content, chosen.sync, chosen.workload, overrides, registry, begins)


def _offer(registry: Registry) -> None:
    """Register the root and every plugin's options as choices with Hydra."""
    store = ConfigStore.instance()
    if "geomx_root.yaml" not in store.repo:
        store.store(name="geomx_root", node=Root)
    offer(registry)
    OmegaConf.register_new_resolver("geomx_new_dir", new_directory, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("geomx_jobs", parallel_jobs, replace=True)


@contextmanager
def _explained(overrides: Sequence[str], registry: Registry) -> Iterator[None]:
    try:
        yield
    except (HydraException, OmegaConfBaseException, GrammarParseError, YAMLError) as error:
        if (unmade := _unmade(error)) is not None:
            raise no_directory(unmade) from error
        raise explain(error, overrides, registry) from error
    except (AssertionError, AttributeError, RecursionError, ValueError) as error:
        told = circle(error) if isinstance(error, RecursionError) else below_nothing(error)
        if told is None:
            raise
        raise told from None


def _unmade(error: Exception) -> OSError | None:
    """Return the error of `new_directory` inside an error of OmegaConf, or None."""
    within: BaseException | None = (
        error if isinstance(error, InterpolationResolutionError) else None
    )
    while within is not None and not isinstance(within, OSError):
        within = within.__cause__ or within.__context__
    return within
