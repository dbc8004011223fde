"""``geomx plan``: finds a sync algorithm and accelerators for a network and a workload.

A plan simulates all combinations of the installed plugins, or, if there are too many, those that an
optimiser finds promising. It ranks them by the time to a lasting accuracy, or by the time per
iteration among those that lose little accuracy; says how certain the result is, and whether one
party alone would be faster; and prints the command that runs the first choice live. Candidates are
in `geomx.planning.candidates`, one party alone in `geomx.planning.alone`, their evaluation in
`geomx.planning.judge`, the search in `geomx.planning.search`, the output in
`geomx.planning.report` and `geomx.planning.verdict`; plans for scripts in `geomx.planning.scripts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import yaml

from geomx.config.compose import compose
from geomx.errors import ConfigError
from geomx.options.parsing import build_options
from geomx.options.schema import TO_ACCURACY, PlanOptions
from geomx.planning.alone import strongest
from geomx.planning.candidates import Space
from geomx.planning.certainty import Certainty, fidelity
from geomx.planning.judge import Judge
from geomx.planning.report import Plan
from geomx.planning.search import search
from geomx.plugin.registration import DEFAULT_SYNC
from geomx.plugin.registry import Registry
from geomx.results.words import key_of, of_one_run

OWN = "is chosen by the plan; plan.{0}=[NAME,NAME] narrows the choice"
REFUSED = {
    "sync": OWN.format("sync"),
    "accel": OWN.format("accel"),
    "mode": "a plan simulates; plan.live=N then runs the best N live",
}


def make(overrides: Sequence[str], begun: Callable[[Path], None] = lambda directory: None) -> Plan:
    """Make a plan and write its files to its run directory.

    Args:
        overrides: As for ``python -m geomx``, and ``plan.OPTION=VALUE``; see `PlanOptions`.
            With the ``hydra.run.dir`` of an earlier plan, its finished runs are not repeated.
        begun: Called with the run directory before anything is run.

    Returns:
        The plan.

    Raises:
        ConfigError: An override is invalid.
        GeomxError: The baseline cannot be run.
    """
    kept, fixed, options = sorted_out(overrides)
    base, directory = compose([*kept, f"sync={DEFAULT_SYNC}", "accel=[]"], plans=True)
    begun(directory)
    kept = [
        override
        for override in kept
        if key_of(override).split(".")[0] != "study" and not of_one_run(override)
    ]
    if base.study is not None:
        kept.append("study=null")
    if options.by == TO_ACCURACY and not base.numerics:
        remedy = "needs real gradients; without them only seconds_per_iteration is known"
        raise ConfigError("plan.by", options.by, remedy)
    error = fidelity(options.fidelity, base.emulate)
    space = Space(base, options, Registry.discover(), fixed)
    judge = Judge(base, kept, space, options, directory)
    judge.begin()
    some = list(islice(space.all(), options.candidates + 1))
    exhaustive = len(some) <= options.candidates
    if exhaustive:
        judge.weigh(some)
    else:
        search(space, judge, options, base.seed)
    judge.settle()
    judge.compare_alone(strongest(base.cluster, directory, kept))
    if options.live:
        judge.run_live()
    ranking = judge.ranking()
    certainty = Certainty.of([judge.values(one) for one in ranking], error) if ranking else None
    return Plan.write(directory, overrides, base, judge, exhaustive, error, certainty)


def sorted_out(overrides: Sequence[str]) -> tuple[list[str], list[str], PlanOptions]:
    """Split overrides into those of the experiment, those of plugins' options, and the plan's own.

    Args:
        overrides: As of `make`.

    Returns:
        The overrides of the experiment, those of plugins' options, and the options of the plan.

    Raises:
        ConfigError: An override sets what the plan chooses, or an option is invalid.
    """
    kept, fixed, own = [], [], {}
    for override in overrides:
        key, equals, value = override.partition("=")
        key = key_of(override)
        if override.startswith("-") or not equals:
            raise ConfigError("override", override, "must be key=value")
        if key in REFUSED:
            raise ConfigError(key, value, REFUSED[key])
        if key.startswith("plan."):
            try:
                own[key.removeprefix("plan.")] = yaml.safe_load(value)
            except yaml.YAMLError as error:
                raise ConfigError(key, value, "cannot be read; quote it") from error
        elif key.startswith(("sync.", "accel.")):
            fixed.append(override)
        else:
            kept.append(override)
    return kept, fixed, build_options(PlanOptions, own, "plan")
