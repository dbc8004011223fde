"""Selection among more candidates than can be simulated: Optuna's tree-structured Parzen estimator.

Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011, in Optuna's version.
It supports categories and conditional parameters (an option exists only with its plugin), proposes
batches, and is deterministic for a seed, so that an interrupted search can be resumed. It minimises
the quantity that the plan ranks by. Every sync algorithm and every accelerator is first tried by
itself, so that no plugin is left out by chance.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import optuna

from geomx.options.schema import PlanOptions
from geomx.planning.candidates import BASELINE, Candidate, Space
from geomx.planning.judge import Judge
from geomx.planning.outcome import Standing

BATCH = 8
"""Candidates per batch, on any number of cores, so that a seed gives the same search on all."""
PATIENCE = 12
"""Number of consecutive batches without a new candidate after which the search ends."""
NONE = ""
"""Value of a slot without an accelerator."""


def search(space: Space, judge: Judge, options: PlanOptions, seed: int) -> None:
    """Evaluate candidates until ``options.candidates`` have been simulated.

    Args:
        space: Source of the candidates.
        judge: Evaluates them.
        options: Options of the plan.
        seed: Seed of the search.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=2 * BATCH, multivariate=True, group=True, constant_liar=True
        )
    study = optuna.create_study(sampler=sampler)
    for parameters in _singles(space):
        study.enqueue_trial(parameters)
    idle = 0
    while len(judge.standings) < options.candidates and idle < PATIENCE:
        left = options.candidates - len(judge.standings)
        asked = [(trial, _suggest(space, trial)) for trial in (study.ask() for _ in range(BATCH))]
        new = [one for one in dict.fromkeys(one for _, one in asked) if one not in judge.standings]
        idle = 0 if new else idle + 1
        judge.weigh(new[:left])
        for trial, one in asked:
            loss = _loss(judge, judge.standings[one]) if one in judge.standings else None
            if loss is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, loss)


def _singles(space: Space) -> Iterator[dict[str, Any]]:
    """Yield every sync algorithm alone and every accelerator under one, with default options."""
    first = BASELINE.sync if BASELINE.sync in space.syncs else space.syncs[0]
    alone = [(sync, NONE) for sync in space.syncs]
    alone += [(first, name) for name in space.accels if space.slots]
    for sync, accel in alone:
        chosen = {_slot(number): accel if number == 0 else NONE for number in range(space.slots)}
        axes = space.axes(sync, [accel] if accel else [])
        defaults = {_axis(key, sync): values[0] for key, values in axes.items()}
        yield {"sync": sync, **chosen, **defaults}


def _suggest(space: Space, trial: Any) -> Candidate:
    """Return one combination: the sync algorithm, an accelerator or none per slot, and options."""
    sync = trial.suggest_categorical("sync", space.syncs)
    chosen = (
        trial.suggest_categorical(_slot(number), [NONE, *space.accels])
        for number in range(space.slots)
    )
    accel = [name for name in dict.fromkeys(chosen) if name != NONE]
    axes = space.axes(sync, accel)
    values = {
        key: trial.suggest_categorical(_axis(key, sync), offered) for key, offered in axes.items()
    }
    return space.candidate(sync, accel, values)


def _axis(key: str, sync: str) -> str:
    """Return Optuna's name of an option, which two sync algorithms may have with other values."""
    return f"{key} of {sync}" if key.startswith("sync.") else key


def _slot(number: int) -> str:
    return f"accelerator {number + 1}"


def _loss(judge: Judge, standing: Standing) -> float | None:
    """Return the quantity that Optuna minimises: the log of the ranked time, with penalties.

    None if the candidate cannot be run. A candidate that was not trained because it could not have
    won counts with its bound; one that misses its accuracy is penalised by the missing part, and
    counts with no less than the baseline's time, or, if the baseline misses it too, with no less
    than every ranked time and the time of the baseline's whole run.
    """
    if standing.reason:
        return None
    value = judge.value(standing)
    if math.isfinite(value):
        return math.log(value)
    baseline = judge.standings[BASELINE]
    least = judge.value(baseline)
    if not math.isfinite(least):
        assert baseline.sized is not None
        whole_s = baseline.sized.seconds_per_iteration * judge.iterations(baseline)
        least = max([whole_s, *map(judge.value, judge.ranking())])
    worst = max(least, judge.bound(standing))
    return math.log(worst) + (10 * judge.shortfall(standing) if standing.outcomes else 0.0)
