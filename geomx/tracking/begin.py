"""Begins the records of a run: its network, and the experiment trackers that follow it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from geomx.experiment.experiment import Experiment
from geomx.plugin.tracking import TrackedRun
from geomx.results.recorder import Recorder
from geomx.tracking.following import Following

LEFT_OUT = ("accel", "words", "costs")
"""Parts of the header that are listed otherwise, or are no parameters."""
NO_PARAMETERS = ("hydra", "track")
"""Groups of overrides that do not concern what is run."""


def begin(recorder: Recorder, experiment: Experiment) -> None:
    """Record the network of a run, and let the experiment's trackers follow it.

    Args:
        recorder: The recorder, which has recorded nothing yet.
        experiment: The experiment.

    Raises:
        PluginError: A tracker could not begin.
    """
    recorder.network(experiment.cluster.graph)
    sync, accel = experiment.selection.sync, experiment.selection.accel
    names = ", ".join(name for name, _ in accel)
    run = TrackedRun(
        name=f"{sync[0]} + {names}" if names else sync[0],
        mode=experiment.mode,
        directory=recorder.directory,
        began_s=time.time(),
        parameters=parameters(experiment),
    )
    trackers = experiment.selection.trackers(run)
    recorder.follow(Following(trackers, len(experiment.cluster.workers)))


def parameters(experiment: Experiment) -> dict[str, Any]:
    """Return the options of an experiment by dotted name, as on the command line where they are.

    Of groups of options that a run always has (``network``, ``tcp``, ``faults`` and so on), those
    that were given.
    """
    header = {name: value for name, value in experiment.header().items() if name not in LEFT_OUT}
    header["accel"] = ",".join(name for name, _ in experiment.selection.accel)
    options = {f"accel.{name}": values for name, values in experiment.selection.accel}
    # Those of a script, which makes no number of steps known before, are its own.
    chosen = experiment.workload_options if experiment.workload.iterations else {}
    workload = {f"workload.{name}": value for name, value in chosen.items()}
    return {**_given(experiment.overrides), **dict(_flat({**workload, **header, **options}))}


def _given(overrides: Sequence[str]) -> dict[str, str]:
    """Return the overrides that set an option of the experiment within a group, by its name."""
    words = [override.lstrip("+").partition("=") for override in overrides]
    return {
        name: value
        for name, _, value in words
        if "." in name and name.split(".")[0] not in NO_PARAMETERS
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            plain = value is None or isinstance(value, bool | int | float | str)
            yield f"{prefix}{name}", value if plain else str(value)
