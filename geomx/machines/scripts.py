"""The experiment of a run whose workers run a training script (``geomx launch -- COMMAND``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from geomx.config.compose import compose
from geomx.errors import ConfigError
from geomx.experiment.experiment import Experiment
from geomx.experiment.native_parts import parts_without_snapshots
from geomx.live.resume import words_of
from geomx.terminal.log import say

_DEFAULTS = {"faults.on_loss": ("continue", "stop"), "faults.durable": ("log", "none")}
"""Options that differ between runs of scripts and of experiments, which the second value is of."""


def composed_for_script(
    overrides: Sequence[str], check: Callable[[Experiment], None] = lambda experiment: None
) -> tuple[Experiment, Path]:
    """Compose the experiment of a script.

    Unlike an experiment's, its run continues without lost nodes, and its global servers keep a log.
    What the plugins or other options do not allow is left out, and reported; and logs also where
    snapshots cannot keep them short.

    Args:
        overrides: As for ``python -m geomx``; those of ``faults.on_loss`` and ``faults.durable``
            take precedence. With ``resume=DIR`` and without ``network``, others are those of that
            run.
        check: Raises `ConfigError` for experiments that cannot be run.

    Returns:
        As of `compose`.

    Raises:
        ConfigError: The overrides do not describe an experiment that can be run.
    """
    overrides = words_of(overrides)
    given = {
        key: value for key, _, value in (word.lstrip("+").partition("=") for word in overrides)
    }
    check_mode(given.get("mode", "live"), "geomx simulate ... -- COMMAND simulates a script")
    words = {key: f"{key}={value}" for key, (value, _) in _DEFAULTS.items() if key not in given}
    while True:
        try:
            experiment, directory = compose([*overrides, *words.values()], begins=True)
            if "faults.durable" in words:
                _check_log(experiment)
            check(experiment)
            return experiment, directory
        except ConfigError as error:
            if words.pop(error.key, None) is None:
                raise
            _, instead = _DEFAULTS[error.key]
            reason = f"{error.value} is not possible: {error.remedy}"
            say(f"{error.key}={instead}, since {reason}", "warning")


def check_mode(mode: str, instead: str) -> None:
    """Check that a launched job is to run live.

    Args:
        mode: The option.
        instead: How else it can be run.

    Raises:
        ConfigError: It is to be simulated.
    """
    if mode != "live":
        raise ConfigError("mode", mode, f"must be live, as geomx launch starts nodes; {instead}")


def _check_log(experiment: Experiment) -> None:
    """Check that logs which are kept by default have a bounded length.

    Raises:
        ConfigError: They would grow without bound.
    """
    cluster, selection = experiment.cluster, experiment.selection
    for label in parts_without_snapshots(cluster, selection):
        remedy = (
            f"{label} has a part that is not in geomx's C++, without snapshots of which logs grow "
            "as long as the run; give the option to have them all the same"
        )
        raise ConfigError("faults.durable", experiment.faults.durable, remedy)
